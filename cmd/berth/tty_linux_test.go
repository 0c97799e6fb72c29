package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal of 120 columns.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// onTerminal runs the CLI with both outputs on a terminal and returns all that it wrote.
func (h *harbour) onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	ours, theirs := terminal(t)
	defer ours.Close()
	cmd := h.berth(args...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdout, cmd.Stderr = theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	var out bytes.Buffer
	_, _ = io.Copy(&out, ours) // ends with EIO when the last writer has closed
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return out.String()
}

// TestTerminal: a bar with rate and time left while it runs; the result stays when it
// is over, and no bar does. Elsewhere, none of that.
func TestTerminal(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	path := filepath.Join(t.TempDir(), "film.mkv")
	data := makeFile(t, path, 30*mib)
	small := filepath.Join(t.TempDir(), "note.txt")
	makeFile(t, small, 10)
	h.proxy.set(slowly, nil)
	for _, args := range [][]string{{"put", "-c", "parts", "-p", "1", path}, {"put", "-c", "parts", "-p", "1", path, small}} {
		out := h.onTerminal(t, args...)
		for _, want := range []string{"film.mkv", "of 30.0 MiB", "MiB/s", "left", "[=", "\x1b["} {
			if !strings.Contains(out, want) {
				t.Errorf("%d files: no %q in\n%q", len(args)-5, want, out)
			}
		}
		last := out[strings.LastIndex(out, "\x1b["):]
		if !strings.Contains(out, "fil_") || strings.Contains(last, "[=") {
			t.Errorf("the end: %q", last)
		}
		if n := strings.Count(out, "active"); n != len(args)-5 {
			t.Errorf("%d results: %q", n, out)
		}
	}
	h.proxy.set(slowly, nil)
	line := h.must("put", "-c", "parts", path)
	if strings.Contains(line.stdout+line.stderr, "\x1b") || strings.Count(line.stdout, "\n") != 1 || line.stderr != "" {
		t.Errorf("not on a terminal: %q, %q", line.stdout, line.stderr)
	}
	id := strings.Fields(line.stdout)[0]
	h.proxy.set(slowly, nil)
	out := h.onTerminal(t, "get", "-p", "1", id, "-o", path+".back")
	if !strings.Contains(out, "[=") || !strings.Contains(out, "verified") {
		t.Errorf("get: %q", out)
	}
	sameFile(t, path+".back", data)
}
