package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/testkit"
)

// childEnv, when set, makes this test binary one process of Berth: it does one flow's act
// and sends itself a signal at the chosen boundary.
const childEnv = "BERTH_CRASH_CHILD"

// order is what a child is told.
type order struct {
	DSN    string
	S3     testkit.S3Info
	Flow   string
	State  state
	Now    time.Time // of the world's clock; it runs on from there
	At     int
	When   moment
	Signal syscall.Signal
}

// child does what its order says and ends.
func child(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	w := &world{dsn: o.DSN, s3: o.S3}
	cut := newCutter(o.At, o.When)
	cut.instead = func() {
		_ = syscall.Kill(os.Getpid(), o.Signal)
		if o.Signal == syscall.SIGKILL {
			select {} // not one instruction more
		}
	}
	begun := time.Now()
	clock := func() time.Time { return o.Now.Add(time.Since(begun)).Truncate(time.Microsecond) }
	p, stop, err := w.process(context.Background(), cut, parts{clock: clock})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer stop()
	i := slices.IndexFunc(allFlows(), func(f flow) bool { return f.name == o.Flow })
	cut.count(true)
	if err := allFlows()[i].act(p.ctx, &o.State, p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// spawn starts a child.
func spawn(t *testing.T, o order) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self) // #nosec G204 -- this test itself
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, &said
}

// stopped waits until a process is stopped by a signal.
func stopped(t *testing.T, pid int, said *bytes.Buffer) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatalf("the child is gone: %s", said)
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		switch {
		case strings.HasPrefix(rest, "T"):
			return nil
		case strings.HasPrefix(rest, "Z"):
			t.Fatalf("the child ended before its signal: %s", said)
		}
		return errors.New("not stopped yet: " + rest[:1])
	})
}

// TestKilledProcess kills real processes, with SIGKILL, at every few boundaries of the flows
// that do the most: there the kernel, not the test, takes everything away.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	stride := 9
	if full() {
		stride = 2
	}
	pins, err := readPins()
	if err != nil {
		t.Fatal(err)
	}
	take := lend(t, 2)
	for _, f := range allFlows() {
		if !slices.Contains([]string{"open multipart with a key", "complete multipart", "settle single",
			"reap a deleted file with all that lies there", "repair: finish at the deadline"}, f.name) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := take(t)
			kills := 0
			for n := 1; n <= pins[f.name]; n += stride {
				when := []moment{before, after}[n/stride%2]
				if err := w.clear(t.Context()); err != nil {
					t.Fatal(err)
				}
				r := &run{t: t, w: w, p: w.start(t, nil)}
				if f.prepare != nil {
					f.prepare(r)
				}
				cmd, said := spawn(t, order{DSN: w.dsn, S3: w.s3, Flow: f.name, State: r.s, Now: w.clock.Now(), At: n, When: when, Signal: syscall.SIGKILL})
				_ = cmd.Wait()
				if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
					t.Fatalf("boundary %d: not killed: %v %s", n, cmd.ProcessState, said)
				}
				kills++
				w.clock.Advance(time.Second) // the child's clock ran
				r.p = w.start(t, nil)
				at := fmt.Sprintf("killed %s %d", when, n)
				mustHold(t, w, r.p, false, at+", at once")
				if f.again != nil {
					f.again(r)
				}
				for range 2 {
					if err := errors.Join(w.tell(t.Context(), r.p), w.settle(r.p)); err != nil {
						t.Errorf("%s: %v", at, err)
					}
				}
				mustHold(t, w, r.p, true, at+", in the end")
				if last := value[string](t, w, "SELECT state FROM files ORDER BY id DESC LIMIT 1"); !slices.Contains(f.files, last) {
					t.Errorf("%s: the file is %q, want one of %q", at, last, f.files)
				}
			}
			t.Logf("%d kills", kills)
		})
	}
}

// TestStoppedProcess stops a worker in the middle of its work, with SIGSTOP, past its lease;
// another takes over and finishes. When the first goes on, with SIGCONT, it changes nothing:
// not a row, not an object.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	take := lend(t, 2)
	for _, c := range []struct {
		flow, call string // stopped before this call
		takeOver   func(*run) error
		lease      time.Duration
	}{
		{"reap a deleted file with all that lies there", "S3 ListMultipartUploads", reaps, 2 * lease},
		{"reap a deleted file with all that lies there", "S3 AbortMultipartUpload", reaps, 2 * lease},
		{"reap a deleted file with all that lies there", "S3 DeleteObjects", reaps, 2 * lease},
		{"reap an aborted single, second sweep", "S3 DeleteObjects", reaps, 2 * lease},
		{"complete multipart", "S3 ListParts", completed, 6 * time.Minute},
		{"complete multipart", "S3 CompleteMultipartUpload", completed, 6 * time.Minute},
		{"complete multipart", "S3 HeadObject", completed, 6 * time.Minute},
	} {
		t.Run(c.flow+", before "+c.call, func(t *testing.T) {
			t.Parallel()
			w := take(t)
			i := slices.IndexFunc(allFlows(), func(f flow) bool { return f.name == c.flow })
			f := allFlows()[i]
			// Which boundary it is, a run that is not stopped tells.
			names := f.crash(t, w, 0, before)
			at := slices.Index(names, c.call) + 1
			if at == 0 {
				t.Fatalf("no %s among %q", c.call, names)
			}
			if err := w.clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := &run{t: t, w: w, p: w.start(t, nil)}
			f.prepare(r)
			cmd, said := spawn(t, order{DSN: w.dsn, S3: w.s3, Flow: c.flow, State: r.s, Now: w.clock.Now(), At: at, When: before, Signal: syscall.SIGSTOP})
			stopped(t, cmd.Process.Pid, said)
			w.clock.Advance(c.lease)
			if err := c.takeOver(r); err != nil {
				t.Fatalf("the other: %v", err)
			}
			was := w.snapshot(t)
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // what it says of it is its own matter
			if is := w.snapshot(t); is != was {
				t.Errorf("the one that was stopped changed, waking up\nfrom %s\nto   %s", was, is)
			}
			mustHold(t, w, r.p, false, "awake")
			if err := w.settle(r.p); err != nil {
				t.Error(err)
			}
			mustHold(t, w, r.p, true, "in the end")
		})
	}
}

func reaps(r *run) error { return r.p.reap() }

func completed(r *run) error {
	return completes(r.p.ctx, &r.s, r.p)
}

// snapshot is all that there is: every row of every table, and all that S3 holds.
func (w *world) snapshot(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, table := range []string{"files", "uploads", "replicas", "tasks", "pins", "quotas", "store_usage", "outbox", "history", "idempotency", "foreign_versions"} {
		fmt.Fprintf(&out, "%s %s\n", table, value[string](t, w, "SELECT COALESCE(jsonb_agg(x ORDER BY x)::text, '') FROM (SELECT to_jsonb(r) AS x FROM "+table+" r) y"))
	}
	for v, err := range w.raw.ListVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s %v\n", v.Key, v.VersionID, v.Marker)
	}
	for m, err := range w.raw.ListMultiparts(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s\n", m.Key, m.S3UploadID)
	}
	return out.String()
}
