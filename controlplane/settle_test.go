package controlplane_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

// A batch with one of everything: each is settled as it would be by itself.
func TestBatchOfEverything(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 100)
	sum := &models.Checksum{Value: models.SHA256.Sum(body)}
	declared := func(r *controlplane.OpenRequest) { r.Checksum, r.Name = sum, "a.pdf" }
	sent := func(collection string) controlplane.UploadView {
		v := open(t, s, collection, 100, declared)
		stack.MustSend(t, v.Parts[0], body)
		return v
	}
	plain, draft, checked, guarded := sent("default"), sent("draft"), sent("checked"), sent("resume")
	pinned := open(t, s, "default", 100)
	send(t, s, pinned, body)
	multi := open(t, s, "default", 6*mib)
	send(t, s, multi, stack.Bytes(2, 6*mib))
	absent := open(t, s, "default", 100, declared)
	aborted := sent("default")
	if _, err := s.Service.Abort(t.Context(), stack.Caller("ann"), aborted.ID); err != nil {
		t.Fatal(err)
	}
	done := sent("default")
	complete(t, s, done.ID)
	var events []models.ObjectEvent
	for _, v := range []controlplane.UploadView{plain, draft, checked, guarded, pinned, multi, absent, aborted, done} {
		for range 3 {
			events = append(events, models.ObjectEvent{Store: stack.Main, Key: v.Key, Created: true})
		}
	}
	events = append(events, models.ObjectEvent{Store: stack.Main, Key: "b/unknown", Created: true})
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i, err := range s.Service.Settle(t.Context(), events) {
				if err != nil {
					t.Errorf("%s: %v", events[i].Key, err)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range []struct {
		v            controlplane.UploadView
		upload, file string
	}{
		{plain, "committed", "active"}, {draft, "completed", "preparing"}, {checked, "committed", "processing"},
		{guarded, "committed", "active"}, {pinned, "committed", "active"}, {multi, "uploading", "preparing"},
		{absent, "uploading", "preparing"}, {aborted, "aborted", "failed"}, {done, "committed", "active"},
	} {
		got := stack.Query[string](t, s, "SELECT u.state || ' ' || f.state FROM uploads u JOIN files f ON f.id = u.file_id WHERE u.id = $1", string(c.v.ID))
		if want := c.upload + " " + c.file; got != want {
			t.Errorf("%s %s: %s, want %s", c.v.Collection, c.v.ID, got, want)
		}
	}
	for q, want := range map[string]int64{
		"SELECT count(*) FROM outbox WHERE type = 'file.active'":                 4,
		"SELECT count(*) FROM tasks WHERE kind = 'process'":                      1,
		"SELECT count(*) FROM tasks WHERE kind = 'reap' AND state = 'cancelled'": 5,
		"SELECT open FROM quotas WHERE collection = 'resume'":                    0,
		"SELECT count(*) FROM (SELECT 1 FROM history WHERE what IN ('upload', 'file', 'replica') GROUP BY subject, from_state, to_state HAVING count(*) > 1) x": 0,
	} {
		if got := stack.Query[int64](t, s, q); got != want {
			t.Errorf("%s: %d, want %d", q, got, want)
		}
	}
	if f, err := s.Service.File(t.Context(), stack.Caller("ann"), pinned.FileID); err != nil || !f.Declared || f.Checksum.Value != sum.Value {
		t.Errorf("pinned: %+v, error %v", f, err)
	}
	if got := stack.Query[string](t, s, "SELECT string_agg(what || ':' || from_state || '>' || to_state, ' ' ORDER BY id) FROM history WHERE file_id = $1 AND from_state <> ''", string(plain.FileID)); got !=
		"upload:uploading>completed replica:writing>ready upload:completed>committed file:preparing>active task:pending>cancelled" {
		t.Errorf("history %s", got)
	}
}

// Two batches of the same uploads in opposite order: neither waits for the other for ever,
// and each file becomes active once.
func TestBatchesCross(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	const n = 30
	var events []models.ObjectEvent
	for i := range n {
		v := open(t, s, "default", 10, func(r *controlplane.OpenRequest) { r.Name = fmt.Sprint(i) })
		stack.MustSend(t, v.Parts[0], stack.Bytes(byte(i), 10))
		events = append(events, models.ObjectEvent{Store: stack.Main, Key: v.Key, Created: true})
	}
	var wg sync.WaitGroup
	for range 4 {
		mixed := make([]models.ObjectEvent, n)
		for i, j := range rand.Perm(n) {
			mixed[i] = events[j]
		}
		wg.Go(func() {
			for _, err := range s.Service.Settle(t.Context(), mixed) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := stack.Query[int64](t, s, "SELECT count(*) FROM outbox WHERE type = 'file.active'"); got != n {
		t.Errorf("%d activations of %d files", got, n)
	}
}

// What a batch did not commit is told as not settled.
func TestBatchThatIsUndoneIsNotSettled(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	var events []models.ObjectEvent
	for range 3 {
		v := open(t, s, "default", 10)
		stack.MustSend(t, v.Parts[0], stack.Bytes(1, 10))
		events = append(events, models.ObjectEvent{Store: stack.Main, Key: v.Key, Created: true})
	}
	for _, q := range []string{
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$`,
		`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`,
	} {
		if _, err := s.Pool().Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	for i, err := range s.Service.Settle(t.Context(), events) {
		if err == nil {
			t.Errorf("event %d is settled, and its file is %s", i, stack.Query[string](t, s, "SELECT min(state) FROM files"))
		}
	}
}
