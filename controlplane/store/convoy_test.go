package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/models"
)

// road is a convoy whose groups wait until they are let go.
type road struct {
	convoy
	mu     sync.Mutex
	groups [][]models.UploadID
	gates  []chan error
	spoil  func(as []models.Attestation) // where set, before the answer
}

func newRoad() *road {
	r := &road{}
	r.together = func(ctx context.Context, as []models.Attestation) (map[models.UploadID]models.AttestOutcome, error) {
		gate := make(chan error)
		done := map[models.UploadID]models.AttestOutcome{}
		var ids []models.UploadID
		for _, a := range as {
			ids = append(ids, a.UploadID)
			if a.UploadID != "left out" {
				done[a.UploadID] = models.Attested
			}
		}
		r.mu.Lock()
		r.groups, r.gates = append(r.groups, ids), append(r.gates, gate)
		r.mu.Unlock()
		select {
		case err := <-gate:
			if r.spoil != nil {
				r.spoil(as)
			}
			return done, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r
}

// open lets the n-th group go.
func (r *road) open(n int, err error) {
	r.mu.Lock()
	gate := r.gates[n]
	r.mu.Unlock()
	gate <- err
	synctest.Wait()
}

type arrival struct {
	out models.AttestOutcome
	ok  bool
	err error
}

// start has an upload on its way; its arrival is read once it must have come.
func (r *road) start(ctx context.Context, id models.UploadID, actor string) *arrival {
	a := &arrival{}
	go func() {
		defer func() {
			if v := recover(); v != nil {
				a.err = fmt.Errorf("panic: %v", v)
			}
		}()
		a.out, a.ok, a.err = r.attest(ctx, models.Attestation{UploadID: id, Actor: actor})
	}()
	synctest.Wait()
	return a
}

func (r *road) went(t *testing.T, want ...[]models.UploadID) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.EqualFunc(r.groups, want, slices.Equal) {
		t.Errorf("went %q, want %q", r.groups, want)
	}
}

// ended checks that every lane is free and nobody is left.
func (r *road) ended(t *testing.T) {
	t.Helper()
	r.convoy.mu.Lock()
	defer r.convoy.mu.Unlock()
	if r.lanes != 0 || len(r.waiting) != 0 {
		t.Errorf("%d lanes are taken, %d wait", r.lanes, len(r.waiting))
	}
}

type ids = []models.UploadID

func TestWhoComesMeanwhileGoesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newRoad(), t.Context()
		a, b := r.start(ctx, "a", "x"), r.start(ctx, "b", "x")
		rest := []*arrival{r.start(ctx, "c", "x"), r.start(ctx, "d", "x"), r.start(ctx, "left out", "x")}
		other, twice := r.start(ctx, "e", "y"), r.start(ctx, "c", "x")
		r.went(t, ids{"a"}, ids{"b"})
		r.open(0, nil)
		r.went(t, ids{"a"}, ids{"b"}, ids{"c", "d", "left out"})
		r.open(1, nil)
		r.went(t, ids{"a"}, ids{"b"}, ids{"c", "d", "left out"}, ids{"e"})
		r.open(2, nil)
		r.open(3, nil)
		r.open(4, nil)
		r.went(t, ids{"a"}, ids{"b"}, ids{"c", "d", "left out"}, ids{"e"}, ids{"c"})
		for i, x := range []*arrival{a, b, rest[0], rest[1], other, twice} {
			if *x != (arrival{models.Attested, true, nil}) {
				t.Errorf("%d: %+v", i, x)
			}
		}
		if *rest[2] != (arrival{}) {
			t.Errorf("the one left out: %+v", rest[2])
		}
		r.ended(t)
	})
}

func TestAGroupThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newRoad(), t.Context()
		bad := errors.New("bad")
		a, b, c, d := r.start(ctx, "a", "x"), r.start(ctx, "b", "x"), r.start(ctx, "c", "x"), r.start(ctx, "d", "x")
		r.open(0, bad)
		r.open(1, nil)
		r.open(2, bad)
		if *a != (arrival{err: bad}) || !b.ok {
			t.Errorf("alone: %+v %+v", a, b)
		}
		if *c != (arrival{}) || *d != (arrival{}) {
			t.Errorf("of a group each goes alone: %+v %+v", c, d)
		}
		r.ended(t)
	})
}

func TestTheLeaderPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newRoad(), t.Context()
		r.start(ctx, "a", "x")
		r.start(ctx, "b", "x")
		c, d := r.start(ctx, "c", "x"), r.start(ctx, "d", "x")
		r.open(0, nil)
		r.spoil = func([]models.Attestation) { panic("ouch") }
		r.open(2, nil)
		r.spoil = nil
		if c.err == nil || *d != (arrival{}) {
			t.Errorf("%+v %+v", c, d)
		}
		r.open(1, nil)
		r.ended(t)
		e := r.start(ctx, "e", "x")
		r.open(3, nil)
		if !e.ok {
			t.Errorf("nobody gets through any more: %+v", e)
		}
	})
}

// Who leaves costs nobody else anything: waiting, called, taken along or leading.
func TestWhoLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoad()
		leads, stop := context.WithCancel(t.Context())
		a, b := r.start(leads, "a", "x"), r.start(t.Context(), "b", "x")
		waits, leave := context.WithCancel(t.Context())
		c, d := r.start(waits, "c", "x"), r.start(t.Context(), "d", "x")
		leave()
		synctest.Wait()
		if !errors.Is(c.err, context.Canceled) {
			t.Errorf("it waits on: %+v", c)
		}
		stop() // leads only itself, and ends
		synctest.Wait()
		if !errors.Is(a.err, context.Canceled) {
			t.Errorf("it goes on: %+v", a)
		}
		r.went(t, ids{"a"}, ids{"b"}, ids{"d"})
		leads, stop = context.WithCancel(t.Context())
		along, away := context.WithCancel(t.Context())
		e, f, g := r.start(leads, "e", "x"), r.start(along, "f", "x"), r.start(t.Context(), "g", "x")
		r.open(2, nil)
		stop()
		away()
		synctest.Wait()
		if e.err != nil || !errors.Is(f.err, context.Canceled) {
			t.Errorf("the leader of others goes on, who is taken along need not wait: %+v %+v", e, f)
		}
		r.open(3, nil)
		r.went(t, ids{"a"}, ids{"b"}, ids{"d"}, ids{"e", "f", "g"})
		if !d.ok || !e.ok || !g.ok {
			t.Errorf("%+v %+v %+v", d, e, g)
		}
		r.open(1, nil)
		if !b.ok {
			t.Errorf("%+v", b)
		}
		r.ended(t)
	})
}

// Called and gone in the same moment: the lane passes on.
func TestCalledAndGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			r := newRoad()
			a, b := r.start(t.Context(), "a", "x"), r.start(t.Context(), "b", "x")
			waits, leave := context.WithCancel(t.Context())
			r.start(waits, "c", "x")
			d := r.start(t.Context(), "d", "y") // another actor: it goes with none of them
			r.convoy.mu.Lock()
			leave()
			r.lanes++ // as if one had come free
			r.call()
			r.convoy.mu.Unlock()
			synctest.Wait()
			r.open(0, nil)
			r.open(1, nil)
			r.open(len(r.gates)-1, nil)
			if !a.ok || !b.ok || !d.ok {
				t.Fatalf("%+v %+v %+v", a, b, d)
			}
			r.ended(t)
		}
	})
}

// Many at once, with panics, faults, left-outs, doubles and callers that leave: never more
// lanes than there are, no upload twice in a group, one actor in each, nobody told of what
// was not done, and nothing left over.
func TestConvoyInTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &convoy{}
		var mu sync.Mutex
		recorded := map[models.UploadID]bool{}
		under := 0
		c.together = func(ctx context.Context, as []models.Attestation) (map[models.UploadID]models.AttestOutcome, error) {
			mu.Lock()
			if under++; under > convoyLanes {
				t.Error("more under way than there are lanes")
			}
			mu.Unlock()
			defer func() { mu.Lock(); under--; mu.Unlock() }()
			seen := map[models.UploadID]bool{}
			for _, a := range as {
				if seen[a.UploadID] || a.Actor != as[0].Actor {
					t.Errorf("%s twice, or by another", a.UploadID)
				}
				seen[a.UploadID] = true
			}
			select {
			case <-time.After(time.Duration(rand.IntN(300)) * time.Microsecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			switch rand.IntN(20) {
			case 0:
				panic("ouch")
			case 1:
				return nil, errors.New("bad")
			}
			done := map[models.UploadID]models.AttestOutcome{}
			mu.Lock()
			defer mu.Unlock()
			for _, a := range as {
				if rand.IntN(10) > 0 {
					recorded[a.UploadID], done[a.UploadID] = true, models.Attested
				}
			}
			return done, nil
		}
		one := func(id models.UploadID) {
			defer func() { _ = recover() }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
			defer cancel()
			_, ok, err := c.attest(ctx, models.Attestation{UploadID: id, Actor: fmt.Sprint(rand.IntN(3))})
			mu.Lock()
			defer mu.Unlock()
			if ok && err == nil && !recorded[id] {
				t.Errorf("%s is told and not recorded", id)
			}
		}
		var wg sync.WaitGroup
		for lane := range 40 {
			wg.Go(func() {
				for i := range 200 {
					id := models.UploadID(fmt.Sprint(lane, "-", i))
					if rand.IntN(10) == 0 {
						id = models.UploadID(fmt.Sprint("double ", rand.IntN(3)))
					}
					one(id)
				}
			})
		}
		wg.Wait() // who hangs is a deadlock, which the bubble tells
		if c.lanes != 0 || len(c.waiting) != 0 {
			t.Errorf("%d lanes are taken, %d wait", c.lanes, len(c.waiting))
		}
	})
}
