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

// crossing counts the statements that make uploads completed, and stops them until as many
// completes as are wanted have come up to it.
type crossing struct {
	attests, pins atomic.Int64
	wanted        int64
	open          chan struct{}
}

type pinsLook struct{}

func (c *crossing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(d.SQL, "UPDATE uploads u SET state = CASE"):
		c.attests.Add(1)
		select {
		case <-c.open:
		case <-ctx.Done():
		}
	case strings.HasPrefix(d.SQL, "SELECT number, digest FROM pins"):
		return context.WithValue(ctx, pinsLook{}, true)
	}
	return ctx
}

// TraceQueryEnd opens after the last look at the pins, the second of each complete: what is
// next is to be recorded.
func (c *crossing) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(pinsLook{}) != nil && c.pins.Add(1) == 2*c.wanted && c.wanted > 0 {
		close(c.open)
	}
}

// A group is recorded at its latest member's time: none is completed before it was opened.
func TestTimeOfAGroup(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	gate := &crossing{open: make(chan struct{})}
	db, err := store.Open(t.Context(), s.DSN, store.Options{Tracer: gate})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // read by then
	service := s.NewService(t, db, s.Objects)
	var wg sync.WaitGroup
	start := func(n int64) {
		t.Helper()
		v := open(t, s, "default", 100)
		stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
		wg.Go(func() {
			if _, err := service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{}); err != nil {
				t.Error(err)
			}
		})
		testkit.Eventually(t, 10*time.Second, func() error {
			if gate.pins.Load() < 2*n {
				return errors.New("it has not come up to the crossing")
			}
			return nil
		})
	}
	for n := range int64(3) { // two are under way, the third leads the next
		start(n + 1)
	}
	s.Clock.Advance(10 * time.Second)
	start(4)
	close(gate.open)
	wg.Wait()
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM uploads WHERE completed_at < created_at"); n != 0 {
		t.Errorf("%d uploads were completed before they were opened", n)
	}
}

// Completes that come at once are recorded together; those whose files another holds keep
// nobody waiting but themselves.
func TestCompletesAtOnce(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	const files, stuck = 60, 10
	gate := &crossing{wanted: files, open: make(chan struct{})}
	db, err := store.Open(t.Context(), s.DSN, store.Options{Tracer: gate})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // read by then
	service := s.NewService(t, db, s.Objects)
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
	if n := gate.attests.Load(); n > 10 {
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
