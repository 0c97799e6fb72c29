package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"berth/internal/stack"
	"berth/internal/testkit"
)

// No statement on a file's way walks a whole table: berthd's sessions take an index where
// there is one, so that a walk is an index that is missing.
func TestNoTableIsWalked(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	single := active(t, s, 100)
	active(t, s, 11*mib)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), single.FileID); err != nil {
		t.Fatal(err)
	}
	if c := reap(t, s); c.Reaped != 1 {
		t.Fatalf("counts %+v", c)
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
}
