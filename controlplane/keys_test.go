package controlplane_test

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

func TestKeyTakenOnceAndAnsweredAlike(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	ann, hash := stack.Caller("ann"), []byte("one")
	var ran atomic.Int64
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for {
				req, kept, err := s.Service.TakeKey(t.Context(), ann, "k", hash)
				switch {
				case models.ErrorCode(err) == models.CodeIdempotencyInProgress:
					continue
				case err != nil:
					t.Error(err)
				case kept == nil:
					ran.Add(1)
					s.Service.FinishKey(t.Context(), req, models.KeptAnswer{Status: 202, Location: "/x", Body: []byte(`{"n":1}`)})
				case kept.Status != 202 || kept.Location != "/x" || string(kept.Body) != `{"n":1}`:
					t.Errorf("kept %+v", kept)
				}
				return
			}
		})
	}
	wg.Wait()
	if ran.Load() != 1 {
		t.Errorf("the request ran %d times", ran.Load())
	}
	_, _, err := s.Service.TakeKey(t.Context(), ann, "k", []byte("two"))
	wantCode(t, err, models.CodeIdempotencyConflict)

	other := stack.Caller("ann")
	other.Tenant = "elsewhere"
	for _, c := range []models.Caller{stack.Caller("bob"), other} {
		if _, kept, err := s.Service.TakeKey(t.Context(), c, "k", hash); err != nil || kept != nil {
			t.Errorf("%s of %s met another's key: %+v, %v", c.Owner, c.Tenant, kept, err)
		}
	}

	s.Clock.Advance(25 * time.Hour)
	if _, kept, err := s.Service.TakeKey(t.Context(), ann, "k", []byte("two")); err != nil || kept != nil {
		t.Errorf("an expired key still stands for its answer: %+v, %v", kept, err)
	}
	s.Clock.Advance(25 * time.Hour)
	if err := s.Store.Housekeep(t.Context(), s.Clock.Now(), 0, 100); err != nil {
		t.Fatal(err)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM idempotency"); n != 0 {
		t.Errorf("%d expired keys were not purged", n)
	}
}

// The files of a grant are counted by its id over renewals, also where the renewal comes
// after the first token has ended and everything expired was cleaned up.
func TestGrantIsCountedOverRenewals(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	file := func() error {
		c := stack.Caller("ann")
		c.Grant = &models.Grant{ID: "form-17", MaxFiles: 1, Expires: s.Clock.Now().Add(15 * time.Minute)}
		_, err := s.Service.Open(t.Context(), c, controlplane.OpenRequest{Collection: "default", Name: "a", Size: 1})
		return err
	}
	if err := file(); err != nil {
		t.Fatal(err)
	}
	s.Clock.Advance(time.Hour)
	if err := s.Store.Housekeep(t.Context(), s.Clock.Now(), 0, 100); err != nil {
		t.Fatal(err)
	}
	wantCode(t, file(), models.CodeForbidden)
	s.Clock.Advance(31 * 24 * time.Hour)
	if err := s.Store.Housekeep(t.Context(), s.Clock.Now(), 0, 100); err != nil {
		t.Fatal(err)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM grant_uses"); n != 0 {
		t.Errorf("%d grants that ended long ago are still counted", n)
	}
}

// A process that died with a key does not keep it: the same request takes it once the
// lease has ended, another never. Who wakes up late changes nothing of what came after.
func TestKeyOfADeadProcess(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	ann, hash := stack.Caller("ann"), []byte("one")
	leased := s.Clock.Now()
	late, _, err := s.Service.TakeKey(t.Context(), ann, "k", hash)
	if err != nil {
		t.Fatal(err)
	}
	// Who waits as long as it is told each time is through in a few attempts.
	for waits := 1; ; waits++ {
		var e *models.Error
		_, _, err = s.Service.TakeKey(t.Context(), ann, "k", hash)
		wantCode(t, err, models.CodeIdempotencyInProgress)
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		wait := time.Duration(e.Details["retry_after"].(int)) * time.Second
		if late := s.Clock.Now().Add(wait).Sub(leased); late >= 10*time.Second {
			if waits > 4 || late > 11*time.Second {
				t.Errorf("%d waits, in all %v", waits, late)
			}
			break
		}
		s.Clock.Advance(wait)
	}
	s.Clock.Advance(leased.Add(10*time.Second - time.Microsecond).Sub(s.Clock.Now()))
	_, _, err = s.Service.TakeKey(t.Context(), ann, "k", hash)
	wantCode(t, err, models.CodeIdempotencyInProgress)
	s.Clock.Advance(time.Millisecond)
	_, _, err = s.Service.TakeKey(t.Context(), ann, "k", []byte("two"))
	wantCode(t, err, models.CodeIdempotencyConflict)
	now, kept, err := s.Service.TakeKey(t.Context(), ann, "k", hash)
	if err != nil || kept != nil {
		t.Fatalf("a dead request keeps its key: %+v, %v", kept, err)
	}

	s.Service.DropKey(t.Context(), late)
	_, _, err = s.Service.TakeKey(t.Context(), ann, "k", hash)
	wantCode(t, err, models.CodeIdempotencyInProgress)
	s.Service.FinishKey(t.Context(), late, models.KeptAnswer{Status: 200, Body: []byte("late")})
	s.Service.FinishKey(t.Context(), now, models.KeptAnswer{Status: 200, Body: []byte("now")})
	s.Service.FinishKey(t.Context(), late, models.KeptAnswer{Status: 200, Body: []byte("late")})
	s.Service.DropKey(t.Context(), now)
	if _, kept, err = s.Service.TakeKey(t.Context(), ann, "k", hash); err != nil || kept == nil || !bytes.Equal(kept.Body, []byte("now")) {
		t.Errorf("kept %+v, %v", kept, err)
	}

	again, _, err := s.Service.TakeKey(t.Context(), ann, "dropped", hash)
	if err != nil {
		t.Fatal(err)
	}
	s.Service.DropKey(t.Context(), again)
	if _, kept, err := s.Service.TakeKey(t.Context(), ann, "dropped", []byte("two")); err != nil || kept != nil {
		t.Errorf("a key that was given back is not free: %+v, %v", kept, err)
	}
}

// An answer is for whoever may see what it is about: a grant that reaches less does not
// get it by knowing the key. A renewed grant that reaches the same does.
func TestKeyDoesNotWidenAGrant(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	hash := []byte("one")
	with := func(g *models.Grant) models.Caller {
		c := stack.Caller("ann")
		c.Grant = g
		return c
	}
	first := with(&models.Grant{ID: "a", Collection: "draft", Expires: s.Clock.Now()})
	req, _, err := s.Service.TakeKey(t.Context(), first, "k", hash)
	if err != nil {
		t.Fatal(err)
	}
	s.Service.FinishKey(t.Context(), req, models.KeptAnswer{Status: 200, Body: []byte("{}")})
	renewed := with(&models.Grant{ID: "b", Collection: "draft", MaxFiles: 3, Expires: s.Clock.Now().Add(time.Hour)})
	if _, kept, err := s.Service.TakeKey(t.Context(), renewed, "k", hash); err != nil || kept == nil {
		t.Errorf("the renewed grant: %+v, %v", kept, err)
	}
	for name, c := range map[string]models.Caller{
		"none": stack.Caller("ann"), "another collection": with(&models.Grant{Collection: "default"}),
		"one upload": with(&models.Grant{Collection: "draft", Upload: models.NewUploadID()}),
		"derived":    with(&models.Grant{Collection: "draft", Derive: &models.Derivation{Parent: models.NewFileID()}}),
	} {
		if _, kept, err := s.Service.TakeKey(t.Context(), c, "k", hash); models.ErrorCode(err) != models.CodeIdempotencyConflict {
			t.Errorf("%s: %+v, %v", name, kept, err)
		}
	}
}

// Open's keys and the others' share one name space: none is taken for the other's.
func TestKeyOfOpenIsNotAnothers(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	ann, hash := stack.Caller("ann"), []byte("hash")
	opens := func(key string) error {
		_, err := s.Service.Open(t.Context(), ann, controlplane.OpenRequest{Collection: "default", Name: "x", Size: 7,
			IdempotencyKey: key, RequestHash: hash})
		return err
	}
	if err := opens("opened"); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Service.TakeKey(t.Context(), ann, "opened", hash)
	wantCode(t, err, models.CodeIdempotencyConflict)
	req, _, err := s.Service.TakeKey(t.Context(), ann, "other", hash)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, opens("other"), models.CodeIdempotencyConflict)
	s.Service.FinishKey(t.Context(), req, models.KeptAnswer{Status: 200, Body: []byte("{}")})
	wantCode(t, opens("other"), models.CodeIdempotencyConflict)
}
