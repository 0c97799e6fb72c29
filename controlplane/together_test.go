package controlplane_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/controlplane"
	"berth/controlplane/store"
	"berth/internal/stack"
	"berth/internal/testkit"
)

// attests counts the statements that make uploads completed.
type attests struct{ n atomic.Int64 }

func (a *attests) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "UPDATE uploads u SET state = CASE") {
		a.n.Add(1)
	}
	return ctx
}

func (a *attests) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Completes that come at once are recorded together; those whose files another holds keep
// nobody waiting but themselves.
func TestCompletesAtOnce(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	var count attests
	db, err := store.Open(t.Context(), s.DSN, store.Options{Tracer: &count})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // read by then
	service := s.NewService(t, db, s.Objects)
	const files = 60
	var views []controlplane.UploadView
	for range files {
		v := open(t, s, "default", 100)
		stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
		views = append(views, v)
	}
	holder, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing was written
	const stuck = 10
	for _, v := range views[:stuck] {
		if _, err := holder.Exec(t.Context(), "SELECT 1 FROM files WHERE id = $1 FOR UPDATE", v.FileID); err != nil {
			t.Fatal(err)
		}
	}
	var free, held sync.WaitGroup
	begun := time.Now()
	for i, v := range views {
		group := &free
		if i < stuck {
			group = &held
		}
		group.Go(func() {
			u, err := service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
			if err != nil || u.File == nil || u.File.State != "active" {
				t.Errorf("%d: %v, %+v", i, err, u.File)
			}
		})
	}
	free.Wait()
	if took := time.Since(begun); took > 12*time.Second { // a lock is given up after 15 s
		t.Errorf("they waited for the one that is held: %v", took)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM files WHERE state = 'active'"); n != files-stuck {
		t.Errorf("%d files are active while %d are held", n, stuck)
	}
	if n := count.n.Load(); n > files/2 {
		t.Errorf("%d transactions for %d completes", n, files-stuck)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	held.Wait()
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := stack.Query[int64](t, s, "SELECT count(DISTINCT file_id) FROM outbox WHERE type = 'file.active'"); n != files {
			return errors.New("events are missing")
		}
		return nil
	})
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM history WHERE what = 'upload' AND to_state = 'completed'"); n != files {
		t.Errorf("%d completions in the history", n)
	}
}
