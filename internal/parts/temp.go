package parts

import (
	"fmt"
	"os"
	"os/exec"
)

// TempDir makes a folder that PostgreSQL's user can reach too, and that is
// removed when this process ends, however it ends: a shell waits for our end of
// a pipe to close, which the kernel does for us.
func TempDir() (string, error) { return tempDir(os.TempDir(), "/tmp") }

// memoryDir is TempDir in memory where there is room, else on disk. PostgreSQL
// makes and drops a database twenty times faster there, and each test has one.
func memoryDir() (string, error) {
	const room = 2 << 30
	if free("/dev/shm") < room {
		return TempDir()
	}
	return tempDir("/dev/shm", os.TempDir(), "/tmp")
}

func tempDir(bases ...string) (string, error) {
	who, err := unprivileged()
	if err != nil {
		return "", err
	}
	base := bases[0]
	for _, b := range bases {
		if who == nil || reachable(b, who) {
			base = b
			break
		}
	}
	dir, err := os.MkdirTemp(base, "berth-test-")
	if err != nil {
		return "", fmt.Errorf("temporary folder: %w", err)
	}
	// Others may walk through, not look around.
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", fmt.Errorf("temporary folder: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("temporary folder: %w", err)
	}
	defer r.Close()
	// The children that use the folder are ending at the same moment, and may
	// put a last file there: look again.
	const script = `cat >/dev/null
i=0
while [ $i -lt 100 ]; do
	rm -rf "$0" 2>/dev/null
	sleep 0.1
	[ -e "$0" ] || exit 0
	i=$((i+1))
done`
	cmd := exec.Command("/bin/sh", "-c", script, dir)
	cmd.Stdin, cmd.Dir = r, "/"
	cmd.SysProcAttr = sysProcAttr(0, nil) // to outlive us, for a moment
	if err := cmd.Start(); err != nil {
		w.Close()
		return "", fmt.Errorf("temporary folder: %w", err)
	}
	temps = append(temps, w)
	return dir, nil
}

// temps keeps the pipes open: a collected file is closed.
var temps []*os.File
