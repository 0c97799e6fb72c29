package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/parts"
)

// place knows where everything is under .dev.
type place struct{ root string }

func (p place) file(names ...string) string {
	return filepath.Join(append([]string{p.root, ".dev"}, names...)...)
}

func (p place) lock() string     { return p.file("lock") }
func (p place) pid() string      { return p.file("supervisor.pid") }
func (p place) env() string      { return p.file("env") }
func (p place) config() string   { return p.file("berthd.yaml") }
func (p place) postgres() string { return p.file("postgres") }
func (p place) s3() string       { return p.file("s3") }
func (p place) sqs() string      { return p.file("sqs") }
func (p place) log(part string) string {
	return p.file("log", part+".log")
}

// bin is a program that make built.
func (p place) bin(name string) (string, error) {
	path := p.file("bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built (%w); run make build", name, err)
	}
	return path, nil
}

// supervisor returns the process id of the supervisor that runs, or 0. The lock
// tells whether one does: it ends with its holder, whereas a pid in a file may
// by now be anybody's.
func (p place) supervisor() (int, error) {
	free, err := tryLock(p.lock())
	if err != nil {
		return 0, err
	}
	if free != nil {
		return 0, free.Close()
	}
	// It may only just have taken the lock.
	for range 100 {
		b, err := os.ReadFile(p.pid())
		if err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 {
				return pid, nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 0, fmt.Errorf("somebody holds %s, but %s does not say who", p.lock(), p.pid())
}

// data is every file and folder that clean removes: all but the programs.
func (p place) data() ([]string, error) {
	list, err := os.ReadDir(p.file())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var paths []string
	for _, e := range list {
		if e.Name() != "bin" {
			paths = append(paths, p.file(e.Name()))
		}
	}
	// The cluster is elsewhere where its user cannot reach .dev.
	if pg := parts.PostgresDir(p.postgres()); pg != "" && pg != p.postgres() {
		if _, err := os.Stat(pg); err == nil {
			paths = append(paths, pg)
		}
	}
	return paths, nil
}
