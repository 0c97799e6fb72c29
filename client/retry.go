package client

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// RetryPolicy says how often and how soon a request is sent again.
type RetryPolicy struct {
	Attempts int           // in all, the first included
	Base     time.Duration // ceiling of the first wait; doubles from there
	Cap      time.Duration // ceiling of any wait that the server did not ask for
}

// DefaultRetry lasts about half a minute before it gives up.
var DefaultRetry = RetryPolicy{Attempts: 8, Base: 250 * time.Millisecond, Cap: 10 * time.Second}

// maxRetryAfter bounds how long a server can make a client wait.
const maxRetryAfter = 2 * time.Minute

// wait is the time before attempt number n+1, n from 1: full jitter, that is uniform
// in [0, ceiling], so that clients that failed together do not come back together.
// A server's Retry-After is the least.
func (p RetryPolicy) wait(n int, after time.Duration) time.Duration {
	ceiling := p.Cap
	if n < 30 {
		ceiling = min(p.Cap, p.Base<<(n-1))
	}
	var d time.Duration
	if ceiling > 0 {
		d = rand.N(ceiling + 1) // #nosec G404 -- jitter
	}
	return max(d, min(after, maxRetryAfter))
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryAfter reads Retry-After, in seconds or as a date; 0 if there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.Atoi(v); err == nil && s > 0 {
		return time.Duration(min(s, int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// passing tells whether a status says "later it may work".
func passing(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	// 501 and 505 say never; proxies make up the rest (520 to 530).
	return status > 505
}
