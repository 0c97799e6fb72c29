package testkit

import (
	"sync"
	"testing"
	"time"
)

// Eventually calls f until it returns nil, and fails the test with its last
// error when it has not by the deadline.
func Eventually(t testing.TB, deadline time.Duration, f func() error) {
	t.Helper()
	until := time.Now().Add(deadline)
	pause := time.Millisecond
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("not within %v: %v", deadline, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// Clock is a clock that stands still until it is advanced. Its zero value is
// not ready: use NewClock.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock stands at the present, cut to the microseconds that PostgreSQL keeps.
func NewClock() *Clock { return &Clock{now: time.Now().UTC().Truncate(time.Microsecond)} }

// Now is the clock's time, in UTC.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
