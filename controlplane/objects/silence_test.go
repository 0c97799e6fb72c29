package objects

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/models"
)

// silentAfter is a server that answers each request with a text, and then keeps the
// connection open and says nothing more.
func silentAfter(t *testing.T, text string) *Store {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				// To its end: the client gives up a request that is answered before it was sent.
				if _, err := io.Copy(io.Discard, r.Body); err == nil {
					_, _ = io.WriteString(c, text)
				}
			}()
		}
	}()
	cfg := plainConfig()
	cfg.Endpoint, cfg.PathStyle, cfg.Silence = "http://"+l.Addr().String(), true, 50*time.Millisecond
	return mustNew(t, cfg)
}

// A store that takes the connection and goes silent, wherever in its answer, costs a
// bounded time. The test's own limit is what a call without the bound would run into.
func TestSilentStore(t *testing.T) {
	t.Parallel()
	const xml = `<?xml version="1.0" encoding="UTF-8"?><ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`
	long := func(more string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: 100000\r\n\r\n%s", more)
	}
	for name, text := range map[string]string{
		"no answer": "", "half a header": "HTTP/1.1 200 OK\r\nContent-Le", "no body": long(""), "half a body": long(xml + "<Version><Key>a"),
		"half a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + xml,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := silentAfter(t, text)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			check := func(op string, err error) {
				t.Helper()
				if ctx.Err() != nil {
					t.Fatalf("%s: held until the caller gave up", op)
				}
				if models.ObjectKind(err) != models.ObjectUnavailable || !strings.Contains(err.Error(), "silent") || strings.Contains(err.Error(), "://") {
					t.Errorf("%s: %v", op, err)
				}
			}
			for _, err := range s.ListVersions(ctx, "k") {
				check("list", err)
			}
			_, err := s.DeleteVersions(ctx, []models.VersionRef{{Key: "k", VersionID: "v"}})
			check("delete", err)
			_, err = s.CompleteMultipart(ctx, models.CompleteSpec{Key: "k", S3UploadID: "u", Size: 1, Parts: []models.Part{{Number: 1, Size: 1, ETag: "e"}}})
			check("complete", err)
			if strings.HasPrefix(text, "HTTP/1.1 200 OK\r\nContent-Type") {
				_, err = s.Peek(ctx, "k", "v", 10<<10)
				check("peek", err)
			}
		})
	}
}

// What counts is the silence, not the whole: a store that says something in time is heard
// to its end, and the pauses of our own side are not the store's.
func TestSlowIsNotSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		call := func(pause time.Duration) (*http.Response, error) {
			next := roundTrip(func(r *http.Request) (*http.Response, error) {
				// The request is taken as slowly, then the header comes.
				for {
					if _, err := r.Body.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
						break
					}
					if err := idle(r.Context(), pause); err != nil {
						return nil, err
					}
				}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(&dripping{ctx: r.Context(), pause: pause, left: 10})}, nil
			})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x", io.NopCloser(strings.NewReader("hello")))
			if err != nil {
				t.Fatal(err)
			}
			return attentive{next: next, most: time.Minute}.RoundTrip(r)
		}
		resp, err := call(50 * time.Second)
		if err != nil {
			t.Fatalf("slow: %v", err)
		}
		time.Sleep(time.Hour) // our side does something else
		if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 10 {
			t.Errorf("slow: %d bytes, error %v", len(b), err)
		}
		_ = resp.Body.Close()
		if _, err := call(61 * time.Second); !errors.Is(err, errSilent) {
			t.Errorf("silent: %v", err)
		}
		// Its caller goes away: that is not the store's silence.
		ctx, stop := context.WithCancel(t.Context())
		stop()
		next := roundTrip(func(r *http.Request) (*http.Response, error) { return nil, idle(r.Context(), time.Second) })
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://x", nil)
		if _, err := (attentive{next: next, most: time.Minute}).RoundTrip(r); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// dripping gives a byte at a time.
type dripping struct {
	ctx   context.Context
	pause time.Duration
	left  int
}

func (d *dripping) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	if err := idle(d.ctx, d.pause); err != nil {
		return 0, err
	}
	d.left--
	p[0] = 'x'
	return 1, nil
}

func idle(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
