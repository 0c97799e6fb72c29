package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// target is the other side: it notes what it got, and fails as long as it is told to.
type target struct {
	name string
	mu   sync.Mutex
	down bool
	got  []models.Event
}

func (x *target) Name() string { return x.name }

func (x *target) Send(_ context.Context, e models.Event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.down {
		return errors.New("down")
	}
	x.got = append(x.got, e)
	return nil
}

func publisher(s *stack.Stack, targets ...worker.Target) *worker.Publisher {
	return &worker.Publisher{Outbox: s.Store, Targets: targets, Owner: "one", Lease: time.Minute, Limit: 10, Now: s.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
}

func publish(t *testing.T, p *worker.Publisher) (total worker.PublishCounts) {
	t.Helper()
	for {
		c, err := p.RunOnce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Claimed == 0 {
			return total
		}
		total.Sent += c.Sent
		total.Retried += c.Retried
		total.Failed += c.Failed
	}
}

func TestEventsOfAFileAreToldInOrder(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	var files []models.FileID
	for range 5 {
		v := active(t, s, 10)
		files = append(files, v.FileID)
		for range 2 {
			if _, err := s.Service.Block(t.Context(), stack.Caller("admin"), v.FileID, "x"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Service.Unblock(t.Context(), stack.Caller("admin"), v.FileID); err != nil {
				t.Fatal(err)
			}
		}
	}
	x := &target{name: "x"}
	var wg sync.WaitGroup
	for i := range 4 {
		p := publisher(s, x)
		p.Owner = fmt.Sprint("publisher-", i)
		wg.Go(func() { publish(t, p) })
	}
	wg.Wait()
	publish(t, publisher(s, x)) // what was leased by one while another found nothing
	want := []string{"file.active", "file.blocked", "file.unblocked", "file.blocked", "file.unblocked"}
	for _, f := range files {
		var got []string
		for _, e := range x.got {
			if e.FileID == f {
				got = append(got, string(e.Type))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %v", got)
		}
	}
}

// A target that is down holds back its own copies only, and gets them when it is back.
func TestTargetDownForAWhile(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	active(t, s, 10)
	up, down := &target{name: "up"}, &target{name: "down", down: true}
	p := publisher(s, up, down)
	for range 3 {
		publish(t, p)
		s.Clock.Advance(time.Minute)
	}
	down.down = false
	publish(t, p)
	if len(up.got) != 1 || len(down.got) != 1 || up.got[0].ID != down.got[0].ID {
		t.Errorf("up got %d, down got %d", len(up.got), len(down.got))
	}
	one(t, s, "sent", "SELECT state FROM outbox")
}

func TestDeadLettersWaitForAPerson(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 10)
	x := &target{name: "x", down: true}
	p := publisher(s, x)
	for range models.MaxSends + 3 {
		publish(t, p)
		s.Clock.Advance(2 * time.Hour)
	}
	page, err := s.Service.Events(t.Context(), stack.Caller("admin"), "", "", 10)
	dead := page.Events
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0].LastError, "down") {
		t.Fatalf("dead letters %+v, error %v", dead, err)
	}
	x.down = false
	if _, err := s.Service.Block(t.Context(), stack.Caller("admin"), v.FileID, "x"); err != nil {
		t.Fatal(err)
	}
	publish(t, p)
	if len(x.got) != 1 || x.got[0].Type != models.EventFileBlocked {
		t.Errorf("a dead letter holds up what came after it: %+v", x.got)
	}
	stranger := stack.Caller("admin")
	stranger.Tenant = "other"
	if err := s.Service.RetryEvent(t.Context(), stranger, dead[0].ID); models.ErrorCode(err) != models.CodeNotFound {
		t.Errorf("another tenant's dead letter: %v", err)
	}
	if err := s.Service.RetryEvent(t.Context(), stack.Caller("admin"), dead[0].ID); err != nil {
		t.Fatal(err)
	}
	publish(t, p)
	if len(x.got) != 2 || x.got[1].ID != dead[0].ID {
		t.Errorf("got %+v", x.got)
	}
}

// A publisher that sends, and dies before it says so, leads to a second sending of the
// same id, and a withdrawn event is not sent at all.
func TestAtLeastOnceAndWithdrawn(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	active(t, s, 10)
	now := s.Clock.Now()
	stale, err := s.Store.ClaimEvents(t.Context(), "dead", now.Add(time.Minute), 10, now)
	if err != nil || len(stale) != 1 {
		t.Fatalf("claimed %d, error %v", len(stale), err)
	}
	x := &target{name: "x"}
	p := publisher(s, x)
	if c := publish(t, p); c.Sent != 0 {
		t.Error("sent under another's lease")
	}
	s.Clock.Advance(2 * time.Minute)
	publish(t, p)
	if ok, err := s.Store.FinishEvents(t.Context(), stale[:1], []models.SendResult{{To: models.OutboxFailed, Err: "late"}}, s.Clock.Now()); err != nil || ok[0] {
		t.Errorf("a stale publisher finished: %v, %v", ok, err)
	}
	if len(x.got) != 1 || x.got[0].ID != stale[0].ID {
		t.Errorf("got %+v", x.got)
	}
	v := active(t, s, 10)
	id := models.EventID(stack.Query[string](t, s, "SELECT id FROM outbox WHERE file_id = $1", string(v.FileID)))
	if err := s.Service.CancelEvent(t.Context(), stack.Caller("admin"), id); err != nil {
		t.Fatal(err)
	}
	if err := s.Service.RetryEvent(t.Context(), stack.Caller("admin"), id); models.ErrorCode(err) != models.CodeNotReady {
		t.Errorf("a withdrawn event was taken up again: %v", err)
	}
	publish(t, p)
	if len(x.got) != 1 {
		t.Error("a withdrawn event was sent")
	}
}
