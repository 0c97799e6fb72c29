package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/client/wire"
	"berth/models"
)

const mib = 1 << 20

// unit stands for a MiB where only the proportions matter.
const unit = 16 << 10

// counted counts how often each byte is read.
type counted struct {
	io.ReaderAt
	bytes atomic.Int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.ReaderAt.ReadAt(p, off)
}

// TestPut: every size goes by one loop, arrives whole, and is read once.
func TestPut(t *testing.T) {
	t.Parallel()
	for _, a := range models.Algorithms {
		for _, size := range []int{0, 1, 64 << 10, unit, unit + 1, 5*unit + 1, 23 * unit} {
			t.Run(fmt.Sprintf("%s/%d", a, size), func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.algorithm = a
				c := f.client()
				for range 2 { // the second time, the collection's habits are known
					data := random(t, size)
					src := &counted{ReaderAt: bytes.NewReader(data)}
					var moved atomic.Int64
					res, err := c.Put(t.Context(), src, int64(size), PutOptions{Collection: "c", Name: "n", Moved: func(n int64) { moved.Add(n) }})
					if err != nil {
						t.Fatal(err)
					}
					if res.File == nil || res.File.State != "active" || res.Sent != int64(size) || moved.Load() != int64(size) {
						t.Errorf("result %+v, moved %d", res, moved.Load())
					}
					f.mu.Lock()
					got := f.uploads[res.Upload.ID].content()
					f.mu.Unlock()
					if !bytes.Equal(got, data) {
						t.Error("other bytes arrived")
					}
				}
			})
		}
	}
}

// TestPutReadsOnce: but for the one guess that a client makes of a collection that it
// does not know, no byte is read twice, whatever must be sent again.
func TestPutReadsOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = firstOfEach("put", func(w http.ResponseWriter, r *http.Request) { failS3(w, 503, "SlowDown", "") })
	c := f.client()
	data := random(t, 40*unit)
	src := &counted{ReaderAt: bytes.NewReader(data)}
	res, err := c.Put(t.Context(), src, int64(len(data)), PutOptions{Collection: "c", Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if src.bytes.Load() != int64(len(data)) {
		t.Errorf("read %d bytes of %d", src.bytes.Load(), len(data))
	}
	if f.count("put") <= 8 || !bytes.Equal(f.uploads[res.Upload.ID].content(), data) {
		t.Error("the fault was not met, or the content is not right")
	}
}

// TestPutSmallTakesThreeRequests: open with the checksum, PUT, complete.
func TestPutSmallTakesThreeRequests(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	if _, err := f.client().Put(t.Context(), bytes.NewReader([]byte("hello")), 5, PutOptions{Collection: "c", Name: "n"}); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, s := range f.seen {
		kinds = append(kinds, s.kind)
	}
	if !slices.Equal(kinds, []string{"open", "put", "complete"}) {
		t.Errorf("requests: %v", kinds)
	}
}

// TestPutHashesWhileItSigns: a far server's answer is not waited for with idle hands.
func TestPutHashesWhileItSigns(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.partSize = 5 * mib
	data := &furthest{Reader: bytes.NewReader(random(t, 40*mib)), at: make(chan struct{})}
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "sign" && n == 1 {
			select {
			case <-data.at:
			case <-time.After(30 * time.Second):
				t.Error("the other parts are not read while one is signed")
			}
		}
		return false
	}
	c := f.client(WithParallel(8), WithMemory(64*mib))
	if _, err := c.Put(t.Context(), data, data.Size(), PutOptions{Collection: "c", Name: "n"}); err != nil {
		t.Fatal(err)
	}
}

// furthest tells when its end was read.
type furthest struct {
	*bytes.Reader
	once sync.Once
	at   chan struct{}
}

func (f *furthest) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) >= f.Size() {
		f.once.Do(func() { close(f.at) })
	}
	return f.Reader.ReadAt(p, off)
}

// TestSignerBatches: parts that become ready while others are signed share a request.
func TestSignerBatches(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.partSize = 5 * mib
	c := f.client()
	up, err := c.Open(t.Context(), wire.OpenRequest{Collection: "c", Name: "n", Size: 40 * mib})
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{c: c, ctx: t.Context(), upload: up.ID}
	asked, answer := make(chan struct{}), make(chan struct{})
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "sign" && n == 1 {
			close(asked)
			<-answer
		}
		return false
	}
	var all sync.WaitGroup
	sign := func(n int) {
		all.Go(func() {
			if u, err := s.sign(t.Context(), n, ""); err != nil || u.part.Number != n {
				t.Errorf("part %d: %v, %v", n, u, err)
			}
		})
	}
	sign(1)
	<-asked
	for n := 2; n <= 8; n++ {
		sign(n)
	}
	waiting := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queue)
	}
	for deadline := time.Now().Add(30 * time.Second); waiting() < 7 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	close(answer)
	all.Wait()
	if n := f.count("sign"); n != 2 {
		t.Errorf("%d requests to sign 8 parts", n)
	}
}

// TestPutMemory: transfers of one client never hold more than its budget.
func TestPutMemory(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.partSize = 5 * mib
	var now, peak atomic.Int64
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind != "put" {
			return false
		}
		v := now.Add(r.ContentLength)
		defer now.Add(-r.ContentLength)
		for p := peak.Load(); v > p && !peak.CompareAndSwap(p, v); p = peak.Load() {
		}
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.put(w, r, body)
		return true
	}
	c := f.client(WithParallel(8), WithMemory(12*mib))
	done := make(chan error, 3)
	for range 3 {
		go func() {
			data := random(t, 30*mib)
			_, err := c.Put(t.Context(), bytes.NewReader(data), int64(len(data)), PutOptions{Collection: "c", Name: "n"})
			done <- err
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if p := peak.Load(); p > 12*mib || p < 6*mib {
		t.Errorf("%d MiB were on their way at once, with 12 MiB to hold them", p/mib)
	}
}

// faultOnce makes the n-th request of a kind fail.
func faultOnce(kind string, n int, do func(http.ResponseWriter, *http.Request)) func(string, int, http.ResponseWriter, *http.Request) bool {
	return func(k string, i int, w http.ResponseWriter, r *http.Request) bool {
		if k != kind || i != n {
			return false
		}
		do(w, r)
		return true
	}
}

// firstOfEach makes the first request for each part or range fail.
func firstOfEach(kind string, do func(http.ResponseWriter, *http.Request)) func(string, int, http.ResponseWriter, *http.Request) bool {
	var seen sync.Map
	return func(k string, _ int, w http.ResponseWriter, r *http.Request) bool {
		if k != kind {
			return false
		}
		if _, again := seen.LoadOrStore(r.URL.Path+r.Header.Get("Range"), true); again {
			return false
		}
		do(w, r)
		return true
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// TestPutFaults: each fault that a later request can mend is mended, at every place.
func TestPutFaults(t *testing.T) {
	t.Parallel()
	s3 := func(status int, code string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			failS3(w, status, code, "m")
		}
	}
	api := func(status int, code models.Code, more ...any) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { fail(w, status, code, more...) }
	}
	expire := func(w http.ResponseWriter, r *http.Request) { // and it stays expired
		_, _ = io.Copy(io.Discard, r.Body)
		f := r.Context().Value(http.ServerContextKey).(*http.Server).Handler.(*fakeHandler).f
		f.mu.Lock()
		f.expired[r.URL.Query().Get("X-Amz-Signature")] = true
		f.mu.Unlock()
		failS3(w, 403, "AccessDenied", "Request has expired")
	}
	early := func(w http.ResponseWriter, r *http.Request) { // answers without reading, and hangs up
		w.Header().Set("Connection", "close")
		failS3(w, 503, "SlowDown", "")
	}
	cases := []struct {
		name, kind string
		n          int
		do         func(http.ResponseWriter, *http.Request)
	}{
		{"open 503", "open", 1, api(503, "STORE_UNAVAILABLE")},
		{"open 500 of a proxy", "open", 1, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", 502) }},
		{"open hangs up", "open", 1, hangUp},
		{"open in progress", "open", 1, api(409, "IDEMPOTENCY_IN_PROGRESS")},
		{"sign 429", "sign", 1, api(429, "RATE_LIMITED")},
		{"sign busy", "sign", 1, api(409, "BUSY")},
		{"sign hangs up", "sign", 1, hangUp},
		{"put 503", "put", 2, s3(503, "SlowDown")},
		{"put 500", "put", 1, s3(500, "InternalError")},
		{"put 429", "put", 1, s3(429, "TooManyRequests")},
		{"put 409", "put", 1, s3(409, "ConditionalRequestConflict")},
		{"put bad digest", "put", 1, s3(400, "BadDigest")},
		{"put MinIO's bad digest", "put", 1, s3(400, "XAmzContentChecksumMismatch")},
		{"put timeout", "put", 1, s3(400, "RequestTimeout")},
		{"put expired", "put", 2, expire},
		{"put expired token", "put", 2, s3(400, "ExpiredToken")},
		{"put hangs up", "put", 2, hangUp},
		{"put answers early", "put", 1, early},
		{"complete 503", "complete", 1, api(503, "STORE_UNAVAILABLE")},
		{"complete hangs up", "complete", 1, hangUp},
		{"complete busy", "complete", 1, api(409, "BUSY")},
		{"complete misses a part", "complete", 1, api(409, "MISSING_PARTS", "parts", []int{2})},
		{"complete misses ranges", "complete", 1, api(409, "MISSING_PARTS", "parts", [][2]int{{1, 2}})},
		{"complete names nothing", "complete", 1, api(409, "SIZE_MISMATCH", "parts", []int{2, 3})},
		{"complete names some of many", "complete", 1, api(409, "MISSING_PARTS", "parts", []int{1}, "count", 2)},
		{"complete finds corruption", "complete", 1, api(409, "PART_CORRUPT", "parts", []int{1, 3})},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			met := make(chan struct{})
			f.fault = faultOnce(tc.kind, tc.n, func(w http.ResponseWriter, r *http.Request) { close(met); tc.do(w, r) })
			data := random(t, 12*unit)
			var moved atomic.Int64
			res, err := f.client().Put(t.Context(), bytes.NewReader(data), int64(len(data)),
				PutOptions{Collection: "c", Name: "n", Moved: func(n int64) { moved.Add(n) }})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-met:
			default:
				t.Error("the fault was not met")
			}
			if res.File.State != "active" || !bytes.Equal(f.only().content(), data) {
				t.Error("not active, or other bytes")
			}
			if moved.Load() != int64(len(data)) {
				t.Errorf("progress ends at %d of %d", moved.Load(), len(data))
			}
		})
	}
}

// TestPutFinal: what cannot be mended ends at once, or after a bounded number of
// attempts, with the code; and nothing is left open.
func TestPutFinal(t *testing.T) {
	t.Parallel()
	always := func(kind string, do func(http.ResponseWriter)) func(string, int, http.ResponseWriter, *http.Request) bool {
		return func(k string, _ int, w http.ResponseWriter, r *http.Request) bool {
			if k != kind {
				return false
			}
			_, _ = io.Copy(io.Discard, r.Body)
			do(w)
			return true
		}
	}
	cases := []struct {
		name  string
		fault func(string, int, http.ResponseWriter, *http.Request) bool
		kind  string
		most  int
		code  models.Code
		s3    string
	}{
		{"quota", always("open", func(w http.ResponseWriter) { fail(w, 409, "QUOTA_EXCEEDED") }), "open", 1, "QUOTA_EXCEEDED", ""},
		{"forbidden", always("open", func(w http.ResponseWriter) { fail(w, 403, "FORBIDDEN") }), "open", 1, "FORBIDDEN", ""},
		{"bad name", always("open", func(w http.ResponseWriter) { fail(w, 400, "INVALID_REQUEST", "field", "name") }), "open", 1, "INVALID_REQUEST", ""},
		{"server down", always("open", func(w http.ResponseWriter) { fail(w, 500, "INTERNAL") }), "open", 4, "INTERNAL", ""},
		{"expired session", always("sign", func(w http.ResponseWriter) { fail(w, 410, "SESSION_EXPIRED") }), "sign", 3, "SESSION_EXPIRED", ""},
		{"refused by S3", always("put", func(w http.ResponseWriter) { failS3(w, 403, "AccessDenied", "no") }), "put", 3 * 2, "", "AccessDenied"},
		{"too large for S3", always("put", func(w http.ResponseWriter) { failS3(w, 400, "EntityTooLarge", "no") }), "put", 3, "", "EntityTooLarge"},
		{"S3 down", always("put", func(w http.ResponseWriter) { failS3(w, 503, "SlowDown", "no") }), "put", 3 * 4, "", "SlowDown"},
		{"always missing", always("complete", func(w http.ResponseWriter) { fail(w, 409, "MISSING_PARTS", "parts", []int{1}) }), "complete", mendRounds, "MISSING_PARTS", ""},
		{"other checksum", always("complete", func(w http.ResponseWriter) { fail(w, 409, "CHECKSUM_MISMATCH") }), "complete", 1, "CHECKSUM_MISMATCH", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.fault = tc.fault
			data := random(t, 12*unit)
			_, err := f.client().Put(t.Context(), bytes.NewReader(data), int64(len(data)), PutOptions{Collection: "c", Name: "n"})
			var s3err *S3Error
			if Code(err) != tc.code || (tc.s3 != "" && (!errors.As(err, &s3err) || s3err.Code != tc.s3)) {
				t.Errorf("error %v", err)
			}
			if n := f.count(tc.kind); n > tc.most {
				t.Errorf("%d requests %s, want at most %d", n, tc.kind, tc.most)
			}
			if err == nil || strings.Contains(err.Error(), "Signature=") || strings.Contains(err.Error(), f.URL) {
				t.Errorf("an error must not hold a URL: %v", err)
			}
			for _, u := range f.uploads {
				if u.State != "aborted" {
					t.Errorf("an upload was left %s", u.State)
				}
			}
		})
	}
}

// TestPutExpiry: a URL that S3 calls expired costs one signature, as often as it
// happens; the second refusal of a fresh one stands.
func TestPutExpiry(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.life = 200 * time.Millisecond
	data := random(t, 30*unit)
	slow := 0
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "put" && n <= 3 {
			_, _ = io.Copy(io.Discard, r.Body)
			slow++
			time.Sleep(f.life) // it arrives when it has expired
			failS3(w, 403, "AccessDenied", "Request has expired")
			return true
		}
		return false
	}
	c := f.client(WithParallel(1))
	if _, err := c.Put(t.Context(), bytes.NewReader(data), int64(len(data)), PutOptions{Collection: "c", Name: "n"}); err != nil {
		t.Fatal(err)
	}
	if slow != 3 || !bytes.Equal(f.only().content(), data) {
		t.Error("the fault was not met, or other bytes")
	}
}

// TestPutAlreadyThere: an answer that was lost on the way back; the repeated PUT meets
// the object, and completing finds it right.
func TestPutAlreadyThere(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind != "put" || n != 1 {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.only0().parts[1] = body
		f.mu.Unlock()
		hangUp(w, r)
		return true
	}
	res, err := f.client().Put(t.Context(), strings.NewReader("hello"), 5, PutOptions{Collection: "c", Name: "n"})
	if err != nil || res.File.State != "active" || f.count("put") != 2 {
		t.Errorf("%v, %d PUTs", err, f.count("put"))
	}
}

func (f *fake) only0() *fakeUpload {
	for _, u := range f.uploads {
		return u
	}
	return nil
}

// TestIdempotencyKeys: one per logical operation, kept across its retries.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if (kind == "open" || kind == "complete" || kind == "abort") && n < 3 {
			fail(w, 503, "STORE_UNAVAILABLE")
			return true
		}
		return false
	}
	c := f.client()
	res, err := c.Put(t.Context(), strings.NewReader("hello"), 5, PutOptions{Collection: "c", Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Abort(t.Context(), res.Upload.ID); err != nil {
		t.Fatal(err)
	}
	byKind := map[string]map[string]int{}
	all := map[string]bool{}
	for _, s := range f.seen {
		if byKind[s.kind] == nil {
			byKind[s.kind] = map[string]int{}
		}
		byKind[s.kind][s.key]++
		all[s.key] = true
	}
	for _, kind := range []string{"open", "complete", "abort"} {
		unkeyed := 0
		if kind == "complete" {
			unkeyed = 3 // what the upload came to is its answer
		}
		if len(byKind[kind]) != 1 || byKind[kind][""] != unkeyed || f.count(kind) != 3 {
			t.Errorf("%s: keys %v in %d requests", kind, byKind[kind], f.count(kind))
		}
	}
	if len(all) != 3 { // two, and "" of the others
		t.Errorf("keys are shared: %v", all)
	}
}

// TestToken: a refused token is asked for anew once, and then the refusal stands.
func TestToken(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(_ string, _ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer good" {
			fail(w, 401, "UNAUTHENTICATED")
			return true
		}
		return false
	}
	var asked []bool
	c := f.client(WithTokenSource(func(_ context.Context, refresh bool) (string, error) {
		asked = append(asked, refresh)
		if refresh {
			return "good", nil
		}
		return "old", nil
	}))
	if _, err := c.Open(t.Context(), wire.OpenRequest{Collection: "c", Name: "n", Size: 1}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, []bool{false, true}) {
		t.Errorf("asked %v", asked)
	}
	n := f.count("open")
	_, err := f.client(WithTokenSource(func(context.Context, bool) (string, error) { return "secret-bad", nil })).
		Open(t.Context(), wire.OpenRequest{Collection: "c", Name: "n", Size: 1})
	if Code(err) != models.CodeUnauthenticated || f.count("open")-n != 2 {
		t.Errorf("%v after %d requests", err, f.count("open")-n)
	}
	if strings.Contains(fmt.Sprint(err), "secret-bad") {
		t.Error("the token is in the error")
	}
}

// TestRetryAfter: what the server asks for is the least.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = faultOnce("upload", 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		fail(w, 429, "RATE_LIMITED")
	})
	c := f.client()
	up, err := c.Open(t.Context(), wire.OpenRequest{Collection: "c", Name: "n", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if _, err := c.Upload(t.Context(), up.ID); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d < time.Second {
		t.Errorf("waited %v", d)
	}
}

func TestWaitIsJitteredAndCapped(t *testing.T) {
	t.Parallel()
	p := RetryPolicy{Attempts: 8, Base: 100 * time.Millisecond, Cap: time.Second}
	different := map[time.Duration]bool{}
	for n := 1; n < 100; n++ {
		d := p.wait(n, 0)
		if d < 0 || d > time.Second || (n == 1 && d > 100*time.Millisecond) {
			t.Fatalf("wait %d: %v", n, d)
		}
		different[d] = true
	}
	if len(different) < 50 {
		t.Error("no jitter")
	}
	if d := p.wait(1, 5*time.Second); d != 5*time.Second {
		t.Errorf("Retry-After is not the least: %v", d)
	}
	if d := p.wait(1, time.Hour); d != maxRetryAfter {
		t.Errorf("a server can make us wait %v", d)
	}
}

// TestPutStream: a stream goes by the same loop; one that is shorter or longer than
// was said is refused, and its upload aborted.
func TestPutStream(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 5, unit, 17 * unit, 3 * unit} {
		f := newFake(t)
		data := random(t, size)
		res, err := f.client().PutReader(t.Context(), io.MultiReader(bytes.NewReader(data)), int64(size), PutOptions{Collection: "c", Name: "n"})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if res.File.State != "active" || !bytes.Equal(f.uploads[res.Upload.ID].content(), data) {
			t.Errorf("%d bytes: other bytes", size)
		}
		for _, wrong := range []int64{int64(size) - 1, int64(size) + 1} {
			if wrong < 0 {
				continue
			}
			f := newFake(t)
			if _, err := f.client().PutReader(t.Context(), io.MultiReader(bytes.NewReader(data)), wrong, PutOptions{Collection: "c", Name: "n"}); !errors.Is(err, ErrChanged) {
				t.Errorf("%d bytes declared as %d: %v", size, wrong, err)
			}
			for _, u := range f.uploads {
				if u.State != "aborted" {
					t.Errorf("%d bytes declared as %d: left %s", size, wrong, u.State)
				}
			}
		}
	}
}

// TestPutWaits: a file that is still processed is waited for, up to a limit.
func TestPutWaits(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.steps = 3
	res, err := f.client().Put(t.Context(), strings.NewReader("hello"), 5, PutOptions{Collection: "c", Name: "n"})
	if err != nil || res.File.State != "active" || f.count("file") < 3 {
		t.Errorf("%v after %d looks", err, f.count("file"))
	}
	f.mu.Lock()
	f.steps = 1 << 30
	f.mu.Unlock()
	_, err = f.client().Put(t.Context(), strings.NewReader("hello"), 5, PutOptions{Collection: "c", Name: "n", Wait: 100 * time.Millisecond})
	if !errors.Is(err, ErrNotActive) {
		t.Errorf("a limit of 100 ms: %v", err)
	}
	f.mu.Lock()
	f.steps = 1 << 30
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "file" {
			answer(w, 200, wire.File{ID: "fil_x", State: "blocked", Reason: &wire.Reason{Code: "CHECK", Message: "no"}})
			return true
		}
		return false
	}
	f.mu.Unlock()
	_, err = f.client().Put(t.Context(), strings.NewReader("hello"), 5, PutOptions{Collection: "c", Name: "n"})
	var state *StateError
	if !errors.As(err, &state) || state.State != "blocked" {
		t.Errorf("a blocked file: %v", err)
	}
}

// halfPut sends a file until part n is refused for good, and returns where.
func halfPut(t *testing.T, f *fake, path, dir string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "put" && n == 4 {
			cancel()
			hangUp(w, r)
			return true
		}
		return false
	}
	_, err := f.client(WithParallel(1)).PutFile(ctx, path, PutOptions{Collection: "c", StateDir: dir})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	f.mu.Lock()
	f.fault, f.counts = nil, map[string]int{}
	f.mu.Unlock()
	if u := f.only(); u.State != "uploading" || len(u.parts) != 3 {
		t.Fatalf("%s with %d parts after an interrupt", u.State, len(u.parts))
	}
}

func bigFile(t *testing.T, size int) (path, dir string, data []byte) {
	t.Helper()
	path, dir, data = filepath.Join(t.TempDir(), "big.bin"), t.TempDir(), random(t, size)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, dir, data
}

func states(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestResume: a later run sends what S3 lacks, and nothing else.
func TestResume(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	path, dir, data := bigFile(t, 33*unit)
	halfPut(t, f, path, dir)
	list := states(t, dir)
	if len(list) != 1 {
		t.Fatalf("state: %v", list)
	}
	if fi, err := os.Stat(list[0]); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the state's mode: %v, %v", fi.Mode(), err)
	}
	var held int64
	res, err := f.client().PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir, Opened: func(_ wire.Upload, n int64) { held = n }})
	if err != nil {
		t.Fatal(err)
	}
	if !res.Resumed || res.Held != 15*unit || held != res.Held || res.Sent != 18*unit || f.count("put") != 4 || f.count("open") != 0 {
		t.Errorf("resumed %v, held %d, sent %d, %d PUTs, %d opens", res.Resumed, res.Held, res.Sent, f.count("put"), f.count("open"))
	}
	if !bytes.Equal(f.only().content(), data) {
		t.Error("other bytes")
	}
	if len(states(t, dir)) != 0 {
		t.Error("the state stays")
	}
}

// TestResumeSendsWhatIsOdd: a part that S3 holds in another size is no part of ours.
func TestResumeSendsWhatIsOdd(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	path, dir, data := bigFile(t, 33*unit)
	halfPut(t, f, path, dir)
	u := f.only()
	u.parts[2] = u.parts[2][:100]
	res, err := f.client().PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if res.Held != 10*unit || f.count("put") != 5 || !bytes.Equal(u.content(), data) {
		t.Errorf("held %d, %d PUTs", res.Held, f.count("put"))
	}
}

// TestResumeChanged: a file that is not the one that was begun is refused, and the
// earlier work kept; --restart gives that up and begins anew.
func TestResumeChanged(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	path, dir, data := bigFile(t, 33*unit)
	halfPut(t, f, path, dir)
	data[20*unit] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := f.client().PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir})
	if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "restart") {
		t.Errorf("changed: %v", err)
	}
	if u := f.only(); u.State != "uploading" || f.count("put") != 0 {
		t.Errorf("a refusal changed something: %s, %d PUTs", u.State, f.count("put"))
	}
	first := f.only().ID
	res, err := f.client().PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir, Restart: true})
	if err != nil {
		t.Fatal(err)
	}
	if f.uploads[first].State != "aborted" || res.Upload.ID == first || !bytes.Equal(f.uploads[res.Upload.ID].content(), data) {
		t.Error("not begun anew")
	}
}

// TestResumeReplaced: the same size and time in another inode is looked at: equal bytes
// go on, others are refused, be they in a part that S3 has or in one that was only signed for.
func TestResumeReplaced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		damage int // offset; -1: none
	}{{"equal", -1}, {"in a sent part", 2 * unit}, {"in a signed part", 16 * unit}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			path, dir, data := bigFile(t, 33*unit)
			halfPut(t, f, path, dir)
			fi, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if tc.damage >= 0 {
				data[tc.damage] ^= 1
			}
			other := path + ".new"
			if err := errors.Join(os.WriteFile(other, data, 0o600), os.Chtimes(other, fi.ModTime(), fi.ModTime()), os.Rename(other, path)); err != nil {
				t.Fatal(err)
			}
			_, err = f.client().PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir})
			if tc.damage < 0 {
				if err != nil || f.count("put") != 4 {
					t.Errorf("%v, %d PUTs", err, f.count("put"))
				}
			} else if !errors.Is(err, ErrChanged) || f.only().State != "uploading" {
				t.Errorf("%v, upload %s", err, f.only().State)
			}
		})
	}
}

// TestResumeGone: a session that ended meanwhile is begun anew, one that was finished
// by the server is not sent again.
func TestResumeGone(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"expired", "aborted", "committed", "unknown"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			path, dir, data := bigFile(t, 33*unit)
			halfPut(t, f, path, dir)
			first := f.only()
			switch state {
			case "unknown":
				delete(f.uploads, first.ID)
			case "committed":
				first.File = &wire.File{ID: first.FileID, State: "active"}
				fallthrough
			default:
				first.State = state
			}
			res, err := f.client().PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if anew := res.Upload.ID != first.ID; anew != (state != "committed") {
				t.Errorf("begun anew: %v", anew)
			}
			if state != "committed" && !bytes.Equal(f.uploads[res.Upload.ID].content(), data) {
				t.Error("other bytes")
			}
			if state == "committed" && f.count("put") != 0 {
				t.Error("sent again")
			}
		})
	}
}

// TestOpenIsRepeatedUnderItsKey: killed between the server's answer to open and its
// being written down, a later run gets the same upload.
func TestOpenIsRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	path, dir, data := bigFile(t, 18*unit)
	ctx, cancel := context.WithCancel(t.Context())
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "open" && n == 1 {
			body, _ := io.ReadAll(r.Body)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.open(discard{}, r, body)
			cancel() // the answer never arrives
			hangUp(w, r)
			return true
		}
		return false
	}
	if _, err := f.client().PutFile(ctx, path, PutOptions{Collection: "c", StateDir: dir}); err == nil {
		t.Fatal("no error")
	}
	f.mu.Lock()
	f.fault = nil
	f.mu.Unlock()
	if _, err := f.client().PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir}); err != nil {
		t.Fatal(err)
	}
	if u := f.only(); !bytes.Equal(u.content(), data) {
		t.Error("other bytes")
	}
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// TestChangedWhileSent: a file that changes under way is never completed, and its
// upload is given up.
func TestChangedWhileSent(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"appended", "rewritten", "cut"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			path, dir, data := bigFile(t, 33*unit)
			f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
				if kind != "put" || n != 2 {
					return false
				}
				var err error
				switch how {
				case "appended":
					err = os.WriteFile(path, append(data, 'x'), 0o600)
				case "rewritten":
					err = errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, time.Now(), time.Now().Add(time.Second)))
				case "cut":
					err = os.Truncate(path, 10*unit)
				}
				if err != nil {
					t.Error(err)
				}
				return false
			}
			_, err := f.client(WithParallel(1)).PutFile(t.Context(), path, PutOptions{Collection: "c", StateDir: dir})
			if !errors.Is(err, ErrChanged) {
				t.Errorf("error: %v", err)
			}
			if u := f.only(); u.State != "aborted" || f.count("complete") != 0 {
				t.Errorf("upload %s, %d completes", u.State, f.count("complete"))
			}
			if len(states(t, dir)) != 0 {
				t.Error("the state stays")
			}
		})
	}
}

// TestCancelAborts only if asked.
func TestCancelAborts(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		f := newFake(t)
		path, dir, _ := bigFile(t, 18*unit)
		ctx, cancel := context.WithCancel(t.Context())
		f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
			if kind == "put" && n == 2 {
				cancel()
			}
			return false
		}
		_, err := f.client(WithParallel(1)).PutFile(ctx, path, PutOptions{Collection: "c", StateDir: dir, AbortOnCancel: asked})
		if err == nil {
			t.Fatal("no error")
		}
		if aborted := f.only().State == "aborted"; aborted != asked {
			t.Errorf("abort asked for: %v, done: %v", asked, aborted)
		}
		if kept := len(states(t, dir)) == 1; kept == asked {
			t.Errorf("abort asked for: %v, state kept: %v (%v): %v", asked, kept, states(t, dir), err)
		}
	}
}

// TestDeclare: the checksum of the whole is stated before anything is sent.
func TestDeclare(t *testing.T) {
	t.Parallel()
	for _, a := range models.Algorithms {
		f := newFake(t)
		f.algorithm, f.partSize, f.single = a, models.DefaultPartSize, models.DefaultSingleMax
		data := random(t, 40*mib)
		if _, err := f.client().Put(t.Context(), bytes.NewReader(data), int64(len(data)),
			PutOptions{Collection: "c", Name: "n", Algorithm: a, Declare: true}); err != nil {
			t.Fatal(err)
		}
		if u := f.only(); u.Checksum.Value == "" || u.Checksum.Value != u.File.Checksum.Value {
			t.Errorf("%s: declared %q, attested %q", a, u.Checksum.Value, u.File.Checksum.Value)
		}
	}
}

// restless gives other bytes each time it is read.
type restless struct {
	io.ReaderAt
	reads atomic.Int64
}

func (r *restless) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	p[0] += byte(r.reads.Add(1))
	return n, err
}

// TestOtherBytesTheSecondTime: what is read again must be what was hashed before; nobody is
// asked to sign for anything else.
func TestOtherBytesTheSecondTime(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = faultOnce("complete", 1, func(w http.ResponseWriter, _ *http.Request) {
		fail(w, 409, "PART_CORRUPT", "parts", []int{2})
	})
	data := random(t, 33*unit)
	_, err := f.client().Put(t.Context(), &restless{ReaderAt: bytes.NewReader(data)}, int64(len(data)), PutOptions{Collection: "c", Name: "n"})
	if !errors.Is(err, ErrChanged) || Code(err) == models.CodePartConflict {
		t.Errorf("error: %v", err)
	}
	if u := f.only(); u.State != "aborted" {
		t.Errorf("left %s", u.State)
	}
}
