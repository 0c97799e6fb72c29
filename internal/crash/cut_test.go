package crash_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// moment says on which side of a boundary a process ends.
type moment string

const (
	before moment = "before" // the call never leaves
	after  moment = "after"  // the call is done, its answer is lost
)

// cutter stands at every way out of one process. It numbers the calls that pass, and at
// the chosen one ends the process: the connections are gone, the context with them, and
// nothing that the code still wants passes any more. What it still does in memory nobody
// will ever see, which is what a crash is.
type cutter struct {
	mu       sync.Mutex
	counting bool
	names    []string
	at       int // from 1; 0: nowhere
	when     moment
	dead     bool
	cancel   context.CancelFunc
	sockets  map[net.Conn]struct{}
	// instead does something else at the chosen boundary: a real signal.
	instead func()
	// passed is told of each call that is done.
	passed func(name string)
}

func newCutter(at int, when moment) *cutter {
	return &cutter{at: at, when: when, sockets: map[net.Conn]struct{}{}, cancel: func() {}}
}

// count begins and ends the numbering.
func (c *cutter) count(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counting = on
}

// enter is called before a call leaves. ok is false when it must not.
func (c *cutter) enter(name string) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return 0, false
	}
	if !c.counting {
		return 0, true
	}
	c.names = append(c.names, name)
	n = len(c.names)
	if n == c.at && c.when == before {
		return n, c.end()
	}
	return n, true
}

// leave is called when a call is done. ok is false when its answer must not arrive.
func (c *cutter) leave(n int, name string) (ok bool) {
	if c.passed != nil {
		c.passed(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n != 0 && n == c.at && c.when == after {
		return c.end()
	}
	return !c.dead
}

// end is the crash; it tells whether the process goes on all the same.
func (c *cutter) end() bool {
	if c.instead != nil {
		c.instead()
		return true
	}
	c.die()
	return false
}

func (c *cutter) die() {
	c.dead = true
	c.cancel()
	for s := range c.sockets {
		s.Close()
	}
}

func (c *cutter) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.die()
}

func (c *cutter) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// calls are those that were numbered.
func (c *cutter) calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.names...)
}

// errCut is what the code under test gets for a call that did not pass. It says that it
// was cancelled, so that nobody repeats it.
type errCut struct{}

func (errCut) Error() string       { return "the process has ended" }
func (errCut) CanceledError() bool { return true }

type ctxKey struct{}

type numbered struct {
	n    int
	name string
}

// TraceQueryStart refuses a statement by ending its context: it is never sent.
func (c *cutter) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(d.SQL, "-- ping") {
		return ctx
	}
	c.mu.Lock()
	c.sockets[conn.PgConn().Conn()] = struct{}{}
	c.mu.Unlock()
	name := "SQL " + statement(d.SQL)
	n, ok := c.enter(name)
	if !ok {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return ended
	}
	return context.WithValue(ctx, ctxKey{}, numbered{n, name})
}

// TraceQueryEnd is called when the statement was done and its answer read.
func (c *cutter) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if k, ok := ctx.Value(ctxKey{}).(numbered); ok {
		c.leave(k.n, k.name)
	}
}

// statement names a statement for people: its first words.
func statement(sql string) string {
	f := strings.Fields(sql)
	if len(f) > 3 {
		f = f[:3]
	}
	return strings.Join(f, " ")
}

// network is shared by all processes of the tests: connections are dear, and a call that
// was cut off takes its own with it.
var network = &http.Transport{MaxIdleConns: 64, MaxIdleConnsPerHost: 64}

// RoundTrip is S3's and SQS's way out.
func (c *cutter) RoundTrip(req *http.Request) (*http.Response, error) {
	name := call(req)
	n, ok := c.enter(name)
	if !ok {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errCut{}
	}
	resp, err := network.RoundTrip(req)
	if err != nil {
		c.leave(n, name)
		return nil, err
	}
	// The whole answer, so that the request is certainly done.
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !c.leave(n, name) {
		return nil, errCut{}
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, err
}

// call names an S3 or SQS request.
func call(req *http.Request) string {
	if target := req.Header.Get("X-Amz-Target"); target != "" {
		_, op, _ := strings.Cut(target, ".")
		return "SQS " + op
	}
	q := req.URL.Query()
	for _, k := range []struct{ method, key, op string }{
		{http.MethodPost, "uploads", "CreateMultipartUpload"},
		{http.MethodGet, "uploads", "ListMultipartUploads"},
		{http.MethodGet, "versions", "ListObjectVersions"},
		{http.MethodPost, "delete", "DeleteObjects"},
		{http.MethodPost, "uploadId", "CompleteMultipartUpload"},
		{http.MethodDelete, "uploadId", "AbortMultipartUpload"},
		{http.MethodGet, "uploadId", "ListParts"},
	} {
		if req.Method == k.method && q.Has(k.key) {
			return "S3 " + k.op
		}
	}
	if req.Method == http.MethodHead {
		return "S3 HeadObject"
	}
	return fmt.Sprintf("S3 %s", req.Method)
}
