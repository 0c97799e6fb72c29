package crash_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/internal/testkit"
)

// rows scans by position into the fields of R.
func rows[R any](ctx context.Context, w *world, q string, args ...any) ([]R, error) {
	r, err := w.pool.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(r, pgx.RowToStructByPos[R])
}

// value runs a query that gives one value.
func value[T any](t testing.TB, w *world, q string, args ...any) T {
	t.Helper()
	var v T
	if err := w.pool.QueryRow(t.Context(), q, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return v
}

// dead waits until PostgreSQL has noticed the end of a process: until then its transaction
// holds its locks, and a sweep that skips locked rows would leave them for a later pass
// than the test lets come.
func (w *world) dead(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		n := value[int](t, w, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND application_name = 'berthd' AND xact_start IS NOT NULL`)
		if n > 0 {
			return fmt.Errorf("%d transactions of the dead process are open", n)
		}
		return nil
	})
}

// want compares a query's value.
func want[T any](t testing.TB, w *world, wanted T, q string, args ...any) {
	t.Helper()
	if got := value[T](t, w, q, args...); !reflect.DeepEqual(got, wanted) {
		t.Errorf("%s: %v, want %v", q, got, wanted)
	}
}
