package httpapi_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/client/wire"
	"berth/controlplane"
	"berth/controlplane/httpapi"
	"berth/models"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	someUpload = "upl_019ad1f1-0c11-7a22-9b33-4455667788aa"
	someFile   = "fil_019ad1f1-0c12-7a22-9b33-4455667788ab"
	signedURL  = "https://s3.example.com/b/k?X-Amz-Credential=AKIDEXAMPLE&X-Amz-Signature=0123456789abcdef"
)

// recorder stands in for the use cases where only HTTP is looked at: it notes what it
// was asked and answers what it was told to.
type recorder struct {
	mu     sync.Mutex
	asked  []any
	caller models.Caller
	err    error
	hold   func(context.Context) // runs before the answer
	parts  []models.SignedPart
	state  models.UploadState // of what is completed; "" is committed
	// of keyed requests
	kept     *models.KeptAnswer
	keyErr   error
	finished []models.KeptAnswer
	dropped  int
}

func (r *recorder) note(ctx context.Context, c models.Caller, what any) error {
	r.mu.Lock()
	r.asked = append(r.asked, what)
	r.caller = c
	r.mu.Unlock()
	if r.hold != nil {
		r.hold(ctx)
	}
	return r.err
}

func (r *recorder) last() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) == 0 {
		return nil
	}
	return r.asked[len(r.asked)-1]
}

func anUpload() controlplane.UploadView {
	return controlplane.UploadView{Upload: models.Upload{
		ID: someUpload, FileID: someFile, Collection: "c", State: models.UploadUploading, Size: 3, Key: "c/k", S3UploadID: "2~a-b_c.d",
		Geometry: models.Geometry{Method: models.MethodSingle, PartSize: 3, PartCount: 1},
		Checksum: models.Checksum{Algorithm: models.SHA256, Type: models.FullObject}, ExpiresAt: time.Now().Add(time.Hour),
	}}
}

func aFile() models.File {
	return models.File{ID: someFile, Collection: "c", Name: "n", Size: 3, ContentType: "text/plain", State: models.FileActive,
		Checksum:  models.Checksum{Algorithm: models.CRC32C, Type: models.FullObject, Value: models.CRC32C.Sum([]byte("abc"))},
		VersionID: "v1", CreatedAt: time.Unix(1_790_000_000, 0)}
}

func (r *recorder) Tasks(ctx context.Context, c models.Caller, q controlplane.TaskQuery) (controlplane.TaskPage, error) {
	return controlplane.TaskPage{}, r.note(ctx, c, q)
}

func (r *recorder) RetryTask(ctx context.Context, c models.Caller, id models.TaskID) (models.Task, error) {
	return models.Task{}, r.note(ctx, c, id)
}

func (r *recorder) Events(ctx context.Context, c models.Caller, state models.OutboxState, _ string, _ int) (controlplane.EventPage, error) {
	return controlplane.EventPage{}, r.note(ctx, c, state)
}

func (r *recorder) RetryEvent(ctx context.Context, c models.Caller, id models.EventID) error {
	return r.note(ctx, c, id)
}

func (r *recorder) CancelEvent(ctx context.Context, c models.Caller, id models.EventID) error {
	return r.note(ctx, c, id)
}

func (r *recorder) LeaseCaller(ctx context.Context, id models.TaskID, token string) (models.Caller, error) {
	return models.Caller{}, models.NotFound("task")
}

func (r *recorder) StepResult(ctx context.Context, id models.TaskID, token string, _ models.StepAnswer) error {
	return r.note(ctx, models.Caller{}, string(id)+token)
}

func (r *recorder) Open(ctx context.Context, c models.Caller, req controlplane.OpenRequest) (controlplane.UploadView, error) {
	v := anUpload()
	v.Parts, v.PartsExpireAt = r.parts, time.Now().Add(time.Minute)
	switch req.Name {
	case "instant":
		f := aFile()
		v.Instant, v.File = true, &f
	case "resumed":
		v.Resumed = true
	case "replayed":
		v.Replayed = true
	}
	return v, r.note(ctx, c, req)
}
func (r *recorder) Upload(ctx context.Context, c models.Caller, id models.UploadID) (controlplane.UploadView, error) {
	v := anUpload()
	v.Progress = &controlplane.Progress{}
	return v, r.note(ctx, c, id)
}
func (r *recorder) Sign(ctx context.Context, c models.Caller, _ models.UploadID, req controlplane.SignRequest) (controlplane.Signed, error) {
	return controlplane.Signed{Parts: r.parts, ExpiresAt: time.Now().Add(time.Minute)}, r.note(ctx, c, req)
}
func (r *recorder) Parts(ctx context.Context, c models.Caller, id models.UploadID) (controlplane.PartList, error) {
	return controlplane.PartList{Parts: []models.Part{{Number: 1, Size: 3, ETag: "e"}}, Missing: [][2]int{{2, 3}}}, r.note(ctx, c, id)
}
func (r *recorder) Complete(ctx context.Context, c models.Caller, _ models.UploadID, req controlplane.CompleteRequest) (controlplane.UploadView, error) {
	v := anUpload()
	f := aFile()
	v.State, v.Attested, v.File = cmp.Or(r.state, models.UploadCommitted), f.Checksum, &f
	return v, r.note(ctx, c, req)
}
func (r *recorder) Commit(ctx context.Context, c models.Caller, _ models.UploadID, req controlplane.CommitRequest) (models.File, error) {
	return aFile(), r.note(ctx, c, req)
}
func (r *recorder) Abort(ctx context.Context, c models.Caller, id models.UploadID) (controlplane.UploadView, error) {
	return anUpload(), r.note(ctx, c, id)
}
func (r *recorder) Import(ctx context.Context, c models.Caller, req controlplane.ImportRequest) (models.File, bool, error) {
	return aFile(), req.Name == "before", r.note(ctx, c, req)
}
func (r *recorder) TakeKey(context.Context, models.Caller, string, []byte) (controlplane.KeyedRequest, *models.KeptAnswer, error) {
	return controlplane.KeyedRequest{}, r.kept, r.keyErr
}
func (r *recorder) FinishKey(_ context.Context, _ controlplane.KeyedRequest, a models.KeptAnswer) {
	r.finished = append(r.finished, a)
}
func (r *recorder) DropKey(context.Context, controlplane.KeyedRequest) { r.dropped++ }
func (r *recorder) Files(ctx context.Context, c models.Caller, q controlplane.FileQuery) (controlplane.FilePage, error) {
	return controlplane.FilePage{Files: []models.File{aFile()}, NextCursor: "next"}, r.note(ctx, c, q)
}
func (r *recorder) File(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
	return aFile(), r.note(ctx, c, id)
}
func (r *recorder) History(ctx context.Context, c models.Caller, id models.FileID, cursor string, limit int) (controlplane.HistoryPage, error) {
	return controlplane.HistoryPage{Entries: []models.HistoryEntry{{At: time.Now(), What: "file", ID: someFile, To: "active", Actor: "event"}}},
		r.note(ctx, c, fmt.Sprint(id, cursor, limit))
}
func (r *recorder) ContentURL(ctx context.Context, c models.Caller, id models.FileID) (controlplane.ReadURL, error) {
	return controlplane.ReadURL{URL: signedURL, ExpiresAt: time.Now().Add(time.Minute), File: aFile()}, r.note(ctx, c, id)
}
func (r *recorder) Patch(ctx context.Context, c models.Caller, _ models.FileID, req controlplane.PatchRequest) (models.File, error) {
	return aFile(), r.note(ctx, c, req)
}
func (r *recorder) Delete(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
	f := aFile()
	f.State = models.FileDeleting
	return f, r.note(ctx, c, id)
}
func (r *recorder) Block(ctx context.Context, c models.Caller, _ models.FileID, reason string) (models.File, error) {
	f := aFile()
	f.State, f.Reason = models.FileBlocked, reason
	return f, r.note(ctx, c, reason)
}
func (r *recorder) Unblock(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
	return aFile(), r.note(ctx, c, id)
}

func record(t testing.TB, change ...func(*httpapi.Config)) (*server, *recorder) {
	t.Helper()
	r := &recorder{}
	s := serve(t, func(c *httpapi.Config) {
		c.Service = r
		for _, f := range change {
			f(c)
		}
	})
	return s, r
}

// route is one of the API, with a request that is good, its status and the scopes
// each of which is enough.
type route struct {
	method, path string
	body         any
	status       int
	scopes       []string
}

var routes = []route{
	{"POST", "/v1/uploads", wire.OpenRequest{Collection: "c", Name: "n", Size: 3}, 201, []string{"upload"}},
	{"GET", "/v1/uploads/" + someUpload, nil, 200, []string{"upload", "read"}},
	{"DELETE", "/v1/uploads/" + someUpload, nil, 200, []string{"upload"}},
	{"POST", "/v1/uploads/" + someUpload + "/parts", wire.SignRequest{From: 1, To: 1}, 200, []string{"upload"}},
	{"GET", "/v1/uploads/" + someUpload + "/parts", nil, 200, []string{"upload", "read"}},
	{"POST", "/v1/uploads/" + someUpload + "/complete", nil, 200, []string{"upload"}},
	{"POST", "/v1/uploads/" + someUpload + "/commit", wire.CommitRequest{Name: "n"}, 200, []string{"upload"}},
	{"GET", "/v1/files", nil, 200, []string{"read"}},
	{"GET", "/v1/files/" + someFile, nil, 200, []string{"read"}},
	{"PATCH", "/v1/files/" + someFile, `{"name":"m"}`, 200, []string{"upload"}},
	{"DELETE", "/v1/files/" + someFile, nil, 202, []string{"delete"}},
	{"GET", "/v1/files/" + someFile + "/history", nil, 200, []string{"read"}},
	{"GET", "/v1/files/" + someFile + "/content", nil, 302, []string{"read"}},
	{"GET", "/v1/files/" + someFile + "/url", nil, 200, []string{"read"}},
	{"POST", "/v1/files/" + someFile + "/block", `{"reason":"because"}`, 200, []string{"admin"}},
	{"POST", "/v1/files/" + someFile + "/unblock", nil, 200, []string{"admin"}},
	{"POST", "/v1/imports", wire.ImportRequest{Key: "k", Owner: "ann", Collection: "c", Name: "n"}, 201, []string{"admin"}},
	{"POST", "/v1/imports", wire.ImportRequest{Key: "k", Owner: "ann", Collection: "c", Name: "before"}, 200, []string{"admin"}},
}

func TestEveryRouteNeedsItsScope(t *testing.T) {
	t.Parallel()
	s, r := record(t)
	for _, x := range routes {
		s.call(x.method, x.path, "", x.body).wants(t, 401, models.CodeUnauthenticated)
		s.call(x.method, x.path, "nonsense", x.body).wants(t, 401, models.CodeUnauthenticated)
		s.call(x.method, x.path, tokenFor(t, "ann", ""), x.body).wants(t, 403, models.CodeForbidden)
		for _, scope := range strings.Fields(allScopes) {
			before := len(r.asked)
			a := s.call(x.method, x.path, tokenFor(t, "ann", scope), x.body)
			if slices.Contains(x.scopes, scope) {
				if a.status != x.status || len(r.asked) != before+1 {
					t.Errorf("%s %s with %s: %d %s", x.method, x.path, scope, a.status, a.body)
				}
				continue
			}
			a.wants(t, 403, models.CodeForbidden)
			if !strings.Contains(a.header.Get("WWW-Authenticate"), "insufficient_scope") || len(r.asked) != before {
				t.Errorf("%s %s with %s: %v, asked %d", x.method, x.path, scope, a.header, len(r.asked)-before)
			}
		}
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	t.Parallel()
	s, _ := record(t)
	for _, x := range routes {
		for _, token := range []string{"", tokenFor(t, "ann", allScopes)} {
			a := s.call(x.method, x.path, token, x.body, "X-Request-Id", "my-id_1")
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				"X-Frame-Options": "DENY", "X-Request-Id": "my-id_1", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			} {
				if got := a.header.Get(name); got != want {
					t.Errorf("%s %s: %s is %q", x.method, x.path, name, got)
				}
			}
			if token == "" && a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: no WWW-Authenticate", x.method, x.path)
			}
		}
	}
	for _, id := range []string{"", "a b", "a.b", strings.Repeat("a", 65), "ä", "a\tb"} {
		a := s.call("GET", "/v1/files", "", nil, "X-Request-Id", id)
		if got := a.header.Get("X-Request-Id"); got == id || len(got) != 24 {
			t.Errorf("request id %q became %q", id, got)
		}
	}
}

func TestStatusesOfOpen(t *testing.T) {
	t.Parallel()
	s, r := record(t)
	r.parts = []models.SignedPart{{Number: 1, Size: 3, Method: "PUT", URL: signedURL, Headers: models.Headers{{Name: "if-none-match", Value: "*"}}}}
	token := tokenFor(t, "ann", "upload")
	for name, status := range map[string]int{"new": 201, "instant": 200, "resumed": 200, "replayed": 201} {
		a := s.call("POST", "/v1/uploads", token, wire.OpenRequest{Collection: "c", Name: name, Size: 3}, "Idempotency-Key", "k")
		if a.status != status || a.header.Get("Location") != "/v1/uploads/"+someUpload {
			t.Errorf("%s: %d, %s", name, a.status, a.header.Get("Location"))
		}
		if (a.header.Get("Idempotency-Replayed") != "") != (name == "replayed") {
			t.Errorf("%s: replayed %q", name, a.header.Get("Idempotency-Replayed"))
		}
		u := into[wire.Upload](t, a)
		if u.Instant != (name == "instant") || u.Resumed != (name == "resumed") || (u.File != nil) != u.Instant {
			t.Errorf("%s: %+v", name, u)
		}
		if len(u.Parts) != 1 || u.Parts[0].URL != signedURL || !bytes.Contains(a.body, []byte(signedURL)) {
			t.Errorf("%s: the URL is not given as it is: %s", name, a.body)
		}
	}
}

func TestRequestsReachTheUseCases(t *testing.T) {
	t.Parallel()
	s, r := record(t)
	token := tokenFor(t, "ann", allScopes)
	s.call("POST", "/v1/uploads", token, `{"collection":"c","name":"n","size":3,"content_type":"a/b","metadata":{"k":[1]},"commit":"deferred","continue":true,
		"checksum":{"algorithm":"sha256","type":"full_object","value":"v"}}`, "Idempotency-Key", "key")
	got, _ := r.last().(controlplane.OpenRequest)
	if got.Collection != "c" || got.Name != "n" || got.Size != 3 || got.ContentType != "a/b" || string(got.Metadata) != `{"k":[1]}` ||
		got.Commit != models.CommitDeferred || !got.Continue || got.IdempotencyKey != "key" || len(got.RequestHash) != 32 ||
		got.Checksum == nil || *got.Checksum != (models.Checksum{Algorithm: "sha256", Type: "full_object", Value: "v"}) {
		t.Errorf("open: %+v", got)
	}
	if r.caller.Owner != "ann" || r.caller.Tenant != "default" || len(r.caller.Scopes) != 4 || r.caller.Grant != nil {
		t.Errorf("caller: %+v", r.caller)
	}
	s.call("POST", "/v1/uploads/"+someUpload+"/parts", token, `{"parts":[{"number":2,"checksum":"x"},{"number":1}]}`)
	if got := fmt.Sprintf("%+v", r.last()); got != "{Parts:[{Number:2 Checksum:x} {Number:1 Checksum:}] From:0 To:0}" {
		t.Errorf("sign: %s", got)
	}
	s.call("POST", "/v1/uploads/"+someUpload+"/complete", token, `{"parts":[{"number":1,"etag":"e","checksum":"x"}],"checksum":{"algorithm":"crc32c","value":"v"}}`)
	if got, _ := r.last().(controlplane.CompleteRequest); len(got.Parts) != 1 || got.Parts[0] != (models.Part{Number: 1, ETag: "e", Checksum: "x"}) || got.Checksum.Value != "v" {
		t.Errorf("complete: %+v", got)
	}
	s.call("POST", "/v1/uploads/"+someUpload+"/complete", token, `{}`)
	if got, _ := r.last().(controlplane.CompleteRequest); got.Parts != nil || got.Checksum != nil {
		t.Errorf("complete without anything: %+v", got)
	}
	s.call("GET", "/v1/files?collection=c&state=active&cursor=abc&limit=7", token, nil)
	if got := r.last(); got != (controlplane.FileQuery{Collection: "c", State: models.FileActive, Cursor: "abc", Limit: 7}) {
		t.Errorf("list: %+v", got)
	}
	s.call("GET", "/v1/files/"+someFile+"/history?limit=1000", token, nil)
	if got := r.last(); got != someFile+" 1000" && got != someFile+"1000" {
		t.Errorf("history: %v", got)
	}
	s.call("PATCH", "/v1/files/"+someFile, token, `{"metadata":{}}`)
	if got, _ := r.last().(controlplane.PatchRequest); got.Name != nil || string(got.Metadata) != "{}" {
		t.Errorf("patch: %+v", got)
	}
}

func TestBadRequestsNeverReachTheUseCases(t *testing.T) {
	t.Parallel()
	s, r := record(t, func(c *httpapi.Config) { c.MaxBody = 2000 })
	token := tokenFor(t, "ann", allScopes)
	upload, file := "/v1/uploads/"+someUpload, "/v1/files/"+someFile
	good := `{"collection":"c","name":"n","size":1}`
	for _, c := range []struct {
		name, method, path string
		body               any
		status             int
		code               models.Code
		field              string
		header             []string
	}{
		{"no body", "POST", "/v1/uploads", nil, 400, models.CodeInvalidRequest, "", nil},
		{"empty body", "POST", "/v1/uploads", "", 400, models.CodeInvalidRequest, "", nil},
		{"form", "POST", "/v1/uploads", "a=b", 400, models.CodeInvalidRequest, "Content-Type", []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"no type", "POST", "/v1/uploads", good, 400, models.CodeInvalidRequest, "Content-Type", []string{"Content-Type", ""}},
		{"other charset", "POST", "/v1/uploads", good, 400, models.CodeInvalidRequest, "Content-Type", []string{"Content-Type", "application/json; charset=latin1"}},
		{"compressed", "POST", "/v1/uploads", good, 400, models.CodeInvalidRequest, "Content-Encoding", []string{"Content-Encoding", "gzip"}},
		{"too large", "POST", "/v1/uploads", `{"collection":"` + strings.Repeat("c", 2000) + `"}`, 413, models.CodeTooLarge, "", nil},
		{"too large, not said", "POST", "/v1/uploads", io.MultiReader(strings.NewReader(`{"collection":"`), strings.NewReader(strings.Repeat("c", 4000))), 413, models.CodeTooLarge, "", nil},
		{"commit", "POST", "/v1/uploads", `{"collection":"c","name":"n","size":1,"commit":"later"}`, 400, models.CodeInvalidRequest, "commit", nil},
		{"declared", "POST", "/v1/uploads", `{"collection":"c","name":"n","size":1,"checksum":{"declared":true}}`, 400, models.CodeInvalidRequest, "checksum.declared", nil},
		{"parent", "POST", "/v1/uploads", `{"collection":"c","name":"n","size":1,"parent":"x"}`, 404, models.CodeNotFound, "", nil},
		{"empty key", "POST", "/v1/uploads", good, 400, models.CodeInvalidRequest, "Idempotency-Key", []string{"Idempotency-Key", " "}},
		{"key with space", "POST", "/v1/uploads", good, 400, models.CodeInvalidRequest, "Idempotency-Key", []string{"Idempotency-Key", "a b"}},
		{"key not ASCII", "POST", "/v1/uploads", good, 400, models.CodeInvalidRequest, "Idempotency-Key", []string{"Idempotency-Key", "ä"}},
		{"long key", "POST", "/v1/uploads", good, 400, models.CodeInvalidRequest, "Idempotency-Key", []string{"Idempotency-Key", strings.Repeat("k", 256)}},
		{"sign nothing", "POST", upload + "/parts", `{}`, 400, models.CodeInvalidRequest, "parts", nil},
		{"sign no body", "POST", upload + "/parts", nil, 400, models.CodeInvalidRequest, "", nil},
		{"sign both", "POST", upload + "/parts", `{"parts":[{"number":1}],"from":1,"to":2}`, 400, models.CodeInvalidRequest, "parts", nil},
		{"sign no part", "POST", upload + "/parts", `{"parts":[]}`, 400, models.CodeInvalidRequest, "parts", nil},
		{"sign text", "POST", upload + "/parts", `{"parts":[{"number":"1"}]}`, 400, models.CodeInvalidRequest, "parts[0].number", nil},
		{"sign 10,001", "POST", upload + "/parts", `{"parts":[` + strings.Repeat(`{"number":1},`, 10_000) + `{"number":1}]}`, 400, models.CodeInvalidRequest, "parts", nil},
		{"sign 5 MB", "POST", upload + "/parts", `{"parts":[` + strings.Repeat(" ", 5<<20) + `]}`, 413, models.CodeTooLarge, "", nil},
		{"complete list", "POST", upload + "/complete", `[]`, 400, models.CodeInvalidRequest, "", nil},
		{"complete 10,001", "POST", upload + "/complete", `{"parts":[` + strings.Repeat(`{"number":1},`, 10_000) + `{"number":1}]}`, 400, models.CodeInvalidRequest, "parts", nil},
		{"commit no name", "POST", upload + "/commit", `{}`, 400, models.CodeInvalidRequest, "name", nil},
		{"patch nothing", "PATCH", file, `{}`, 400, models.CodeInvalidRequest, "", nil},
		{"patch nulls", "PATCH", file, `{"name":null,"metadata":null}`, 400, models.CodeInvalidRequest, "", nil},
		{"patch state", "PATCH", file, `{"state":"active"}`, 400, models.CodeInvalidRequest, "state", nil},
		{"block control", "POST", file + "/block", `{"reason":"a\nb"}`, 400, models.CodeInvalidRequest, "reason", nil},
		{"block long", "POST", file + "/block", `{"reason":"` + strings.Repeat("a", 501) + `"}`, 400, models.CodeInvalidRequest, "reason", nil},
		{"list limit 0", "GET", "/v1/files?limit=0", nil, 400, models.CodeInvalidRequest, "limit", nil},
		{"list limit 1001", "GET", "/v1/files?limit=1001", nil, 400, models.CodeInvalidRequest, "limit", nil},
		{"list limit text", "GET", "/v1/files?limit=ten", nil, 400, models.CodeInvalidRequest, "limit", nil},
		{"list state", "GET", "/v1/files?state=gone", nil, 400, models.CodeInvalidRequest, "state", nil},
		{"list unknown", "GET", "/v1/files?colection=c", nil, 400, models.CodeInvalidRequest, "colection", nil},
		{"list twice", "GET", "/v1/files?limit=1&limit=2", nil, 400, models.CodeInvalidRequest, "limit", nil},
		{"list NUL", "GET", "/v1/files?collection=a%00", nil, 400, models.CodeInvalidRequest, "collection", nil},
		{"list bad UTF-8", "GET", "/v1/files?collection=%ff", nil, 400, models.CodeInvalidRequest, "collection", nil},
		{"list bad escape", "GET", "/v1/files?collection=%zz", nil, 400, models.CodeInvalidRequest, "", nil},
		{"list long cursor", "GET", "/v1/files?cursor=" + strings.Repeat("a", 513), nil, 400, models.CodeInvalidRequest, "cursor", nil},
		{"list odd cursor", "GET", "/v1/files?cursor=a%20b", nil, 400, models.CodeInvalidRequest, "cursor", nil},
		{"history limit", "GET", file + "/history?limit=-1", nil, 400, models.CodeInvalidRequest, "limit", nil},
		{"history state", "GET", file + "/history?state=active", nil, 400, models.CodeInvalidRequest, "state", nil},
	} {
		var body = c.body
		if rd, ok := body.(io.Reader); ok {
			raw, err := io.ReadAll(rd)
			if err != nil {
				t.Fatal(err)
			}
			chunked(t, s, c.path, token, raw).wants(t, c.status, c.code)
			continue
		}
		a := s.call(c.method, c.path, token, body, c.header...)
		if a.status != c.status {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
			continue
		}
		a.wants(t, c.status, c.code)
		if field := a.member(t, "field"); c.field != "" && field != c.field {
			t.Errorf("%s names the field %v: %s", c.name, field, a.body)
		}
	}
	if r.last() != nil {
		t.Errorf("a use case was asked: %+v", r.last())
	}
	// The same, well said, is taken: the table refuses what it says and not all.
	if a := s.call("POST", "/v1/uploads", token, good, "Content-Type", "application/json; charset=UTF-8", "Idempotency-Key", strings.Repeat("k", 255)); a.status != 201 {
		t.Errorf("a good request: %d %s", a.status, a.body)
	}
}

// chunked sends a body whose length is not stated.
func chunked(t *testing.T, s *server, path, token string, body []byte) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, io.MultiReader(bytes.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

// What cannot be an id is answered like what does not exist.
func TestBadIDsAreAbsent(t *testing.T) {
	t.Parallel()
	s, r := record(t)
	r.err = models.NotFound("upload")
	token := tokenFor(t, "ann", allScopes)
	absent := s.call("GET", "/v1/uploads/"+someUpload, token, nil)
	absent.wants(t, 404, models.CodeNotFound)
	asked := len(r.asked)
	strip := func(a answer) string {
		return strings.ReplaceAll(string(a.body), a.header.Get("X-Request-Id"), "")
	}
	for _, id := range []string{"x", someFile, strings.ToUpper(someUpload), someUpload + "x", "upl_%00", "..%2f..", "%ff", "upl_" + strings.Repeat("0", 4000), "%E2%80%AE"} {
		a := s.call("GET", "/v1/uploads/"+id, token, nil)
		a.wants(t, 404, models.CodeNotFound)
		if strip(a) != strip(absent) && !strings.Contains(id, "%2f") {
			t.Errorf("%s: %s\nabsent: %s", id, a.body, absent.body)
		}
	}
	if len(r.asked) != asked {
		t.Error("a use case was asked for what is no id")
	}
}

func TestErrorsBecomeProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   models.Code
		hidden string // must not reach the caller
	}{
		{"coded", models.Errorf(models.CodeMissingParts, "parts have not arrived").With("parts", []int{2, 3}), 409, models.CodeMissingParts, ""},
		{"wrapped", fmt.Errorf("op: %w", models.Errorf(models.CodeSessionExpired, "gone").Because(errors.New("hush"))), 410, models.CodeSessionExpired, "hush"},
		{"joined", errors.Join(models.Errorf(models.CodeBusy, "busy"), errors.New("hush")), 409, models.CodeBusy, "hush"},
		{"plain", errors.New("pq: hush"), 500, models.CodeInternal, "hush"},
		{"internal", models.Errorf(models.CodeInternal, "hush"), 500, models.CodeInternal, "hush"},
		{"unknown code", models.Errorf("HUSH", "hush"), 500, models.CodeInternal, "ush"},
		{"too long", fmt.Errorf("op: %w", context.DeadlineExceeded), 503, models.CodeStoreUnavailable, "deadline"},
		{"members", models.Errorf(models.CodeBusy, "busy").With("code", "hush").With("status", 200).With("bad", func() {}), 409, models.CodeBusy, "hush"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, r := record(t)
			r.err = c.err
			a := s.call("POST", "/v1/uploads/"+someUpload+"/complete", tokenFor(t, "ann", "upload"), nil)
			a.wants(t, c.status, c.code)
			if c.hidden != "" && bytes.Contains(a.body, []byte(c.hidden)) {
				t.Errorf("tells %q: %s", c.hidden, a.body)
			}
			p := a.problem(t)
			if p.Type != "urn:berth:problem:"+strings.ReplaceAll(strings.ToLower(p.Code), "_", "-") {
				t.Errorf("type %s", p.Type)
			}
			if c.status == 503 && a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if c.status == 500 {
				if p.Detail != "" {
					t.Errorf("detail %q", p.Detail)
				}
				if !strings.Contains(s.log.String(), "ush") || !strings.Contains(s.log.String(), p.RequestID) {
					t.Errorf("the log does not tell: %s", s.log)
				}
			}
			if c.name == "coded" && fmt.Sprint(a.member(t, "parts")) != "[2 3]" {
				t.Errorf("parts are %v", a.member(t, "parts"))
			}
		})
	}
}

func TestPanicIsInternal(t *testing.T) {
	t.Parallel()
	s, r := record(t)
	r.hold = func(context.Context) { panic("no " + signedURL) }
	a := s.call("GET", "/v1/files", tokenFor(t, "ann", "read"), nil)
	a.wants(t, 500, models.CodeInternal)
	if a.problem(t).Detail != "" || bytes.Contains(a.body, []byte("X-Amz")) {
		t.Errorf("tells too much: %s", a.body)
	}
	log := s.log.String()
	if !strings.Contains(log, "http_test.go") || !strings.Contains(log, a.problem(t).RequestID) || strings.Contains(log, "X-Amz-Signature") {
		t.Errorf("log: %s", log)
	}
	r.hold = nil
	if a := s.call("GET", "/v1/files", tokenFor(t, "ann", "read"), nil); a.status != 200 {
		t.Errorf("afterwards: %d", a.status)
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	s, r := record(t, func(c *httpapi.Config) { c.RequestTimeout, c.CompleteTimeout = 20*time.Millisecond, time.Hour })
	left := make(chan time.Duration, 1)
	r.hold = func(ctx context.Context) {
		until, _ := ctx.Deadline()
		left <- time.Until(until)
		if time.Until(until) < time.Minute {
			<-ctx.Done()
		}
	}
	token := tokenFor(t, "ann", allScopes)
	r.err = context.DeadlineExceeded
	s.call("GET", "/v1/files", token, nil).wants(t, 503, models.CodeStoreUnavailable)
	if d := <-left; d > 20*time.Millisecond {
		t.Errorf("a list may take %v", d)
	}
	r.err = nil
	if a := s.call("POST", "/v1/uploads/"+someUpload+"/complete", token, nil); a.status != 200 {
		t.Errorf("complete: %d", a.status)
	}
	if d := <-left; d < 59*time.Minute {
		t.Errorf("complete may take %v", d)
	}
}

func TestContentRedirects(t *testing.T) {
	t.Parallel()
	s, _ := record(t)
	token := tokenFor(t, "ann", "read")
	a := s.call("GET", "/v1/files/"+someFile+"/content", token, nil)
	if a.status != 302 || a.header.Get("Location") != signedURL || len(a.body) != 0 || a.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a := s.call("HEAD", "/v1/files/"+someFile+"/content", token, nil); a.status != 405 || a.header.Get("Location") != "" || a.header.Get("Allow") != "GET, OPTIONS" {
		t.Errorf("HEAD: %d %v", a.status, a.header)
	}
	u := into[wire.ContentURL](t, s.call("GET", "/v1/files/"+someFile+"/url", token, nil))
	if u.URL != signedURL || u.Method != "GET" || u.Size != 3 || u.VersionID != "v1" {
		t.Errorf("%+v", u)
	}
}

func TestOtherPathsAndMethods(t *testing.T) {
	t.Parallel()
	s, _ := record(t)
	token := tokenFor(t, "ann", allScopes)
	for _, path := range []string{"/", "/console", "/v1", "/v1/", "/v1/nothing", "/v1/files/", "/v1/uploads/" + someUpload + "/parts/", "/v1/files/" + someFile + "/CONTENT", "//v1/files", "/v1/files/../files", "/.env"} {
		s.call("GET", path, token, nil).wants(t, 404, models.CodeNotFound)
	}
	for _, c := range [][3]string{
		{"PUT", "/v1/uploads", "OPTIONS, POST"}, {"POST", "/v1/files", "GET, HEAD, OPTIONS"},
		{"DELETE", "/healthz", "GET, HEAD, OPTIONS"}, {"TRACE", "/v1/files", "GET, HEAD, OPTIONS"}, {"BREW", "/v1/files", "GET, HEAD, OPTIONS"},
	} {
		a := s.call(c[0], c[1], token, nil)
		a.wants(t, 405, models.CodeInvalidRequest)
		if a.header.Get("Allow") != c[2] {
			t.Errorf("%s %s: Allow %q", c[0], c[1], a.header.Get("Allow"))
		}
	}
	if a := s.call("OPTIONS", "/v1/files/"+someFile, "", nil); a.status != 204 || a.header.Get("Allow") != "DELETE, GET, HEAD, OPTIONS, PATCH" || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS: %d %v", a.status, a.header)
	}
	get, head := s.call("GET", "/v1/files/"+someFile, token, nil), s.call("HEAD", "/v1/files/"+someFile, token, nil)
	if head.status != 200 || len(head.body) != 0 || head.header.Get("Content-Length") != get.header.Get("Content-Length") || head.header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %v %s", head.status, head.header, head.body)
	}
	s.call("HEAD", "/v1/files/"+someFile, "", nil)
	if a := s.call("HEAD", "/v1/files/"+someFile, "", nil); a.status != 401 || len(a.body) != 0 {
		t.Errorf("HEAD without a token: %d %s", a.status, a.body)
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	closed, _ := record(t)
	open, _ := record(t, func(c *httpapi.Config) {
		c.AllowedOrigins = []string{"https://app.example.com/", "http://localhost:3000"}
	})
	all, _ := record(t, func(c *httpapi.Config) { c.AllowedOrigins = []string{"*"} })
	token := tokenFor(t, "ann", allScopes)
	preflight := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type"}
	for _, c := range []struct {
		s            *server
		origin, want string
	}{
		{closed, "https://app.example.com", ""},
		{open, "https://app.example.com", "https://app.example.com"},
		{open, "http://localhost:3000", "http://localhost:3000"},
		{open, "https://app.example.com.evil.example", ""},
		{open, "http://app.example.com", ""},
		{open, "null", ""},
		{all, "https://anything.example", "*"},
	} {
		a := c.s.call("OPTIONS", "/v1/uploads", "", nil, append(preflight, "Origin", c.origin)...)
		if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != c.want || (a.header.Get("Access-Control-Allow-Headers") != "") != (c.want != "") {
			t.Errorf("preflight of %s: %d %v", c.origin, a.status, a.header)
		}
		// A page that traces sends its trace with every request.
		if got := a.header.Get("Access-Control-Allow-Headers"); strings.Contains(got, "Traceparent, Tracestate") != (c.want != "") {
			t.Errorf("preflight of %s: allows %q", c.origin, got)
		}
		for _, tok := range []string{token, ""} {
			a = c.s.call("GET", "/v1/files", tok, nil, "Origin", c.origin)
			if got := a.header.Get("Access-Control-Allow-Origin"); got != c.want || a.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: %q", c.origin, got)
			}
			if (a.header.Get("Vary") == "Origin") != (c.s != closed) {
				t.Errorf("%s: Vary %q", c.origin, a.header.Get("Vary"))
			}
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<p>page") })
	s, _ := record(t, func(c *httpapi.Config) { c.Pages = pages })
	s.undocumented()
	a := s.call("GET", "/", "", nil)
	if a.status != 200 || string(a.body) != "<p>page" || a.header.Get("Content-Security-Policy") != "" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a := s.call("GET", "/nothing", "", nil); a.status != 404 {
		t.Errorf("%d", a.status)
	}
	s.call("GET", "/v1/nothing", "", nil).wants(t, 404, models.CodeNotFound)
	s.call("POST", "/", "", "{}").wants(t, 404, models.CodeNotFound)
}

func TestProbesAndMetrics(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var notReady error
	registry := prometheus.NewRegistry()
	s, _ := record(t, func(c *httpapi.Config) {
		c.Registry = registry
		c.Ready = func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				return errors.New("no deadline")
			}
			mu.Lock()
			defer mu.Unlock()
			return notReady
		}
	})
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if a := s.call("GET", path, "", nil); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	mu.Lock()
	notReady = errors.New("postgres://berth:hush@db is away")
	mu.Unlock()
	a := s.call("GET", "/readyz", "", nil)
	a.wants(t, 503, models.CodeStoreUnavailable)
	if strings.Contains(string(a.body)+s.log.String(), "hush") || !strings.Contains(s.log.String(), "is away") {
		t.Errorf("%s\n%s", a.body, s.log)
	}
	if a := s.call("GET", "/healthz", "", nil); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	s.call("GET", "/v1/files/"+someFile, tokenFor(t, "ann", "read"), nil)
	s.call("GET", "/v1/secret-"+someFile, "", nil)
	text := string(s.call("GET", "/metrics", "", nil).body)
	for _, want := range []string{
		`berth_http_request_seconds_count{method="GET",route="/v1/files/:id",status="200"} 1`,
		`berth_http_request_seconds_count{method="GET",route="(none)",status="404"} 1`,
		`berth_http_request_seconds_count{method="GET",route="/readyz",status="503"} 1`,
		"berth_http_requests_in_flight 1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, someFile) {
		t.Error("a label holds a path")
	}
}

func TestNotifications(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	var result error
	s, _ := record(t, func(c *httpapi.Config) {
		c.NotificationTokens = map[models.StoreName]string{"main": "store-token", "empty": ""}
		c.Notify = func(_ context.Context, store models.StoreName, body []byte) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, string(store)+" "+string(body))
			return result
		}
	})
	fails := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		result = err
	}
	var first answer
	for i, c := range [][2]string{{"main", "wrong"}, {"main", ""}, {"other", "store-token"}, {"empty", ""}, {"empty", "x"}, {"main", "store-token "}, {"main", tokenFor(t, "ann", allScopes)}} {
		var a answer
		if c[0] == "main" && c[1] == "store-token " {
			a = s.call("POST", "/v1/notifications/main", "", "{}", "Authorization", "Bearer store-token,x")
		} else {
			a = s.call("POST", "/v1/notifications/"+c[0], c[1], "{}")
		}
		a.wants(t, 401, models.CodeUnauthenticated)
		if i == 0 {
			first = a
		}
		if want := strings.ReplaceAll(string(first.body), first.header.Get("X-Request-Id"), a.header.Get("X-Request-Id")); string(a.body) != want {
			t.Errorf("%v: %s", c, a.body)
		}
	}
	if len(got) != 0 {
		t.Fatalf("taken: %v", got)
	}
	if a := s.call("POST", "/v1/notifications/main", "store-token", `{"Records":[]}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	basic := httptest.NewRequest("POST", "/", nil)
	basic.SetBasicAuth("anything", "store-token")
	if a := s.call("POST", "/v1/notifications/main", "", `{"b":1}`, "Authorization", basic.Header.Get("Authorization")); a.status != 200 {
		t.Errorf("Basic: %d %s", a.status, a.body)
	}
	if fmt.Sprint(got) != `[main {"Records":[]} main {"b":1}]` {
		t.Errorf("taken: %v", got)
	}
	fails(models.Errorf(models.CodeInvalidRequest, "the notification is not understood"))
	s.call("POST", "/v1/notifications/main", "store-token", "{}").wants(t, 400, models.CodeInvalidRequest)
	for _, err := range []error{errors.New("hush"), models.Errorf(models.CodeBusy, "hush"), context.DeadlineExceeded, models.NotFound("hush")} {
		fails(err)
		a := s.call("POST", "/v1/notifications/main", "store-token", "{}")
		a.wants(t, 503, models.CodeStoreUnavailable)
		if a.header.Get("Retry-After") == "" || bytes.Contains(a.body, []byte("hush")) {
			t.Errorf("%v: %v %s", err, a.header, a.body)
		}
	}
	before := len(got)
	s.call("POST", "/v1/notifications/main", "store-token", strings.Repeat(" ", 1<<20+1)).wants(t, 413, models.CodeTooLarge)
	if len(got) != before {
		t.Error("a body that is too large was taken")
	}
}

// A token is not taken from anywhere but one Authorization header.
func TestWhereTokensAreTakenFrom(t *testing.T) {
	t.Parallel()
	s, r := record(t)
	token := tokenFor(t, "ann", allScopes)
	for _, h := range [][]string{
		{"Authorization", token}, {"Authorization", "Basic " + token}, {"Authorization", "Bearer"}, {"Authorization", "Bearer " + token + " x"},
		{"Authorization", "Bearer " + token + "," + token}, {"Cookie", "token=" + token}, {"X-Authorization", "Bearer " + token},
	} {
		s.call("GET", "/v1/files", "", nil, h...).wants(t, 401, models.CodeUnauthenticated)
	}
	s.call("GET", "/v1/files?access_token="+token, "", nil).wants(t, 401, models.CodeUnauthenticated)
	if r.last() != nil {
		t.Fatal("a use case was asked")
	}
	if a := s.call("GET", "/v1/files", "", nil, "Authorization", "bearer "+token); a.status != 200 {
		t.Errorf("bearer in lower case: %d", a.status)
	}

	// Two headers at once: a proxy and we might read different ones.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nAuthorization: Bearer %s\r\n\r\n", token, token)
	b, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 401 ")) {
		t.Errorf("two headers: %s, %v", b, err)
	}
}

// One line a request, with the template of the route; and nowhere in the log a token,
// a signature or a signed URL, whatever was asked, answered and failed.
func TestLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	s, r := record(t, func(c *httpapi.Config) {
		c.NotificationTokens = map[models.StoreName]string{"main": "store-token"}
		c.Notify = func(context.Context, models.StoreName, []byte) error { return errors.New("at " + signedURL) }
	})
	s.undocumented()
	r.parts = []models.SignedPart{{Number: 1, Size: 3, Method: "PUT", URL: signedURL}}
	token := tokenFor(t, "ann", allScopes)
	requests := 0
	call := func(method, path, token string, body any, header ...string) {
		requests++
		s.call(method, path, token, body, header...)
	}
	for _, err := range []error{nil, errors.New("Put \"" + signedURL + "\": Bearer " + token), models.Errorf(models.CodeBusy, "busy").Because(errors.New(signedURL + " " + token))} {
		r.err = err
		for _, x := range routes {
			call(x.method, x.path, token, x.body)
			call(x.method, x.path+"?access_token="+token+"&X-Amz-Signature=0123456789abcdef", token, x.body)
		}
	}
	r.err = nil
	r.hold = func(context.Context) { panic(token + signedURL) }
	call("GET", "/v1/files", token, nil)
	r.hold = nil
	call("GET", "/v1/files", token+"x", nil)
	call("GET", "/uppy/"+token+"/s3/params", "", nil)
	call("GET", "/"+token, "", nil, "X-Request-Id", token)
	call("POST", "/v1/notifications/main", "store-token", "{}")
	call("POST", "/v1/notifications/"+token, "store-token", "{}")
	call("POST", "/v1/uploads/"+token+"/complete", token, nil)

	log := s.log.String()
	for _, bad := range []string{token, "eyJ", "X-Amz-Signature", "0123456789abcdef", "AKIDEXAMPLE", "store-token", signedURL, token[strings.LastIndexByte(token, '.')+1:]} {
		if i := strings.Index(log, bad); i >= 0 {
			t.Errorf("the log holds %q: …%s…", bad, log[max(i-200, 0):min(i+100, len(log))])
		}
	}
	lines := 0
	for _, m := range s.log.lines(t) {
		if m["msg"] != "request" {
			continue
		}
		lines++
		for _, key := range []string{"method", "route", "status", "ms", "request_id", "bytes"} {
			if _, there := m[key]; !there {
				t.Errorf("no %s in %v", key, m)
			}
		}
	}
	if lines != requests {
		t.Errorf("%d lines for %d requests", lines, requests)
	}
	if !strings.Contains(log, `"route":"/v1/uploads/:id/parts"`) || !strings.Contains(log, `"tenant":"default"`) {
		t.Error("the log lacks the template or the tenant")
	}
}
