package client

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/client/wire"
	"berth/models"
)

// fake is as much of Berth and of S3 as it takes to try what a client does about
// faults that the real ones will not produce on demand. That the client and the real
// ones agree is proven in cmd/berth.
type fake struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	uploads map[string]*fakeUpload
	keys    map[string]string // Idempotency-Key of an open → upload
	seen    []seen
	counts  map[string]int

	// fault answers a request instead of the fake, if it returns true. n counts the
	// requests of that kind, from 1: "open", "sign", "parts", "complete", "upload",
	// "file", "url", "abort", "put", "get".
	fault func(kind string, n int, w http.ResponseWriter, r *http.Request) bool

	algorithm models.Algorithm
	partSize  int64
	single    int64
	life      time.Duration // of a URL
	expired   map[string]bool
	steps     int // how often a file answers "processing" before it is active
}

type seen struct{ kind, key string }

type fakeUpload struct {
	wire.Upload
	pins  map[int]string
	parts map[int][]byte
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t, uploads: map[string]*fakeUpload{}, keys: map[string]string{}, counts: map[string]int{}, expired: map[string]bool{},
		algorithm: models.SHA256, partSize: 5 * unit, single: unit, life: time.Hour}
	f.Server = httptest.NewServer(&fakeHandler{f})
	t.Cleanup(f.Close)
	return f
}

// client is one of the fake, which does not wait long.
func (f *fake) client(opts ...Option) *Client {
	f.t.Helper()
	quick := WithRetry(RetryPolicy{Attempts: 4, Base: time.Millisecond, Cap: 5 * time.Millisecond})
	small := func(c *Client) {
		if f.partSize < mib {
			c.sizes = sizes{small: 16 * unit, span: 8 * unit, whole: 32 * unit}
		}
	}
	c, err := New(f.URL, "token", append([]Option{quick, small}, opts...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (f *fake) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[kind]
}

// only is the one upload there is.
func (f *fake) only() *fakeUpload {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.uploads) != 1 {
		f.t.Fatalf("%d uploads, want one", len(f.uploads))
	}
	for _, u := range f.uploads {
		return u
	}
	return nil
}

// content is what S3 holds of an upload.
func (u *fakeUpload) content() []byte {
	var out []byte
	for n := 1; n <= u.PartCount; n++ {
		out = append(out, u.parts[n]...)
	}
	return out
}

type fakeHandler struct{ f *fake }

func (h *fakeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.f.serve(w, r) }

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	kind := ""
	switch {
	case p[0] == "s3":
		kind = strings.ToLower(r.Method)
	case p[1] == "uploads" && len(p) == 2:
		kind = "open"
	case p[1] == "uploads" && len(p) == 3 && r.Method == http.MethodDelete:
		kind = "abort"
	case p[1] == "uploads" && len(p) == 3:
		kind = "upload"
	case p[1] == "uploads" && p[3] == "parts" && r.Method == http.MethodPost:
		kind = "sign"
	case p[1] == "uploads":
		kind = p[3]
	case p[1] == "files" && len(p) == 4:
		kind = p[3]
	case p[1] == "files":
		kind = "file"
	}
	f.mu.Lock()
	f.counts[kind]++
	n := f.counts[kind]
	f.seen = append(f.seen, seen{kind, r.Header.Get("Idempotency-Key")})
	fault := f.fault
	f.mu.Unlock()
	if fault != nil && fault(kind, n, w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p[0] != "s3" && r.Header.Get("Authorization") == "" {
		fail(w, 401, "UNAUTHENTICATED")
		return
	}
	var u *fakeUpload
	if len(p) > 2 && p[0] != "s3" {
		if u = f.uploads[strings.Replace(p[2], "fil_", "upl_", 1)]; u == nil {
			fail(w, 404, "NOT_FOUND")
			return
		}
	}
	switch kind {
	case "open":
		f.open(w, r, body)
	case "sign":
		f.sign(w, u, body)
	case "parts":
		f.parts(w, u)
	case "complete":
		f.complete(w, u)
	case "upload":
		answer(w, 200, u.Upload)
	case "abort":
		u.State = "aborted"
		answer(w, 200, u.Upload)
	case "file":
		if f.steps--; f.steps < 0 && u.File.State == "processing" {
			u.File.State = "active"
		}
		answer(w, 200, u.File)
	case "url":
		q := rand.Text()
		answer(w, 200, wire.ContentURL{URL: f.URL + "/s3/" + u.ID + "?X-Amz-Signature=" + q, Method: "GET",
			ExpiresAt: time.Now().Add(f.life), Size: u.Size, Checksum: u.File.Checksum, PartSize: u.PartSize, VersionID: "v1"})
	case "put":
		f.put(w, r, body)
	case "get":
		f.get(w, r)
	default:
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// fail answers with a problem; more are its details, in pairs.
func fail(w http.ResponseWriter, status int, code models.Code, more ...any) {
	doc := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "request_id": "req-1"}
	for i := 0; i < len(more); i += 2 {
		doc[more[i].(string)] = more[i+1]
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

func failS3(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

func (f *fake) open(w http.ResponseWriter, r *http.Request, body []byte) {
	var req wire.OpenRequest
	if err := json.Unmarshal(body, &req); err != nil {
		fail(w, 400, "INVALID_REQUEST")
		return
	}
	if id := f.keys[r.Header.Get("Idempotency-Key")]; id != "" {
		answer(w, 201, f.uploads[id].Upload)
		return
	}
	// The least size of a part is S3's own affair.
	g, err := models.Geometry{Method: models.MethodSingle, PartSize: req.Size, PartCount: 1}, error(nil)
	if req.Size > f.single {
		g = models.Geometry{Method: models.MethodMultipart, PartSize: f.partSize, PartCount: int((req.Size + f.partSize - 1) / f.partSize)}
	}
	var sum models.Checksum
	if err == nil {
		var d *models.Checksum
		if c := req.Checksum; c != nil {
			d = &models.Checksum{Algorithm: models.Algorithm(c.Algorithm), Type: models.ChecksumType(c.Type), Value: c.Value}
		}
		sum, err = models.Declare(d, f.algorithm, g)
	}
	if err != nil {
		fail(w, 400, models.ErrorCode(err), "field", "checksum")
		return
	}
	id := string(models.NewUploadID())
	u := &fakeUpload{pins: map[int]string{}, parts: map[int][]byte{}}
	u.Upload = wire.Upload{ID: id, FileID: strings.Replace(id, "upl_", "fil_", 1), Collection: req.Collection, State: "uploading",
		Method: string(g.Method), Size: req.Size, PartSize: g.PartSize, PartCount: g.PartCount, ExpiresAt: time.Now().Add(time.Hour),
		Checksum: wire.Checksum{Algorithm: string(sum.Algorithm), Type: string(sum.Type), Value: sum.Value}}
	f.uploads[id] = u
	f.keys[r.Header.Get("Idempotency-Key")] = id
	out := u.Upload
	if g.Method == models.MethodSingle {
		until := time.Now().Add(f.life)
		out.Parts, out.PartsExpireAt = []wire.SignedPart{f.signed(u, 1, sum.Value)}, &until
	}
	answer(w, 201, out)
}

func (f *fake) signed(u *fakeUpload, n int, checksum string) wire.SignedPart {
	g := models.Geometry{PartSize: u.PartSize, PartCount: u.PartCount}
	p := wire.SignedPart{Number: n, Size: g.PartLength(u.Size, n), Method: "PUT", Headers: map[string]string{},
		URL: fmt.Sprintf("%s/s3/%s/%d?X-Amz-Signature=%s", f.URL, u.ID, n, rand.Text())}
	if checksum != "" {
		p.Headers[models.Algorithm(u.Checksum.Algorithm).Header()] = checksum
		u.pins[n] = checksum
	}
	return p
}

func (f *fake) sign(w http.ResponseWriter, u *fakeUpload, body []byte) {
	var req wire.SignRequest
	_ = json.Unmarshal(body, &req)
	var res wire.SignResponse
	for _, p := range req.Parts {
		if pin := u.pins[p.Number]; pin != "" && pin != p.Checksum {
			fail(w, 409, "PART_CONFLICT", "parts", []int{p.Number})
			return
		}
		res.Parts = append(res.Parts, f.signed(u, p.Number, p.Checksum))
	}
	res.ExpiresAt = time.Now().Add(f.life)
	answer(w, 200, res)
}

func (f *fake) parts(w http.ResponseWriter, u *fakeUpload) {
	res := wire.PartsResponse{Parts: []wire.Part{}, Missing: [][2]int{}}
	for n := 1; n <= u.PartCount; n++ {
		if b, ok := u.parts[n]; ok {
			res.Parts = append(res.Parts, wire.Part{Number: n, Size: int64(len(b)), ETag: "e", Checksum: models.Algorithm(u.Checksum.Algorithm).Sum(b)})
		} else {
			res.Missing = append(res.Missing, [2]int{n, n})
		}
	}
	answer(w, 200, res)
}

func (f *fake) complete(w http.ResponseWriter, u *fakeUpload) {
	var missing []int
	for n := 1; n <= u.PartCount; n++ {
		if _, ok := u.parts[n]; !ok {
			missing = append(missing, n)
		}
	}
	if missing != nil {
		fail(w, 409, "MISSING_PARTS", "parts", missing, "count", len(missing))
		return
	}
	a := models.Algorithm(u.Checksum.Algorithm)
	sum := wire.Checksum{Algorithm: u.Checksum.Algorithm, Type: u.Checksum.Type, Value: a.Sum(u.content())}
	if u.Checksum.Type == "composite" {
		var digests [][]byte
		for n := 1; n <= u.PartCount; n++ {
			d, _ := a.ParseDigest(a.Sum(u.parts[n]))
			digests = append(digests, d)
		}
		sum.Value = models.CompositeOf(a, digests).Value
	}
	u.State = "committed"
	u.File = &wire.File{ID: u.FileID, Name: "n", Size: u.Size, Checksum: sum, PartSize: u.PartSize, State: "active", Metadata: []byte("{}")}
	if f.steps > 0 {
		u.File.State = "processing"
	}
	answer(w, 200, u.Upload)
}

// put is S3's: the length and the checksum are what was signed, an expired URL is
// refused, and a single PUT is refused where something lies.
func (f *fake) put(w http.ResponseWriter, r *http.Request, body []byte) {
	p := strings.Split(r.URL.Path, "/")
	u := f.uploads[p[2]]
	n, _ := strconv.Atoi(p[3])
	if f.expired[r.URL.Query().Get("X-Amz-Signature")] {
		failS3(w, 403, "AccessDenied", "Request has expired")
		return
	}
	g := models.Geometry{PartSize: u.PartSize, PartCount: u.PartCount}
	if int64(len(body)) != g.PartLength(u.Size, n) || r.ContentLength != int64(len(body)) {
		failS3(w, 403, "SignatureDoesNotMatch", "the length")
		return
	}
	a := models.Algorithm(u.Checksum.Algorithm)
	if r.Header.Get(a.Header()) != u.pins[n] {
		failS3(w, 403, "SignatureDoesNotMatch", "the checksum")
		return
	}
	if pin := u.pins[n]; pin != "" && a.Sum(body) != pin {
		failS3(w, 400, "BadDigest", "other bytes")
		return
	}
	if _, there := u.parts[n]; there && u.Method == "single" {
		failS3(w, 412, "PreconditionFailed", "it is there")
		return
	}
	u.parts[n] = slices.Clone(body)
	w.Header().Set("ETag", `"e"`)
}

func (f *fake) get(w http.ResponseWriter, r *http.Request) {
	u := f.uploads[strings.Split(r.URL.Path, "/")[2]]
	if f.expired[r.URL.Query().Get("X-Amz-Signature")] {
		failS3(w, 403, "AccessDenied", "Request has expired")
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(u.content())))
}

// random is n bytes that no compression and no luck makes equal.
func random(t testing.TB, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}
