package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// mailbox is a queue that notes what it is sent.
type mailbox struct {
	mu   sync.Mutex
	sent []models.ReapMessage
	fail func(i int) error
}

func (m *mailbox) Send(_ context.Context, messages []models.ReapMessage) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(messages))
	for i, x := range messages {
		if m.fail != nil {
			errs[i] = m.fail(i)
		}
		if errs[i] == nil {
			m.sent = append(m.sent, x)
		}
	}
	return errs
}

func announcer(s *stack.Stack, q worker.ReapQueue) *worker.Announcer {
	return &worker.Announcer{Tasks: s.Store, Queue: q, Again: time.Minute, Now: s.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
}

func announce(t *testing.T, a *worker.Announcer) worker.AnnounceCounts {
	t.Helper()
	c, err := a.RunOnce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// deleting makes n files whose deletion is due.
func deleting(t *testing.T, s *stack.Stack, n int) (out []controlled) {
	t.Helper()
	for range n {
		v := active(t, s, 10)
		s.Clock.Advance(30 * time.Minute) // past its URL: one sweep is enough
		if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
			t.Fatal(err)
		}
		out = append(out, controlled{file: v.FileID,
			task: models.TaskID(stack.Query[string](t, s, "SELECT id FROM tasks WHERE file_id = $1 AND kind = 'reap' AND state = 'pending'", string(v.FileID)))})
	}
	return out
}

type controlled struct {
	file models.FileID
	task models.TaskID
}

func (c controlled) message() models.ReapMessage {
	return models.ReapMessage{TaskID: c.task, FileID: c.file}
}

// A due task is announced once by however many announcers, again only when its message must
// have been lost, and not before it is due.
func TestADueReapIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	files := deleting(t, s, 20)
	open(t, s, "default", 10) // its reap is due at its deadline only
	q := &mailbox{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := announcer(s, q).RunOnce(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 3 {
		announce(t, announcer(s, q))
	}
	told := map[models.ReapMessage]int{}
	for _, m := range q.sent {
		told[m]++
	}
	for _, f := range files {
		if told[f.message()] != 1 {
			t.Errorf("%s was announced %d times", f.task, told[f.message()])
		}
	}
	if len(q.sent) != len(files) {
		t.Errorf("%d messages for %d tasks", len(q.sent), len(files))
	}
	s.Clock.Advance(59 * time.Second)
	if c := announce(t, announcer(s, q)); c.Sent != 0 {
		t.Errorf("announced again too soon: %+v", c)
	}
	s.Clock.Advance(2 * time.Second)
	if c := announce(t, announcer(s, q)); c.Sent != len(files) {
		t.Errorf("not announced again: %+v", c)
	}
}

// What could not be sent is announced at the next pass, what was sent is not.
func TestWhatWasNotSentIsAnnouncedAtTheNextPass(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	deleting(t, s, 5)
	q := &mailbox{fail: func(i int) error {
		if i < 2 {
			return errors.New("no")
		}
		return nil
	}}
	if c, err := announcer(s, q).RunOnce(t.Context()); err == nil || c.Sent != 3 || c.Failed != 2 {
		t.Errorf("%+v, error %v", c, err)
	}
	q.fail = nil
	if c := announce(t, announcer(s, q)); c.Sent != 2 {
		t.Errorf("%+v", c)
	}
}

// A task whose message is given up, that is brought forward, or retried by hand, is announced
// when it is due, not after Again.
func TestATaskWithoutAMessageIsAnnounced(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 10)
	id := models.TaskID(stack.Query[string](t, s, "SELECT id FROM tasks"))
	m := models.ReapMessage{TaskID: id, FileID: v.FileID}
	q := &mailbox{}
	due := func() {
		t.Helper()
		if _, err := s.Pool().Exec(t.Context(), "UPDATE tasks SET run_at = $1", s.Clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
	due()
	if c := announce(t, announcer(s, q)); c.Sent != 1 {
		t.Fatalf("%+v", c)
	}
	// The upload is open: not yet. The message cannot wait that long, and is given up.
	if a, err := reaper(s, "one").Told(t.Context(), m, time.Minute); err != nil || a != (models.ReapAnswer{}) {
		t.Errorf("%+v, error %v", a, err)
	}
	due()
	if c := announce(t, announcer(s, q)); c.Sent != 1 {
		t.Errorf("given up, and not announced: %+v", c)
	}
	// The message can wait, and does.
	a, err := reaper(s, "one").Told(t.Context(), m, 24*time.Hour)
	if want := time.Hour + 10*time.Minute; err != nil || a.After != want || a.Poison != "" {
		t.Errorf("%+v, error %v, want after %s", a, err, want)
	}
	s.Clock.Advance(time.Second)
	// Aborted: its reap is brought forward, past the message that waits.
	if _, err := s.Service.Abort(t.Context(), stack.Caller("ann"), v.ID); err != nil {
		t.Fatal(err)
	}
	if c := announce(t, announcer(s, q)); c.Sent != 1 {
		t.Errorf("brought forward, and not announced: %+v", c)
	}
	r := reaper(s, "one")
	r.Stores = func(models.StoreName) (worker.ReapObjects, bool) { return nil, false }
	if _, err := s.Pool().Exec(t.Context(), "UPDATE tasks SET attempts = max_attempts - 1"); err != nil {
		t.Fatal(err)
	}
	if a, err := r.Told(t.Context(), m, 24*time.Hour); err != nil || a != (models.ReapAnswer{}) {
		t.Errorf("failed for good: %+v, error %v", a, err)
	}
	one(t, s, "failed", "SELECT state FROM tasks")
	if _, err := s.Store.Retry(t.Context(), id, "owner:admin", s.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	if c := announce(t, announcer(s, q)); c.Sent != 1 {
		t.Errorf("retried, and not announced: %+v", c)
	}
}

// A task that is running is not announced while its lease lives; when its worker has died
// and the message with it, it is.
func TestARunningReapIsAnnouncedWhenItsWorkerDied(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	f := deleting(t, s, 1)[0]
	q := &mailbox{}
	now := s.Clock.Now()
	if got, err := s.Store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Task: f.task, Owner: "dies", Until: now.Add(time.Minute), Limit: 1, Now: now}); err != nil || len(got) != 1 {
		t.Fatalf("%+v, error %v", got, err)
	}
	if c := announce(t, announcer(s, q)); c.Sent != 0 {
		t.Errorf("announced in another's hands: %+v", c)
	}
	if a, err := reaper(s, "one").Told(t.Context(), f.message(), time.Hour); err != nil || a.After != time.Minute {
		t.Errorf("%+v, error %v, want to come again when the lease ends", a, err)
	}
	wantHeld(t, s, 1, 0)
	s.Clock.Advance(time.Minute)
	if c := announce(t, announcer(s, q)); c.Sent != 1 {
		t.Errorf("not announced: %+v", c)
	}
	if a, err := reaper(s, "one").Told(t.Context(), f.message(), time.Hour); err != nil || a != (models.ReapAnswer{}) {
		t.Errorf("%+v, error %v", a, err)
	}
	wantHeld(t, s, 0, 0)
	one(t, s, "deleted", "SELECT state FROM files")
}

// A message claims its own task only, and what it says wrongly of it is poison.
func TestAMessageClaimsItsOwnTaskOnly(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	files := deleting(t, s, 2)
	r := reaper(s, "one")
	for _, c := range []struct {
		m      models.ReapMessage
		poison bool
	}{
		{models.ReapMessage{TaskID: models.NewTaskID(), FileID: files[0].file}, false}, // unknown: done long ago
		{models.ReapMessage{TaskID: files[0].task, FileID: files[1].file}, true},
	} {
		if a, err := r.Told(t.Context(), c.m, time.Hour); err != nil || a.After != 0 || (a.Poison != "") != c.poison {
			t.Errorf("%+v: %+v, error %v", c.m, a, err)
		}
	}
	wantHeld(t, s, 2, 0)
	if a, err := r.Told(t.Context(), files[1].message(), time.Hour); err != nil || a != (models.ReapAnswer{}) {
		t.Errorf("%+v, error %v", a, err)
	}
	one(t, s, "deleting", "SELECT state FROM files WHERE id = $1", string(files[0].file))
	one(t, s, "deleted", "SELECT state FROM files WHERE id = $1", string(files[1].file))
}

// Messages and the loop together have no more tasks in hand than the limit says.
func TestMessagesAndTheLoopShareTheLimit(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	files := deleting(t, s, 6)
	var mu sync.Mutex
	now, most := 0, 0
	inHand, goOn := make(chan struct{}, len(files)), make(chan struct{})
	r := reaper(s, "one")
	r.Limit = 2
	r.Stores = func(models.StoreName) (worker.ReapObjects, bool) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		inHand <- struct{}{}
		<-goOn
		mu.Lock()
		now--
		mu.Unlock()
		return s.Objects, true
	}
	var wg sync.WaitGroup
	for _, f := range files {
		wg.Go(func() {
			if _, err := r.Told(t.Context(), f.message(), time.Hour); err != nil {
				t.Error(err)
			}
		})
	}
	<-inHand
	<-inHand
	if c, err := r.RunOnce(t.Context()); err != nil || c.Claimed != 0 {
		t.Errorf("the loop claimed beside a full hand: %+v, error %v", c, err)
	}
	close(goOn)
	wg.Wait()
	if most > 2 {
		t.Errorf("%d at once", most)
	}
	one(t, s, int64(0), "SELECT count(*) FROM files WHERE state <> 'deleted'")
}
