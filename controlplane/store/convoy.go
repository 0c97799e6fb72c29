package store

import (
	"context"
	"sync"
	"time"

	"berth/models"
)

// convoy lets transactions that come at once go together, as a database commits them in
// groups. Whoever comes while fewer than convoyLanes are under way goes at once, alone;
// whoever comes meanwhile waits, and goes with all who wait by then. One who waits pays a
// part of the next transaction instead of a whole one of its own, and nobody waits for
// company.
//
// A group waits for no lock: one whose rows another holds is left out, and goes alone, so
// that it keeps nobody else.
//
// Whoever goes first of a group does the work in its own goroutine, and then wakes the
// first of the next.
type convoy struct {
	mu      sync.Mutex
	lanes   int       // under way
	waiting []*member // in the order they came

	// together attests a group. Whom it leaves out goes alone.
	together func(ctx context.Context, as []models.Attestation) (map[models.UploadID]models.AttestOutcome, error)
}

const (
	convoyLanes = 2
	// convoyMost bounds a group: what it locks, and how long the next one waits.
	convoyMost = 64
	// convoyTime bounds one group's transaction. It is nobody's own, and outlives whoever
	// leads it.
	convoyTime = time.Minute
)

// member is one of those who go together.
type member struct {
	a     models.Attestation
	lead  chan struct{} // closed: it is this one's turn to lead
	done  chan struct{} // closed: the group has arrived
	taken bool          // by a group

	out models.AttestOutcome
	ok  bool  // out is its outcome; else it goes alone
	err error // of a group of one
}

// attest goes with others. ok is false where it is to go alone: the group failed, or left
// it out. Where the caller's context ends first the group does its work all the same.
func (c *convoy) attest(ctx context.Context, a models.Attestation) (out models.AttestOutcome, ok bool, err error) {
	m := &member{a: a, lead: make(chan struct{}), done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, m)
	if c.lanes < convoyLanes {
		c.lanes++
		c.call()
	}
	c.mu.Unlock()
	select {
	case <-m.done:
		return m.out, m.ok, nil
	case <-m.lead:
		c.drive(ctx, m)
		return m.out, m.ok, m.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-m.lead: // called in the same moment: another takes the lane
		c.leave(m)
		c.call()
	default:
		if !m.taken {
			c.leave(m)
		}
	}
	return "", false, ctx.Err()
}

// call wakes the first who waits, or gives the lane up. The caller holds the mutex.
func (c *convoy) call() {
	if len(c.waiting) == 0 {
		c.lanes--
		return
	}
	for _, m := range c.waiting {
		select {
		case <-m.lead: // is called already, for the other lane
		default:
			close(m.lead)
			return
		}
	}
	c.lanes--
}

func (c *convoy) leave(m *member) {
	for i, w := range c.waiting {
		if w == m {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return
		}
	}
}

// take forms the group that m leads: who waits, by the same actor, each upload once, and
// none who leads another.
func (c *convoy) take(m *member) (group []*member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	group = append(group, m)
	uploads := map[models.UploadID]bool{m.a.UploadID: true}
	var rest []*member
	for _, w := range c.waiting {
		called := false
		select {
		case <-w.lead:
			called = true
		default:
		}
		switch {
		case w == m:
		case called, w.a.Actor != m.a.Actor, uploads[w.a.UploadID], len(group) == convoyMost:
			rest = append(rest, w)
		default:
			w.taken, uploads[w.a.UploadID] = true, true
			group = append(group, w)
		}
	}
	m.taken, c.waiting = true, rest
	return group
}

// drive does the group's work and tells everyone in it, whatever comes of it.
func (c *convoy) drive(ctx context.Context, m *member) {
	group := c.take(m)
	defer func() {
		c.mu.Lock()
		c.call()
		c.mu.Unlock()
		for _, w := range group {
			close(w.done)
		}
	}()
	as := make([]models.Attestation, len(group))
	for i, w := range group {
		as[i] = w.a
	}
	if len(group) > 1 { // the others' must not end with the leader's request
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), convoyTime)
		defer cancel()
	}
	done, err := c.together(ctx, as)
	if err != nil {
		if len(group) == 1 {
			m.err = err
		}
		return // of several, each alone will tell its own
	}
	for _, w := range group {
		w.out, w.ok = done[w.a.UploadID]
	}
}
