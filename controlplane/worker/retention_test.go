package worker_test

import (
	"log/slog"
	"testing"
	"time"

	"berth/controlplane/worker"
	"berth/internal/stack"
)

// Months of history and runs of reconcile that are older than the retention go; the rest
// stays, and all of it where nothing is said.
func TestRetention(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		keep       time.Duration
		rows, runs int64
		notes      int64 // verdicts of steps, and foreign versions
	}{
		"thirteen months": {400 * day, 2, 2, 2},
		"for ever":        {0, 4, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			now := s.Clock.Now()
			first := func(at time.Time) time.Time { return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC) }
			edge := first(now.Add(-400 * day)) // of the month that is not wholly older
			for _, at := range []time.Time{edge.AddDate(0, -2, 3), edge.AddDate(0, 0, -1), edge, first(now)} {
				exec(t, s, "SELECT berth_history_partitions($1, 0)", at)
				exec(t, s, "INSERT INTO history (at, file_id, what, subject, to_state, actor) VALUES ($1, 'fil_x', 'file', 'fil_x', 'active', 'test')", at)
			}
			run := func(id, state string, end *time.Time, until *time.Time) {
				exec(t, s, `INSERT INTO reconciliations (id, store, source, repair, state, cutoff, started_at, finished_at, lease_until)
					VALUES ($1, 'main', 'listing', false, $2, $3, $3, $4, $5)`, id, state, now.Add(-500*day), end, until)
			}
			old, young := now.Add(-401*day), now.Add(-399*day)
			run("run_old", "failed", &old, nil)
			run("run_young", "succeeded", &young, nil)
			run("run_now", "running", nil, &now)

			note := func(file string, at *time.Time) {
				exec(t, s, "INSERT INTO step_results (file_id, round, step, name, verdict, at) VALUES ($1, 7, 0, 'x', 'pass', $2)", file, at)
			}
			done, busy := active(t, s, 10), verified(t, s)
			for i, at := range []*time.Time{&old, &young} {
				exec(t, s, "INSERT INTO step_results (file_id, round, step, name, verdict, at) VALUES ($1, $2, 0, 'x', 'pass', $3)", string(done.FileID), i, at)
			}
			note(string(busy.FileID), &old) // its chain still reads it
			replica := stack.Query[string](t, s, "SELECT id FROM replicas WHERE file_id = $1", string(done.FileID))
			for version, reaped := range map[string]*time.Time{"old": &old, "young": &young, "there": nil} {
				exec(t, s, "INSERT INTO foreign_versions (store, key, version_id, replica_id, seen_at, reaped_at) VALUES ('main', 'k', $1, $2, $3, $4)", version, replica, old, reaped)
			}
			made := stack.Query[int64](t, s, "SELECT count(*) FROM history") - 4

			repairer := worker.Repairer{Sweep: s.Service, Keep: s.Store, Quiet: time.Minute, Limit: 10, History: c.keep, Now: s.Clock.Now,
				Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
			for range 2 {
				if _, err := repairer.RunOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			one(t, s, c.rows+made, "SELECT count(*) FROM history")
			one(t, s, c.notes, "SELECT count(*) FROM step_results")
			one(t, s, c.notes, "SELECT count(*) FROM foreign_versions")
			one(t, s, int64(0), "SELECT count(*) FROM history_rest")
			one(t, s, c.runs, "SELECT count(*) FROM reconciliations")
		})
	}
}

func exec(t *testing.T, s *stack.Stack, q string, a ...any) {
	t.Helper()
	if _, err := s.Pool().Exec(t.Context(), q, a...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}
