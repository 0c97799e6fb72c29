package crash_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5"
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

// want compares a query's value.
func want[T any](t testing.TB, w *world, wanted T, q string, args ...any) {
	t.Helper()
	if got := value[T](t, w, q, args...); !reflect.DeepEqual(got, wanted) {
		t.Errorf("%s: %v, want %v", q, got, wanted)
	}
}
