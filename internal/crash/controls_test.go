package crash_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/models"
)

// control is one guard, what is done to it, and the property that must then be seen to
// break. The same scenario with the guard in place must be found clean.
type control struct {
	guard    string
	without  parts
	change   func(sql string) string // nil: without says it
	breaks   string
	final    bool // judged in the end, not at once
	scenario func(t *testing.T, r *run, victim *process)
}

// always makes a comparison true and leaves its parameters where they are.
func always(expr string) func(string) string {
	re := regexp.MustCompile(expr)
	return func(sql string) string { return re.ReplaceAllString(sql, "(TRUE OR $0)") }
}

var stateGuard = regexp.MustCompile(`\b(u\.)?state IN \('[^)]*\)`)

// withoutStates takes the states out of what changes uploads and files.
func withoutStates(sql string) string {
	if !strings.HasPrefix(sql, "UPDATE uploads") && !strings.HasPrefix(sql, "UPDATE files") {
		return sql
	}
	return stateGuard.ReplaceAllString(sql, "TRUE")
}

// blind is a reaper's database that forgets what a file references.
type blind struct{ *store.Store }

func (b blind) BeginReap(ctx context.Context, k models.Task, now time.Time) (models.ReapPlan, error) {
	p, err := b.Store.BeginReap(ctx, k, now)
	p.Keep = ""
	return p, err
}

// unversioned deletes by key alone.
type unversioned struct {
	timely
	client *s3.Client
	bucket string
}

func (u unversioned) DeleteVersions(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error) {
	out := make([]models.DeleteResult, len(refs))
	for i, r := range refs {
		if _, err := u.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &u.bucket, Key: &r.Key}); err != nil {
			return nil, err
		}
		out[i] = models.DeleteResult{Key: r.Key, VersionID: r.VersionID}
	}
	return out, nil
}

func controls(w *world) []control {
	return []control{
		{guard: "fence", breaks: "F2", final: true, change: always(`lease_owner = \$\d+ AND lease_version = \$\d+`),
			scenario: func(t *testing.T, r *run, victim *process) {
				r.active(request("plain", small))
				r.ok(deletes(r.p.ctx, &r.s, r.p))
				now := w.clock.Now()
				stale, err := victim.store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Owner: "sleeper", Until: now.Add(lease), Limit: 1, Now: now})
				if err != nil || len(stale) != 1 {
					t.Fatalf("claimed %d, %v", len(stale), err)
				}
				plan, err := victim.store.BeginReap(t.Context(), stale[0], now)
				r.ok(err)
				w.clock.Advance(2 * lease)
				now = w.clock.Now()
				// Another has it now, and is at work when the first wakes up.
				taken, err := r.p.store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Owner: "other", Until: now.Add(lease), Limit: 1, Now: now})
				if err != nil || len(taken) != 1 {
					t.Fatalf("taken over %d, %v", len(taken), err)
				}
				_, err = victim.store.FinishReap(t.Context(), stale[0], plan, models.ReapOutcome{Failure: "the sleeper saw nothing", Final: true}, now)
				r.ok(err)
			}},
		{guard: "state", breaks: "not among the transitions", change: withoutStates,
			scenario: func(t *testing.T, r *run, victim *process) {
				r.active(request("plain", small))
				_ = aborts(t.Context(), &r.s, victim)
			}},
		{guard: "reference check", breaks: "F1", without: parts{tasks: func(s *store.Store) worker.ReapTasks { return blind{s} }},
			scenario: func(t *testing.T, r *run, victim *process) {
				r.active(request("plain", small))
				r.s.Version = r.put("evil", "")
				r.ok(settle(t.Context(), &r.s, r.p))
				r.ok(reapOnce(t.Context(), nil, victim))
			}},
		{guard: "version id", breaks: "F2", final: true,
			without: parts{reap: func(o timely) worker.ReapObjects { return unversioned{o, w.s3.Client(), w.s3.Bucket} }},
			scenario: func(t *testing.T, r *run, victim *process) {
				r.active(request("plain", small))
				r.ok(deletes(t.Context(), &r.s, r.p))
				r.ok(reapOnce(t.Context(), nil, victim))
			}},
		{guard: "owner guard", breaks: "F5", change: always(`files \+ 1 <= \$\d+`),
			scenario: func(t *testing.T, r *run, victim *process) {
				var racing sync.WaitGroup
				for range 6 {
					racing.Go(func() {
						_, err := victim.service.Open(t.Context(), caller(ann), request("limited", 10))
						if err != nil && models.ErrorCode(err) != models.CodeQuotaExceeded {
							t.Error(err)
						}
					})
				}
				racing.Wait()
			}},
		{guard: "owner scope", breaks: "F8", final: true, change: always(`\b[uf]\.tenant = \$\d+ AND [uf]\.owner = \$\d+`),
			scenario: func(_ *testing.T, r *run, _ *process) { r.active(request("plain", small)) }},
	}
}

// TestGuardsHaveNegativeControls takes each guard away, one at a time, and demands that the
// judge sees it; with the guard, the same must be found clean.
func TestGuardsHaveNegativeControls(t *testing.T) {
	t.Parallel()
	take := lend(t, 2)
	for i, c := range controls(&world{}) {
		t.Run(c.guard, func(t *testing.T) {
			t.Parallel()
			w := take(t)
			for _, taken := range []bool{false, true} {
				if err := w.clear(t.Context()); err != nil {
					t.Fatal(err)
				}
				c := controls(w)[i]
				with := parts{}
				var wire *rewriter
				if taken {
					with = c.without
					if c.change != nil {
						with.dsn, wire = rewritten(t, w, c.change)
					}
				}
				r := &run{t: t, w: w, p: w.start(t, nil)}
				victim := w.startWith(t, nil, with)
				c.scenario(t, r, victim)
				judge := r.p
				if c.guard == "owner scope" {
					judge = victim // it is the reading that goes wrong
				}
				if c.final {
					worker := r.p
					if c.without.reap != nil {
						worker = victim // or one that is whole cleans up after it
					}
					if err := w.settle(worker); err != nil && !taken {
						t.Fatal(err)
					}
				}
				broken, err := w.check(t.Context(), judge, c.final)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case !taken && len(broken) > 0:
					t.Fatalf("with the guard: %s", strings.Join(broken, "\n"))
				case taken && !has(broken, c.breaks):
					t.Errorf("without the guard the judge does not say %q but %q", c.breaks, broken)
				case taken && wire != nil && wire.hits.Load() == 0:
					t.Error("no statement had the guard that was to be taken away")
				}
			}
		})
	}
}

// A crash that is none must be found out: the cutter refuses what comes after the end.
func TestADeadProcessSaysNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &run{t: t, w: w, p: w.start(t, nil)}
	r.active(request("plain", small))
	victim := w.start(t, nil)
	victim.cut.kill()
	if err := deletes(t.Context(), &r.s, victim); err == nil {
		t.Error("a dead process deleted a file")
	}
	if _, err := victim.objects.Head(t.Context(), r.s.Key, ""); !errors.As(err, new(errCut)) {
		t.Errorf("a dead process spoke to S3: %v", err)
	}
	want(t, w, "active", "SELECT state FROM files")
}
