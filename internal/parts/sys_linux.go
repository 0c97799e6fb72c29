package parts

import (
	"os"
	"path/filepath"
	"syscall"
)

func sysProcAttr(death syscall.Signal, u *User) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		// Its own group: a ^C at the terminal goes to the parent alone, which
		// stops its children in the right order.
		Setpgid:   true,
		Pdeathsig: death,
	}
	if u != nil {
		a.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID}
	}
	return a
}

// reachable reports whether the user could walk down to dir: each folder on the
// way has to give them the x bit. Folders that do not exist yet count as
// reachable, since we would make them.
func reachable(dir string, u *User) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	for {
		var st syscall.Stat_t
		switch err := syscall.Stat(dir, &st); {
		case err == syscall.ENOENT:
		case err != nil:
			return false
		default:
			bit := uint32(0o001)
			switch {
			case st.Uid == u.UID:
				bit = 0o100
			case st.Gid == u.GID:
				bit = 0o010
			}
			if st.Mode&bit == 0 {
				return false
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return true
		}
		dir = up
	}
}

// storesAttributes reports whether dir's file system takes the user.* extended
// attributes in which versitygw keeps metadata. Some tmpfs do not.
func storesAttributes(dir string) bool {
	f, err := os.CreateTemp(dir, ".xattr-")
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	return syscall.Setxattr(f.Name(), "user.berth", []byte("1"), 0) == nil
}

// free is how many bytes the file system of dir has left for us.
func free(dir string) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}
