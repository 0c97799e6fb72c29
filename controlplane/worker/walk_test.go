package worker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// No statement on a file's way, and none that comes back every few seconds, walks a whole
// table or a whole index, be there ever so much that is closed or not yet due.
func TestNoTableIsWalked(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	const many = 20_000
	s.Fill(t, many, 0)
	for _, q := range []string{
		"UPDATE tasks SET state = 'pending', closed_at = NULL, run_at = now() + interval '1 day' WHERE id >= 'tsk_' || lpad(to_hex(10000), 36, '0')",
		`INSERT INTO outbox (id, type, file_id, tenant, payload, state, not_before, created_at, closed_at)
			SELECT 'evt_' || right(id, 36), 'file.active', id, tenant, '{}', 'sent', now(), now(), now() FROM files`,
		"VACUUM ANALYZE",
		"SELECT pg_stat_force_next_flush()", "SELECT pg_stat_reset()",
	} {
		exec(t, s, q)
	}
	single := active(t, s, 100)
	active(t, s, 11*mib)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), single.FileID); err != nil {
		t.Fatal(err)
	}
	if c := reap(t, s); c.Reaped != 1 {
		t.Fatalf("counts %+v", c)
	}
	repairer := worker.Repairer{Sweep: s.Service, Keep: s.Store, Quiet: time.Minute, Limit: 10, History: 400 * 24 * time.Hour, Now: s.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
	for range 3 {
		if _, err := repairer.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if c := publish(t, publisher(s, &target{name: "all"})); c.Sent == 0 {
		t.Errorf("told nothing: %+v", c)
	}
	for _, kind := range models.TaskKinds {
		if _, _, err := s.Store.NextDue(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Store.NextEvent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.Files(t.Context(), stack.Caller("own-1"), controlplane.FileQuery{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Store.Close(); err != nil { // what a session counted is told when it ends
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		if n := stack.Query[int64](t, s, "SELECT sum(idx_scan)::bigint FROM pg_stat_user_tables WHERE relname IN ('uploads', 'files')"); n == 0 {
			return errors.New("nothing is told yet")
		}
		if n := stack.Query[int64](t, s, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'berthd'"); n > 0 {
			return fmt.Errorf("%d sessions", n)
		}
		return nil
	})
	for _, table := range []string{"files", "uploads", "replicas", "tasks", "outbox"} {
		if n := stack.Query[int64](t, s, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = $1", table); n > 0 {
			t.Errorf("%s is walked %d times", table, n)
		}
	}
	// Entries and rows: an index of what is closed by now has many that are dead.
	for _, read := range []string{"idx_tup_read", "idx_tup_fetch"} {
		if most := stack.Query[string](t, s, `SELECT COALESCE(string_agg(format('%s of %s', `+read+`, indexrelname), ', ' ORDER BY indexrelname), '')
			FROM pg_stat_user_indexes WHERE `+read+` > $1`, many/10); most != "" {
			t.Errorf("%s: %s, of %d there are", read, most, many)
		}
	}
}
