package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/client/wire"
	"berth/controlplane/httpapi"
	"berth/internal/stack"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/golang-jwt/jwt/v5"
)

// keyed are the routes that keep their answers.
var keyed = []route{
	{"DELETE", "/v1/uploads/" + someUpload, nil, 200, nil},
	{"POST", "/v1/uploads/" + someUpload + "/complete", `{}`, 200, nil},
	{"POST", "/v1/uploads/" + someUpload + "/commit", `{"name":"n"}`, 200, nil},
	{"PATCH", "/v1/files/" + someFile, `{"name":"m"}`, 200, nil},
	{"DELETE", "/v1/files/" + someFile, nil, 202, nil},
}

func TestAnswersOfKeyedRequests(t *testing.T) {
	t.Parallel()
	for _, x := range keyed {
		t.Run(x.method+" "+x.path[strings.LastIndexByte(x.path, '/'):], func(t *testing.T) {
			t.Parallel()
			s, r := record(t)
			ann := tokenFor(t, "ann", allScopes)
			ask := func() answer { return s.call(x.method, x.path, ann, x.body, "Idempotency-Key", "k") }

			a := ask()
			if x.path != keyed[0].path && (a.status != x.status || len(r.finished) != 1 || r.finished[0].Status != x.status ||
				!bytes.Equal(r.finished[0].Body, a.body) || r.dropped != 0 || a.header.Get("Idempotency-Replayed") != "") {
				t.Errorf("answered %d %s, kept %+v, dropped %d", a.status, a.body, r.finished, r.dropped)
			}
			asked := len(r.asked)
			r.kept = &models.KeptAnswer{Status: x.status, Body: a.body}
			if again := ask(); again.status != x.status || !bytes.Equal(again.body, a.body) || len(r.asked) != asked ||
				again.header.Get("Idempotency-Replayed") != "true" || again.header.Get("Content-Type") != "application/json" {
				t.Errorf("again %d %s %v, asked %d more", again.status, again.body, again.header, len(r.asked)-asked)
			}
			r.kept, r.finished = nil, nil
			for code, status := range map[models.Code]int{models.CodeIdempotencyConflict: 422, models.CodeIdempotencyInProgress: 409} {
				r.keyErr = models.Errorf(code, "no")
				ask().wants(t, status, code)
			}
			r.keyErr = nil
			if len(r.asked) != asked || len(r.finished) != 0 || r.dropped != 0 {
				t.Errorf("a refused key did something")
			}
			r.err = models.Errorf(models.CodeStoreUnavailable, "not now")
			ask().wants(t, 503, models.CodeStoreUnavailable)
			if len(r.finished) != 0 || r.dropped != 1 {
				t.Errorf("of an error was kept %+v, dropped %d", r.finished, r.dropped)
			}
			r.err = nil
			s.call(x.method, x.path, ann, x.body, "Idempotency-Key", "a b").wants(t, 400, models.CodeInvalidRequest)
			s.undocumented()
			r.hold = func(context.Context) { panic("in the use case") }
			if a := ask(); a.status != 500 || len(r.finished) != 0 || r.dropped != 2 {
				t.Errorf("a panic: %d, kept %+v, dropped %d", a.status, r.finished, r.dropped)
			}
			r.hold = nil
			if a := s.call(x.method, x.path, ann, strings.Repeat("x", 5<<20), "Idempotency-Key", "k"); a.status != 413 || r.dropped != 2 {
				t.Errorf("a huge body: %d", a.status)
			}
		})
	}
}

// An answer of success that is not the end of it is not kept.
func TestUnsettledAnswerIsNotKept(t *testing.T) {
	t.Parallel()
	s, r := record(t)
	r.state = models.UploadCompleting
	if a := s.call("POST", "/v1/uploads/"+someUpload+"/complete", tokenFor(t, "ann", "upload"), nil, "Idempotency-Key", "k"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if len(r.finished) != 0 || r.dropped != 1 {
		t.Errorf("kept %+v, dropped %d", r.finished, r.dropped)
	}
}

// Against real parts: the repetition gets the first answer, whatever became of the file
// since; what could be mended was not frozen; another request with the key is refused.
func TestRepeatedRequestsGetTheFirstAnswer(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	body := stack.Bytes(1, 6*mib)
	u := w.open(t, wire.OpenRequest{Collection: "draft", Size: int64(len(body))})
	path := "/v1/uploads/" + u.ID
	key := func(k string) []string { return []string{"Idempotency-Key", k} }
	same := func(first answer, method, path string, body any, k string) {
		t.Helper()
		again := w.call(method, path, w.ann, body, key(k)...)
		if again.status != first.status || !bytes.Equal(again.body, first.body) || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s %s\nfirst %d %s\nagain %d %s", method, path, first.status, first.body, again.status, again.body)
		}
	}

	w.send(t, u, body, 1)
	w.call("POST", path+"/complete", w.ann, `{}`, key("complete")...).wants(t, 409, models.CodeMissingParts)
	w.send(t, u, body, 2)
	completed := w.call("POST", path+"/complete", w.ann, `{}`, key("complete")...)
	if s := into[wire.Upload](t, completed); completed.status != 200 || s.State != "completed" {
		t.Fatalf("a mended complete: %d %s", completed.status, completed.body)
	}
	same(completed, "POST", path+"/complete", ` {  } `, "complete")
	w.call("POST", path+"/complete", w.ann, nil, key("complete")...).wants(t, 422, models.CodeIdempotencyConflict)

	committed := w.call("POST", path+"/commit", w.ann, `{"name":"b","content_type":"text/plain"}`, key("commit")...)
	if f := into[wire.File](t, committed); committed.status != 200 || f.Name != "b" {
		t.Fatalf("commit: %d %s", committed.status, committed.body)
	}
	same(committed, "POST", path+"/commit", `{"content_type":"text/plain","name":"b"}`, "commit")
	w.call("POST", path+"/commit", w.ann, `{"name":"c"}`, key("commit")...).wants(t, 422, models.CodeIdempotencyConflict)
	w.call("DELETE", path, w.ann, nil, key("commit")...).wants(t, 422, models.CodeIdempotencyConflict)

	file := "/v1/files/" + u.FileID
	renamed := w.call("PATCH", file, w.ann, `{"name":"c"}`, key("patch")...)
	w.call("PATCH", file, w.ann, `{"name":"d"}`)
	same(renamed, "PATCH", file, `{"name":"c"}`, "patch")
	if f := into[wire.File](t, w.call("GET", file, w.ann, nil)); f.Name != "d" {
		t.Errorf("a repeated patch ran again: %s", f.Name)
	}
	deleted := w.call("DELETE", file, w.ann, nil, key("delete")...)
	if deleted.status != 202 {
		t.Fatalf("delete: %d %s", deleted.status, deleted.body)
	}
	// The file has moved on: every answer is still the one that was lost.
	same(completed, "POST", path+"/complete", `{}`, "complete")
	same(committed, "POST", path+"/commit", `{"name":"b","content_type":"text/plain"}`, "commit")
	same(deleted, "DELETE", file, nil, "delete")

	v := w.open(t, wire.OpenRequest{Size: 10})
	aborted := w.call("DELETE", "/v1/uploads/"+v.ID, w.ann, nil, key("abort")...)
	if s := into[wire.Upload](t, aborted); aborted.status != 200 || s.State != "aborted" {
		t.Fatalf("abort: %d %s", aborted.status, aborted.body)
	}
	same(aborted, "DELETE", "/v1/uploads/"+v.ID, nil, "abort")

	// Nobody else's token gets an answer by knowing the key: not another owner's, and not
	// one of the same owner that reaches less.
	bob := tokenFor(t, "bob", allScopes)
	w.call("DELETE", file, bob, nil, key("delete")...).wants(t, 404, models.CodeNotFound)
	narrow := mint(t, jwt.MapClaims{"scope": allScopes, "berth": map[string]any{"collection": "default"}})
	w.call("DELETE", file, narrow, nil, key("delete")...).wants(t, 422, models.CodeIdempotencyConflict)
	w.call("DELETE", file, narrow, nil).wants(t, 404, models.CodeNotFound)

	var kept string
	if err := w.stack.Pool().QueryRow(t.Context(), "SELECT string_agg(convert_from(body, 'UTF8'), '') FROM idempotency").Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(kept, u.FileID) || strings.Contains(kept, "X-Amz") || strings.Contains(kept, "http") {
		t.Errorf("kept: %s", kept)
	}
}

// Repetitions that race with their first get its answer or are told that it runs, on
// however many servers; the work is done once.
func TestRacingRepetitions(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	second := serve(t, func(c *httpapi.Config) { c.Service = w.stack.NewService(t, w.stack.Store, w.stack.Objects) })
	var files []string
	for i := range 8 {
		u := w.open(t, wire.OpenRequest{Collection: "draft", Size: 5})
		w.send(t, u, stack.Bytes(1, 5))
		w.complete(t, u)
		var mu sync.Mutex
		answers := map[string]int{}
		var wg sync.WaitGroup
		for j := range 6 {
			wg.Go(func() {
				s := []*server{w.server, second}[j%2]
				for {
					a := s.call("POST", "/v1/uploads/"+u.ID+"/commit", w.ann, `{"name":"b"}`, "Idempotency-Key", fmt.Sprint("k", i))
					if a.status == 409 {
						a.wants(t, 409, models.CodeIdempotencyInProgress)
						continue
					}
					mu.Lock()
					answers[fmt.Sprint(a.status, string(a.body))]++
					mu.Unlock()
					return
				}
			})
		}
		wg.Wait()
		if len(answers) != 1 {
			t.Errorf("answers: %v", answers)
		}
		files = append(files, u.FileID)
	}
	for _, f := range files {
		if n := stack.Query[int64](t, w.stack, "SELECT count(*) FROM outbox WHERE file_id = $1 AND type = 'file.active'", f); n != 1 {
			t.Errorf("%s became active %d times", f, n)
		}
	}
}

// The server dies between the work and its answer: the key is held until the lease ends,
// and the repetition then does the work again, which changes nothing.
func TestKeyOutlivesItsServer(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	u := w.open(t, wire.OpenRequest{Size: 5})
	w.send(t, u, stack.Bytes(1, 5))
	path := "/v1/uploads/" + u.ID + "/complete"
	first := w.call("POST", path, w.ann, nil, "Idempotency-Key", "k")
	if _, err := w.stack.Pool().Exec(t.Context(), "UPDATE idempotency SET state = 'running', status = NULL, body = NULL"); err != nil {
		t.Fatal(err)
	}
	a := w.call("POST", path, w.ann, nil, "Idempotency-Key", "k")
	a.wants(t, 409, models.CodeIdempotencyInProgress)
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.stack.Clock.Advance(30 * time.Second)
	again := w.call("POST", path, w.ann, nil, "Idempotency-Key", "k")
	if again.status != 200 || !bytes.Equal(again.body, first.body) || again.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%d %s\n%d %s", first.status, first.body, again.status, again.body)
	}
	if n := stack.Query[int64](t, w.stack, "SELECT count(*) FROM outbox"); n != 1 {
		t.Errorf("%d events", n)
	}
}

// Imports over HTTP: the first answer again under its key, the same file without one.
func TestImportsOverHTTP(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	body := stack.Bytes(1, 100)
	const key = "b/old/a.pdf"
	at := key
	if _, err := w.stack.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &w.stack.S3.Bucket, Key: &at, Body: bytes.NewReader(body)}); err != nil {
		t.Fatal(err)
	}
	req := wire.ImportRequest{Key: key, Owner: "bob", Collection: "default", Name: "a.pdf"}
	first := w.call("POST", "/v1/imports", w.ann, req, "Idempotency-Key", "k")
	f := into[wire.File](t, first)
	if first.status != 201 || f.State != "active" || first.header.Get("Location") != "/v1/files/"+f.ID {
		t.Fatalf("%d %s", first.status, first.body)
	}
	w.call("PATCH", "/v1/files/"+f.ID, tokenFor(t, "bob", allScopes), `{"name":"b.pdf"}`)
	again := w.call("POST", "/v1/imports", w.ann, req, "Idempotency-Key", "k")
	if again.status != 201 || !bytes.Equal(again.body, first.body) || again.header.Get("Location") != first.header.Get("Location") ||
		again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %d %s", again.status, again.body)
	}
	unkeyed := w.call("POST", "/v1/imports", w.ann, req)
	if g := into[wire.File](t, unkeyed); unkeyed.status != 200 || g.ID != f.ID || g.Name != "b.pdf" {
		t.Errorf("unkeyed: %d %s", unkeyed.status, unkeyed.body)
	}
	for owner, x := range map[string]struct {
		status int
		code   models.Code
	}{"": {400, models.CodeInvalidRequest}, "a\u202eb": {400, models.CodeInvalidRequest}, " bob": {400, models.CodeInvalidRequest}, "eve": {409, models.CodeDuplicateFile}} {
		r := req
		r.Owner = owner
		w.call("POST", "/v1/imports", w.ann, r).wants(t, x.status, x.code)
	}
	w.call("POST", "/v1/imports", mint(t, jwt.MapClaims{"scope": allScopes, "tenant": "other"}), req).wants(t, 404, models.CodeNotFound)
	w.call("POST", "/v1/imports", mint(t, jwt.MapClaims{"scope": allScopes, "berth": map[string]any{}}), req).wants(t, 403, models.CodeForbidden)
	w.call("POST", "/v1/imports", w.ann, `{"key":"k","owner":"bob","collection":"default"}`).wants(t, 400, models.CodeInvalidRequest)
	w.call("POST", "/v1/imports", w.ann, `{"key":"b/k","owner":"bob","collection":"default","name":"n","tenant":"other"}`).wants(t, 400, models.CodeInvalidRequest)
}
