//go:build unix

package client

import (
	"errors"
	"os"
	"syscall"
)

func inodeOf(fi os.FileInfo) (dev, inode uint64) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino) //nolint:unconvert // the types differ between systems
	}
	return 0, 0
}

// lockFile takes the file for this process until it is closed.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // #nosec G115 -- a descriptor
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrBusy
	}
	return nil // a file system without locks does not keep anybody from downloading
}
