package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"berth/tracing"
)

// Bounds of a call that we make.
const (
	maxAnswer      = 64 << 10         // bytes of an answer that are read
	calloutTimeout = 30 * time.Second // where nothing else is configured
)

// Caller posts signed webhooks. It follows no redirect, and reaches no loopback, private
// or link-local address unless it is allowed to: a configured URL whose name suddenly
// resolves to the inside must not become a way in. The address is checked after DNS, on
// the connection that is about to be made.
type Caller struct {
	client  *http.Client
	now     func() time.Time
	timeout time.Duration // of a call that has none of its own
}

// NewCaller makes a Caller. inside allows addresses that are not public.
func NewCaller(inside bool, now func() time.Time) *Caller {
	d := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		if inside {
			return nil
		}
		return public(address)
	}}
	if now == nil {
		now = time.Now
	}
	return &Caller{now: now, timeout: calloutTimeout, client: &http.Client{
		Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 32 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

var errInside = errors.New("the address is not public")

// public refuses an address of the inside.
func public(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return errInside
	}
	a := ap.Addr().Unmap()
	for _, p := range reserved {
		if p.Contains(a) {
			return errInside
		}
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() {
		return errInside
	}
	return nil
}

// reserved are ranges of the IANA special-purpose registries that netip does not name.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
}

// post sends body, signed with secret ("" signs nothing), and returns the status and the
// bounded answer. It takes timeout at most; 0 is the Caller's. Its errors hold no URL: that
// may carry a token of the receiver's.
func (c *Caller) post(ctx context.Context, url, secret, id string, body []byte, timeout time.Duration) (int, []byte, error) {
	if timeout <= 0 {
		timeout = c.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.New("webhook: the URL cannot be called")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "berth")
	if p := tracing.Traceparent(ctx); p != "" {
		req.Header.Set("Traceparent", p)
	}
	if secret != "" {
		if err := sign(req.Header, secret, id, c.now(), body); err != nil {
			return 0, nil, err
		}
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("webhook: %w", bare(err))
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is wanted
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, fmt.Errorf("webhook: answer: %w", bare(err))
	}
	if len(answer) > maxAnswer {
		return 0, nil, errors.New("webhook: the answer is too long")
	}
	return resp.StatusCode, answer, nil
}

// bare takes the URL off an error of net/http.
func bare(err error) error {
	var u interface{ Unwrap() error }
	if errors.As(err, &u) {
		if inner := u.Unwrap(); inner != nil {
			return inner
		}
	}
	return err
}
