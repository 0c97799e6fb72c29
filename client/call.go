package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"berth/models"
)

// maxAnswer bounds an answer in bytes: 10,000 signed parts fit several times.
const maxAnswer = 128 << 20

// call is one logical request to the server.
type call struct {
	op     string // for errors: "open"
	method string
	path   string // escaped, from the base URL on
	query  url.Values
	body   any            // JSON; nil: none
	key    string         // Idempotency-Key; empty: none
	ahead  *time.Duration // out: how far the server's clock is ahead of ours; nil: not asked
}

// NewIdempotencyKey makes a key for one logical operation.
func NewIdempotencyKey() string { return rand.Text() }

// do sends it until there is an answer that counts, and decodes that into out.
func (c *Client) do(ctx context.Context, r call, out any) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("%s: %w", r.op, err)
		}
	}
	refreshed := false
	for attempt := 1; ; attempt++ {
		after, err := c.once(ctx, r, body, refreshed, out)
		if err == nil {
			return nil
		}
		var answered *Error
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", r.op, context.Cause(ctx))
		case errors.As(err, &answered) && answered.Status == http.StatusUnauthorized && !refreshed:
			refreshed = true
			continue
		case errors.As(err, &answered) && !passing(answered.Status) &&
			answered.Code != models.CodeIdempotencyInProgress && answered.Code != models.CodeBusy:
			return err
		case isFinal(err) || attempt >= c.retry.Attempts:
			return err
		}
		if err := sleep(ctx, c.retry.wait(attempt, after)); err != nil {
			return fmt.Errorf("%s: %w", r.op, context.Cause(ctx))
		}
	}
}

// finalError is one of our own that no repetition mends.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(format string, args ...any) error { return finalError{fmt.Errorf(format, args...)} }

func isFinal(err error) bool {
	var f finalError
	return errors.As(err, &f)
}

// once sends it once.
func (c *Client) once(ctx context.Context, r call, body []byte, refresh bool, out any) (after time.Duration, err error) {
	target, err := url.Parse(c.base.String() + r.path)
	if err != nil {
		return 0, final("%s: a bad path", r.op)
	}
	target.RawQuery = r.query.Encode()
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), rd)
	if err != nil {
		return 0, final("%s: a bad request", r.op)
	}
	token, err := c.tokens(ctx, refresh)
	if err != nil {
		return 0, final("%s: token: %w", r.op, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", c.agent)
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	res, err := c.api.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", r.op, bare(err))
	}
	defer func() {
		// What is left of a small answer is read, so that the connection is kept.
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
		_ = res.Body.Close()
	}()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return retryAfter(res.Header, time.Now()), problem(r.op, res)
	}
	if out == nil || res.StatusCode == http.StatusNoContent {
		return 0, nil
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return 0, fmt.Errorf("%s: reading the answer: %w", r.op, err)
	}
	if len(raw) > maxAnswer {
		return 0, final("%s: the answer is larger than %d bytes", r.op, maxAnswer)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return 0, final("%s: the answer is not what it should be: %w", r.op, err)
	}
	if r.ahead != nil {
		*r.ahead = skew(res.Header, time.Now())
	}
	return 0, nil
}

// skew is how far the server's clock is ahead of ours; 0 if it does not say, or by
// less than the header can tell.
func skew(h http.Header, now time.Time) time.Duration {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	if d := at.Sub(now); d < -2*time.Second || d > 2*time.Second {
		return d
	}
	return 0
}

// bare takes the URL out of an error of net/http: a presigned one is a secret.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
