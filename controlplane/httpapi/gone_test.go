package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"berth/client/wire"
	"berth/internal/stack"
	"berth/internal/testkit"
)

// A cancel is carried out though the page that asked for it is gone before the answer.
func TestAbortOfACallerWhoIsGone(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	u := w.open(t, wire.OpenRequest{Size: 6 * mib})
	// It comes as far as the file's lock, which another holds.
	holder, err := w.stack.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.Background()) //nolint:errcheck // nothing was written
	if _, err := holder.Exec(t.Context(), "SELECT 1 FROM files WHERE id = $1 FOR UPDATE", u.FileID); err != nil {
		t.Fatal(err)
	}
	waiting := func() int64 {
		// Not pg_stat_activity.wait_event: a signal's passing clears it while the lock is waited for.
		return stack.Query[int64](t, w.stack, `SELECT count(DISTINCT a.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND a.datname = current_database() AND a.application_name = 'berthd'`)
	}
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, w.url+"/v1/uploads/"+u.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.ann)
	left := make(chan error, 1)
	go func() {
		resp, err := w.http.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	testkit.Eventually(t, 10*time.Second, func() error {
		if waiting() == 0 {
			return errors.New("nobody waits for the lock")
		}
		return nil
	})
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller is not gone: %v", err)
	}
	// Had the request gone with its caller, it would not wait any more.
	for until := time.Now().Add(500 * time.Millisecond); time.Now().Before(until); {
		if waiting() == 0 {
			t.Fatal("the request went with its caller")
		}
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if state := stack.Query[string](t, w.stack, "SELECT state FROM uploads"); state != "aborted" {
			return errors.New(state)
		}
		return nil
	})
}
