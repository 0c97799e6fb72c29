package crash_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/stack"
	"berth/models"
)

// pin writes how many boundaries each flow has, instead of holding it against the table.
var pin = flag.Bool("pin", false, "write testdata/boundaries.txt anew")

const pinned = "testdata/boundaries.txt"

// TestCrashAtEveryBoundary runs each flow once to number its calls, and then again for each
// of them, before and after: there the process ends, another is started in its place, the
// client asks again, time passes, the workers work, and F1 to F9 must hold.
//
// How many boundaries there are is pinned, so that the test cannot silently shrink. After a
// change of a flow on purpose: go test ./internal/crash -run EveryBoundary -pin
func TestCrashAtEveryBoundary(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	want, err := readPins()
	if err != nil && !*pin {
		t.Fatal(err)
	}
	var mu sync.Mutex
	counts, crashes, all := map[string]int{}, 0, 0
	take := lend(t, 4)
	t.Run("flows", func(t *testing.T) {
		for _, f := range allFlows() {
			t.Run(f.name, func(t *testing.T) {
				if f.heavy && !full() && !*pin {
					t.Skip("in make test-crash")
				}
				t.Parallel()
				w := take(t)
				names := f.crash(t, w, 0, before)
				mu.Lock()
				counts[f.name] = len(names)
				all += len(names)
				mu.Unlock()
				if *pin {
					return
				}
				if len(names) != want[f.name] {
					t.Errorf("%d boundaries, pinned are %d; if that is on purpose: go test ./internal/crash -run EveryBoundary -pin\n%s",
						len(names), want[f.name], strings.Join(names, "\n"))
				}
				for n := 1; n <= len(names) && !t.Failed(); n++ {
					for _, when := range []moment{before, after} {
						if full() && f.single && when == before && n > 1 || !full() && !chosen(names, n, when) {
							continue
						}
						mu.Lock()
						crashes++
						mu.Unlock()
						f.crash(t, w, n, when)
					}
				}
			})
		}
	})
	if *pin {
		if err := writePins(counts); err != nil {
			t.Fatal(err)
		}
	}
	for name := range want {
		if !slices.ContainsFunc(allFlows(), func(f flow) bool { return f.name == name }) {
			t.Errorf("the flow %q is pinned and is no more", name)
		}
	}
	t.Logf("%d flows, %d boundaries, %d crashes, %v", len(counts), all, crashes, time.Since(begun).Round(time.Second))
}

// readPins reads lines of a count and a flow's name.
func readPins() (map[string]int, error) {
	b, err := os.ReadFile(pinned)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		var n int
		count, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscan(count, &n); err != nil || !ok {
			return nil, fmt.Errorf("%s: %q is not a count and a name", pinned, line)
		}
		out[name] = n
	}
	return out, nil
}

func writePins(counts map[string]int) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%d %s\n", counts[name], name)
	}
	return os.WriteFile(pinned, []byte(b.String()), 0o644) // #nosec G306 -- a source file
}

// chosen is the part that plain make test takes: after what the outside sees, which are
// S3's and SQS's calls and the commits, and before the commits that something outside
// precedes. What is cut within a transaction is undone by it.
func chosen(names []string, n int, when moment) bool {
	outside := func(name string) bool { return !strings.HasPrefix(name, "SQL ") }
	name := names[n-1]
	switch {
	case outside(name):
		return when == after
	case strings.EqualFold(name, "SQL commit"):
		return when == after || slices.ContainsFunc(names[:n], outside)
	}
	return false
}

// crash is one run, cut at the nth boundary (0: not at all). It returns the boundaries
// that it passed.
func (f *flow) crash(t *testing.T, w *world, n int, when moment) []string {
	t.Helper()
	if err := w.clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, w: w}
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	start := func(c *cutter) *process {
		p, stop, err := w.process(t.Context(), c, parts{})
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
		return p
	}
	r.p = start(nil)
	if f.prepare != nil {
		f.prepare(r)
	}
	victim := start(newCutter(n, when))
	victim.cut.count(true)
	err := f.act(victim.ctx, &r.s, victim)
	victim.cut.count(false)
	names := victim.cut.calls()
	at := "no crash"
	if n > 0 {
		at = fmt.Sprintf("crash %s %d", when, n)
		if n <= len(names) {
			at += " " + names[n-1]
		}
		if !victim.cut.ended() {
			t.Errorf("%s: the process did not come so far: %v", at, names)
		}
	} else if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	victim.cut.kill()
	w.dead(t)
	if n > 0 && err != nil {
		// The answer never came. What it said is not known to anybody.
		defer func() {
			if t.Failed() {
				t.Logf("%s: the process's last word: %v", at, err)
			}
		}()
	}
	r.p = start(nil)
	if !f.broken {
		mustHold(t, w, r.p, false, at+", at once")
	}
	if f.again != nil {
		f.again(r)
		mustHold(t, w, r.p, false, at+", asked again")
	}
	if err := w.settle(r.p); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	// All events, late and twice.
	for range 2 {
		if err := errors.Join(w.tell(t.Context(), r.p), r.p.tick()); err != nil {
			t.Errorf("%s: late events: %v", at, err)
		}
		w.clock.Advance(grace + urlLife)
	}
	if err := r.p.tick(); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	mustHold(t, w, r.p, true, at+", in the end")
	w.mustBeHeard(t, at)
	if f.uploads >= 0 {
		if got := value[int](t, w, "SELECT count(*) FROM uploads"); got != f.uploads {
			t.Errorf("%s: F6: %d uploads, want %d", at, got, f.uploads)
		}
	}
	last := value[string](t, w, "SELECT COALESCE((SELECT state FROM files ORDER BY id DESC LIMIT 1), '')")
	if !slices.Contains(f.files, last) {
		t.Errorf("%s: the file is %q, want one of %q", at, last, f.files)
	}
	if t.Failed() {
		t.Logf("%s failed", at)
	}
	return names
}

// mustBeHeard demands that every event reached who listens, and is known to have.
func (w *world) mustBeHeard(t *testing.T, at string) {
	t.Helper()
	events, err := rows[struct{ ID, State string }](t.Context(), w, "SELECT id, state FROM outbox")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if _, heard := w.heard.Load(e.ID); !heard || e.State != "sent" {
			t.Errorf("%s: event %s is %s; heard: %v", at, e.ID, e.State, heard)
		}
	}
}

// tell brings the event of every object that there is, and of every key that there was.
func (w *world) tell(ctx context.Context, p *process) error {
	keys, err := rows[struct{ Key string }](ctx, w, "SELECT key FROM replicas")
	if err != nil {
		return err
	}
	var all []models.ObjectEvent
	for _, k := range keys {
		all = append(all, models.ObjectEvent{Store: stack.Main, Key: k.Key, Created: true})
	}
	for v, err := range w.raw.ListVersions(ctx, "") {
		if err != nil {
			return err
		}
		if !v.Marker {
			all = append(all, models.ObjectEvent{Store: stack.Main, Key: v.Key, VersionID: v.VersionID, Created: true})
		}
	}
	for i, err := range p.service.Settle(ctx, all) {
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].Key, err)
		}
	}
	return nil
}
