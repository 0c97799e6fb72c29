package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"berth/models"

	"golang.org/x/sync/semaphore"
)

// Defaults of the transfers.
const (
	DefaultParallel = 5
	DefaultMemory   = DefaultParallel * (16 << 20) // bytes
	// MaxParallel bounds what may be asked for: more connections only queue.
	MaxParallel = 64
)

// TokenSource gives the bearer token. refresh is set when the server has just
// refused the last one.
type TokenSource func(ctx context.Context, refresh bool) (string, error)

// sizes are where a client begins to do things otherwise, in bytes. They are fields
// for the tests, which would else have to move gigabytes.
type sizes struct {
	// small files are read and hashed before they are opened, in the hope that they go by
	// one PUT. It is the server's default limit of those.
	small int64
	// span is a range of a parallel read where no part boundaries are to be kept.
	span int64
	// whole is the largest file that is read as one range rather than hashed once more.
	whole int64
}

var defaultSizes = sizes{small: models.DefaultSingleMax, span: 8 << 20, whole: 32 << 20}

// Client talks to one Berth server. It may be used by many goroutines at once.
type Client struct {
	base   *url.URL
	tokens TokenSource
	api    *http.Client
	s3     *http.Client
	retry  RetryPolicy
	agent  string

	sizes    sizes
	memory   int64 // bytes
	budget   *semaphore.Weighted
	parallel int
	buffers  buffers

	mu     sync.Mutex
	learnt map[string]habits // by collection
}

// Option sets something of a Client.
type Option func(*Client)

// WithTokenSource takes the token from a function, asked before each request and
// once more after a 401.
func WithTokenSource(ts TokenSource) Option { return func(c *Client) { c.tokens = ts } }

// WithHTTPClients replaces the clients that talk to the server and to S3; nil keeps
// the default one. Neither may follow redirects of writes.
func WithHTTPClients(api, s3 *http.Client) Option {
	return func(c *Client) {
		if api != nil {
			c.api = api
		}
		if s3 != nil {
			c.s3 = s3
		}
	}
}

// WithRetry replaces DefaultRetry.
func WithRetry(p RetryPolicy) Option { return func(c *Client) { c.retry = p } }

// WithMemory bounds the bytes that all transfers together hold in memory.
func WithMemory(bytes int64) Option { return func(c *Client) { c.memory = bytes } }

// WithParallel says how many parts of one file travel at once.
func WithParallel(n int) Option { return func(c *Client) { c.parallel = n } }

// WithUserAgent names the program.
func WithUserAgent(s string) Option { return func(c *Client) { c.agent = s } }

// New makes a client of the server at baseURL (http or https, no query) with a
// bearer token; the token may be empty if WithTokenSource is given.
func New(baseURL, token string, opts ...Option) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil {
		return nil, errors.New("client: the server's URL is not a URL") // the URL itself may hold a secret
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("client: the server's URL must be http(s)://host[:port][/path], without user, query or fragment")
	}
	c := &Client{
		base:     u,
		tokens:   func(context.Context, bool) (string, error) { return token, nil },
		api:      &http.Client{Transport: apiTransport(), CheckRedirect: noRedirect},
		s3:       &http.Client{Transport: s3Transport(), CheckRedirect: noRedirect},
		retry:    DefaultRetry,
		agent:    "berth-go",
		memory:   DefaultMemory,
		parallel: DefaultParallel,
		sizes:    defaultSizes,
		learnt:   map[string]habits{},
	}
	for _, o := range opts {
		o(c)
	}
	if c.memory < 1 {
		return nil, errors.New("client: the memory must be positive")
	}
	if c.parallel < 1 || c.parallel > MaxParallel {
		return nil, fmt.Errorf("client: parallel must be 1 to %d", MaxParallel)
	}
	c.retry.Attempts = max(c.retry.Attempts, 1)
	c.budget = semaphore.NewWeighted(c.memory)
	return c, nil
}

// BaseURL is the server's.
func (c *Client) BaseURL() string { return c.base.String() }

// CloseIdleConnections closes those that nothing uses now.
func (c *Client) CloseIdleConnections() {
	c.api.CloseIdleConnections()
	c.s3.CloseIdleConnections()
}

// noRedirect: neither the token nor a part may go where an answer points.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
