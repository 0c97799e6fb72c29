package client

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/client/wire"
)

// stallAfter is how long a request may go without a byte moving.
const stallAfter = 90 * time.Second

// piece is what goes to the kernel at once, in bytes: between two of them progress
// is told and the stall clock is set back.
const piece = 256 << 10

// S3Error is an answer of S3 itself. Its text holds no URL.
type S3Error struct {
	Op      string
	Status  int
	Code    string // S3's own, e.g. SlowDown; empty if it gave none
	Message string
}

func (e *S3Error) Error() string {
	s := fmt.Sprintf("%s: S3 answered %d", e.Op, e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

func s3Error(op string, r *http.Response) *S3Error {
	e := &S3Error{Op: op, Status: r.StatusCode}
	raw, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var doc struct {
		Code    string
		Message string
	}
	if xml.Unmarshal(raw, &doc) == nil {
		e.Code = clip(doc.Code, 64)
		e.Message = clip(doc.Message, 300)
		if strings.Contains(e.Message, "://") {
			e.Message = "" // some stores repeat the URL
		}
	}
	return e
}

func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// remedy is what a failed request to S3 calls for.
type remedy int

const (
	giveUp   remedy = iota
	again           // the same bytes once more
	resign          // the URL is refused: a new one
	there           // 412: the object is there already
	vanished        // 404: the session ended, or completed
)

// remedyOf judges a failure. Statuses and codes are S3's; see the S3 API reference,
// error responses.
func remedyOf(err error) remedy {
	var e *S3Error
	if !errors.As(err, &e) {
		return again // the network
	}
	switch {
	case e.Code == "ExpiredToken" || e.Code == "RequestExpired" || e.Code == "TokenRefreshRequired":
		return resign // 400 on S3: the credentials that signed it ended
	case e.Status == http.StatusForbidden:
		return resign
	case e.Status == http.StatusPreconditionFailed:
		return there
	case e.Status == http.StatusNotFound && (e.Code == "NoSuchUpload" || e.Code == ""):
		return vanished
	case e.Status == http.StatusConflict, passing(e.Status):
		return again
	}
	switch e.Code {
	case "BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "IncompleteBody", "RequestTimeout", "RequestTimeTooSkewed":
		return again // damaged or cut off on the way
	}
	return giveUp
}

// partBody is a part in memory on its way out. net/http reads it, or conn takes the
// bytes as they lie.
type partBody struct {
	rest   []byte
	moved  func(n int) // told of bytes that left
	done   chan struct{}
	closed sync.Once
}

func newPartBody(b []byte, moved func(int)) *partBody {
	return &partBody{rest: b, moved: moved, done: make(chan struct{})}
}

func (b *partBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.advance(n)
	return n, nil
}

func (b *partBody) peek(most int64) []byte {
	return b.rest[:min(int64(len(b.rest)), most, piece)]
}

func (b *partBody) advance(n int) {
	b.rest = b.rest[n:]
	b.moved(n)
}

// Close is called when net/http is done with the bytes, which may be after the
// answer: only then may they be overwritten.
func (b *partBody) Close() error {
	b.closed.Do(func() { close(b.done) })
	return nil
}

// putPart sends buf once, exactly as it was signed for. moved is told of bytes as
// they leave; on failure it is told their negative sum. after is S3's Retry-After.
func (c *Client) putPart(ctx context.Context, p wire.SignedPart, buf []byte, moved func(int64)) (after time.Duration, err error) {
	op := fmt.Sprintf("part %d", p.Number)
	if p.Size != int64(len(buf)) {
		return 0, final("%s: the server signed for %d bytes, the part has %d", op, p.Size, len(buf))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallAfter, func() { cancel(errStalled) })
	defer stall.Stop()

	var sent atomic.Int64
	defer func() {
		if err != nil {
			moved(-sent.Load())
		}
	}()
	req, err := http.NewRequestWithContext(ctx, p.Method, p.URL, http.NoBody)
	if err != nil {
		return 0, final("%s: the server gave a bad URL", op)
	}
	signedHeaders(req, p.Headers)
	if len(buf) > 0 {
		body := newPartBody(buf, func(n int) {
			sent.Add(int64(n))
			moved(int64(n))
			stall.Reset(stallAfter)
		})
		req.Body, req.GetBody, req.ContentLength = body, nil, int64(len(buf))
		defer func() {
			cancel(nil) // what net/http still does with the bytes ends here
			<-body.done
		}()
	}
	res, err := c.s3.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
			err = cause
		}
		return 0, fmt.Errorf("%s: %w", op, bare(err))
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
		_ = res.Body.Close()
	}()
	if res.StatusCode != http.StatusOK {
		return retryAfter(res.Header, time.Now()), s3Error(op, res)
	}
	return 0, nil
}

var errStalled = fmt.Errorf("no byte moved for %v", stallAfter)

// signedHeaders sets what was signed, and nothing that was not.
func signedHeaders(req *http.Request, headers map[string]string) {
	for k, v := range headers {
		switch http.CanonicalHeaderKey(k) {
		case "Host":
			req.Host = v
		case "Content-Length":
		default:
			req.Header.Set(k, v)
		}
	}
}
