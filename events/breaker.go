package events

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// breaker keeps the pollers from burning receive counts while nothing can be settled:
// a message that is received too often goes to the dead-letter queue, though nothing is
// wrong with it.
//
// It opens when a whole batch met passing faults. While it is open, one poller at a
// time tries, after a pause that doubles, first the health check and then one message;
// one that is settled closes it.
type breaker struct {
	first, most time.Duration // pauses

	mu      sync.Mutex
	pause   time.Duration // 0: closed
	next    time.Time
	trying  bool
	changed chan struct{} // closed and replaced at each change
}

func newBreaker(first, most time.Duration) *breaker {
	return &breaker{first: first, most: most, changed: make(chan struct{})}
}

// enter waits until a poller may receive. trial says that it is the one that tries;
// then it must call settled or failed. It returns false when ctx ends.
func (b *breaker) enter(ctx context.Context) (trial, ok bool) {
	for {
		b.mu.Lock()
		if b.pause == 0 {
			b.mu.Unlock()
			return false, ctx.Err() == nil
		}
		wait := time.Until(b.next)
		if !b.trying && wait <= 0 {
			b.trying = true
			b.mu.Unlock()
			return true, ctx.Err() == nil
		}
		changed := b.changed
		if b.trying {
			wait = b.most // until the other's trial ends
		}
		b.mu.Unlock()
		timer := time.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, false
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// settled closes it.
func (b *breaker) settled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pause == 0 {
		return
	}
	b.pause, b.trying = 0, false
	b.change()
}

// idle ends a trial that learnt nothing: no message was there. The next may try at once.
func (b *breaker) idle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	b.change()
}

// failed opens it, or keeps it open for longer after a trial.
func (b *breaker) failed(trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pause == 0:
		b.pause = b.first
	case trial:
		b.pause = min(2*b.pause, b.most)
	default:
		return // a batch that was in hand when it opened
	}
	if trial {
		b.trying = false
	}
	b.next = time.Now().Add(jitter(b.pause))
	b.change()
}

func (b *breaker) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pause > 0
}

// jitter is d, half a quarter less or more.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/8 + rand.N(d/4+1) // #nosec G404 -- spreads load, keeps no secret
}
