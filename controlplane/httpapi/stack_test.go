package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/client/wire"
	"berth/controlplane/httpapi"
	"berth/events"
	"berth/internal/stack"
	"berth/models"
)

const mib = 1 << 20

// whole is the API before real use cases, PostgreSQL and S3.
type whole struct {
	*server
	stack *stack.Stack
	ann   string // a token of all scopes
}

const storeSecret = "the store's own token"

func serveWhole(t *testing.T) *whole {
	t.Helper()
	s := stack.New(t)
	w := &whole{stack: s, ann: tokenFor(t, "ann", allScopes)}
	w.server = serve(t, func(c *httpapi.Config) {
		c.Service, c.Ready = s.Service, s.Service.Ready
		c.Notify = events.Webhook{Settler: s.Service}.Notify
		c.NotificationTokens = map[models.StoreName]string{stack.Main: storeSecret}
	})
	t.Cleanup(func() {
		log := w.log.String()
		for _, bad := range []string{w.ann, "eyJ", "X-Amz-Signature", "X-Amz-Credential", storeSecret} {
			if strings.Contains(log, bad) {
				t.Errorf("the log holds %q", bad)
			}
		}
		if strings.Contains(log, `"level":"ERROR"`) {
			t.Errorf("errors were logged:\n%s", log)
		}
	})
	return w
}

func (w *whole) open(t *testing.T, req wire.OpenRequest, header ...string) wire.Upload {
	t.Helper()
	if req.Collection == "" {
		req.Collection = "default"
	}
	if req.Name == "" {
		req.Name = "a file.bin"
	}
	a := w.call("POST", "/v1/uploads", w.ann, req, header...)
	if a.status != 201 && a.status != 200 {
		t.Fatalf("open: %d %s", a.status, a.body)
	}
	return into[wire.Upload](t, a)
}

// sign pins the parts with the given numbers, all if none, and returns their URLs.
func (w *whole) sign(t *testing.T, u wire.Upload, body []byte, numbers ...int) []wire.SignedPart {
	t.Helper()
	var req wire.SignRequest
	if len(numbers) == 0 {
		for n := range u.PartCount {
			numbers = append(numbers, n+1)
		}
	}
	for _, n := range numbers {
		req.Parts = append(req.Parts, wire.PartToSign{Number: n, Checksum: models.Algorithm(u.Checksum.Algorithm).Sum(cut(u, body, n))})
	}
	a := w.call("POST", "/v1/uploads/"+u.ID+"/parts", w.ann, req)
	if a.status != 200 {
		t.Fatalf("sign: %d %s", a.status, a.body)
	}
	return into[wire.SignResponse](t, a).Parts
}

func cut(u wire.Upload, body []byte, n int) []byte {
	from := int64(n-1) * u.PartSize
	return body[from:min(from+u.PartSize, int64(len(body)))]
}

func deliver(t *testing.T, p wire.SignedPart, body []byte) int {
	t.Helper()
	status, err := stack.Send(t.Context(), stack.Signed(p), body)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func (w *whole) send(t *testing.T, u wire.Upload, body []byte, numbers ...int) {
	t.Helper()
	for _, p := range w.sign(t, u, body, numbers...) {
		if status := deliver(t, p, cut(u, body, p.Number)); status != 200 {
			t.Fatalf("part %d: S3 answered %d", p.Number, status)
		}
	}
}

func (w *whole) complete(t *testing.T, u wire.Upload) wire.Upload {
	t.Helper()
	a := w.call("POST", "/v1/uploads/"+u.ID+"/complete", w.ann, nil)
	if a.status != 200 {
		t.Fatalf("complete: %d %s", a.status, a.body)
	}
	return into[wire.Upload](t, a)
}

func fetch(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %s %v", resp.StatusCode, b, err)
	}
	return b
}

// The whole life of a file over HTTP, each answer as the document says.
func TestLifeOfAFile(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"empty": 0, "single": 1000, "multipart": 12*mib + 17} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serveWhole(t)
			body := stack.Bytes(1, size)
			u := w.open(t, wire.OpenRequest{Size: int64(size), Metadata: []byte(`{"k":["v",1,null]}`), ContentType: "text/plain"})
			if name == "multipart" {
				w.send(t, u, body, 1, 3)
				list := into[wire.PartsResponse](t, w.call("GET", "/v1/uploads/"+u.ID+"/parts", w.ann, nil))
				if len(list.Parts) != 2 || fmt.Sprint(list.Missing) != "[[2 2]]" {
					t.Fatalf("%+v", list)
				}
				a := w.call("POST", "/v1/uploads/"+u.ID+"/complete", w.ann, nil)
				a.wants(t, 409, models.CodeMissingParts)
				if fmt.Sprint(a.member(t, "parts")) != "[2]" {
					t.Errorf("missing: %s", a.body)
				}
				half := into[wire.Upload](t, w.call("GET", "/v1/uploads/"+u.ID, w.ann, nil))
				if half.UploadedParts == nil || *half.UploadedParts != 2 || half.State != "uploading" {
					t.Errorf("%+v", half)
				}
				w.send(t, u, body, 2)
			} else {
				w.send(t, u, body)
			}
			done := w.complete(t, u)
			if done.State != "committed" || done.File == nil || done.File.State != "active" || done.File.VersionID == "" ||
				done.File.Checksum.Value == "" || done.File.Checksum.Declared == nil || !*done.File.Checksum.Declared {
				t.Fatalf("%+v %+v", done, done.File)
			}
			path := "/v1/files/" + done.FileID
			f := into[wire.File](t, w.call("GET", path, w.ann, nil))
			if f.Name != "a file.bin" || f.Size != int64(size) || f.ContentType != "text/plain" || string(f.Metadata) != `{"k": ["v", 1, null]}` && string(f.Metadata) != `{"k":["v",1,null]}` {
				t.Errorf("%+v %s", f, f.Metadata)
			}
			c := into[wire.ContentURL](t, w.call("GET", path+"/url", w.ann, nil))
			if got := fetch(t, c.URL); !bytes.Equal(got, body) || c.Checksum != f.Checksum && c.Checksum.Value != f.Checksum.Value {
				t.Errorf("read %d bytes", len(got))
			}
			a := w.call("GET", path+"/content", w.ann, nil)
			if a.status != 302 || !bytes.Equal(fetch(t, a.header.Get("Location")), body) {
				t.Errorf("content: %d", a.status)
			}
			h := into[wire.History](t, w.call("GET", path+"/history", w.ann, nil))
			if len(h.History) < 2 || h.History[0].To != "preparing" && h.History[0].To != "uploading" && h.History[0].To != "init" && h.History[0].To != "writing" {
				t.Errorf("history: %+v", h)
			}
			page := into[wire.History](t, w.call("GET", path+"/history?limit=1", w.ann, nil))
			if len(page.History) != 1 || page.NextCursor == "" {
				t.Errorf("history page: %+v", page)
			}
			if next := into[wire.History](t, w.call("GET", path+"/history?limit=1000&cursor="+page.NextCursor, w.ann, nil)); len(next.History) != len(h.History)-1 {
				t.Errorf("the rest of the history has %d of %d", len(next.History), len(h.History)-1)
			}
			if f := into[wire.File](t, w.call("PATCH", path, w.ann, `{"name":"na\u00efve \ud83d\ude00.txt","metadata":{}}`)); f.Name != "naïve 😀.txt" || string(f.Metadata) != "{}" {
				t.Errorf("patched: %+v", f)
			}
			if f := into[wire.File](t, w.call("POST", path+"/block", w.ann, `{"reason":"a look at it"}`)); f.State != "blocked" {
				t.Errorf("blocked: %+v", f)
			}
			w.call("GET", path+"/url", w.ann, nil).wants(t, 409, models.CodeNotReady)
			if f := into[wire.File](t, w.call("POST", path+"/unblock", w.ann, nil)); f.State != "active" {
				t.Errorf("unblocked: %+v", f)
			}
			for range 2 {
				a := w.call("DELETE", path, w.ann, nil)
				if a.status != 202 || into[wire.File](t, a).State != "deleting" {
					t.Errorf("delete: %d %s", a.status, a.body)
				}
			}
			w.call("GET", path+"/content", w.ann, nil).wants(t, 409, models.CodeNotReady)
			if a := w.call("POST", "/v1/uploads/"+u.ID+"/complete", w.ann, nil); a.status != 200 {
				t.Errorf("complete again: %d %s", a.status, a.body)
			}
		})
	}
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	var want []string
	for i := range 5 {
		u := w.open(t, wire.OpenRequest{Size: 1, Name: fmt.Sprintf("f%d", i)})
		if i == 4 {
			w.send(t, u, []byte{1})
			w.complete(t, u)
		}
		want = append([]string{u.FileID}, want...)
	}
	var got []string
	for cursor, pages := "", 0; ; pages++ {
		l := into[wire.FileList](t, w.call("GET", "/v1/files?limit=2&cursor="+cursor, w.ann, nil))
		for _, f := range l.Files {
			got = append(got, f.ID)
		}
		if cursor = l.NextCursor; cursor == "" || pages > 5 {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if l := into[wire.FileList](t, w.call("GET", "/v1/files?state=active&collection=default", w.ann, nil)); len(l.Files) != 1 || l.Files[0].ID != want[0] {
		t.Errorf("active: %+v", l)
	}
	if a := w.call("GET", "/v1/files?collection=nothing", w.ann, nil); string(a.body) != `{"files":[]}`+"\n" {
		t.Errorf("empty: %s", a.body)
	}
}

func TestOpenOnceMore(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	body := []byte("the same bytes")
	sum := &wire.Checksum{Algorithm: "sha256", Value: models.SHA256.Sum(body)}
	req := wire.OpenRequest{Collection: "instant", Name: "n", Size: int64(len(body)), Checksum: sum}

	first := w.call("POST", "/v1/uploads", w.ann, req, "Idempotency-Key", "key-1")
	again := w.call("POST", "/v1/uploads", w.ann, `{"size":14, "name":"n", "collection":"instant","checksum":{"value":"`+sum.Value+`","algorithm":"sha256"}}`, "Idempotency-Key", "key-1")
	if first.status != 201 || again.status != 201 || again.header.Get("Idempotency-Replayed") != "true" ||
		into[wire.Upload](t, first).ID != into[wire.Upload](t, again).ID || first.header.Get("Location") != again.header.Get("Location") {
		t.Errorf("%d %s\n%d %s", first.status, first.body, again.status, again.body)
	}
	req.Name = "another"
	w.call("POST", "/v1/uploads", w.ann, req, "Idempotency-Key", "key-1").wants(t, 422, models.CodeIdempotencyConflict)

	resumed := w.call("POST", "/v1/uploads", w.ann, req)
	if u := into[wire.Upload](t, resumed); resumed.status != 200 || !u.Resumed || u.ID != into[wire.Upload](t, first).ID {
		t.Errorf("resumed: %d %s", resumed.status, resumed.body)
	}
	u := into[wire.Upload](t, first)
	w.send(t, u, body)
	w.complete(t, u)
	instant := w.call("POST", "/v1/uploads", w.ann, req)
	if u := into[wire.Upload](t, instant); instant.status != 200 || !u.Instant || u.File == nil || len(u.Parts) != 0 {
		t.Errorf("instant: %d %s", instant.status, instant.body)
	}
}

func TestCommitAndAbort(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	u := w.open(t, wire.OpenRequest{Collection: "draft", Size: 3})
	w.call("POST", "/v1/uploads/"+u.ID+"/commit", w.ann, `{"name":"x"}`).wants(t, 409, models.CodeSessionNotCompleted)
	w.send(t, u, []byte("abc"))
	if done := w.complete(t, u); done.State != "completed" {
		t.Errorf("%+v", done)
	}
	w.call("GET", "/v1/files/"+u.FileID+"/url", w.ann, nil).wants(t, 409, models.CodeNotReady)
	f := into[wire.File](t, w.call("POST", "/v1/uploads/"+u.ID+"/commit", w.ann, `{"name":"final.txt","content_type":"text/plain","metadata":{"a":1}}`))
	if f.State != "active" || f.Name != "final.txt" {
		t.Errorf("%+v", f)
	}
	w.call("DELETE", "/v1/uploads/"+u.ID, w.ann, nil).wants(t, 409, models.CodeSessionClosed)

	u = w.open(t, wire.OpenRequest{Size: 6 * mib})
	for range 2 {
		if gone := into[wire.Upload](t, w.call("DELETE", "/v1/uploads/"+u.ID, w.ann, nil)); gone.State != "aborted" || gone.Reason == nil {
			t.Errorf("%+v", gone)
		}
	}
	w.call("POST", "/v1/uploads/"+u.ID+"/parts", w.ann, `{"from":1,"to":1}`).wants(t, 409, models.CodeSessionClosed)
	w.call("POST", "/v1/uploads/"+u.ID+"/complete", w.ann, nil).wants(t, 409, models.CodeSessionClosed)

	u = w.open(t, wire.OpenRequest{Collection: "brief", Size: 1})
	w.stack.Clock.Advance(time.Minute)
	w.call("POST", "/v1/uploads/"+u.ID+"/parts", w.ann, `{"from":1,"to":1}`).wants(t, 410, models.CodeSessionExpired)
	if late := into[wire.Upload](t, w.call("GET", "/v1/uploads/"+u.ID, w.ann, nil)); late.State != "expired" {
		t.Errorf("%+v", late)
	}
}

// A store's webhook alone makes the file active: nobody called complete.
func TestNotificationSettles(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	u := w.open(t, wire.OpenRequest{Size: 3})
	w.send(t, u, []byte("abc"))
	key := stack.Query[string](t, w.stack, "SELECT key FROM uploads")
	event := `{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","eventName":"ObjectCreated:Put","eventTime":"2026-11-30T12:00:00.000Z",` +
		`"s3":{"bucket":{"name":"` + w.stack.S3.Bucket + `"},"object":{"key":"` + key + `","size":3}}}]}`
	w.call("POST", "/v1/notifications/main", w.ann, event).wants(t, 401, models.CodeUnauthenticated)
	if got := into[wire.Upload](t, w.call("GET", "/v1/uploads/"+u.ID, w.ann, nil)); got.State != "uploading" {
		t.Fatalf("an event without the store's token was taken: %+v", got)
	}
	for range 2 {
		if a := w.call("POST", "/v1/notifications/main", storeSecret, event); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if got := into[wire.Upload](t, w.call("GET", "/v1/uploads/"+u.ID, w.ann, nil)); got.State != "committed" || got.File == nil || got.File.State != "active" {
		t.Errorf("%+v", got)
	}
	w.call("POST", "/v1/notifications/main", storeSecret, `{"nothing":"of ours"`).wants(t, 400, models.CodeInvalidRequest)
}

// What another owner or tenant has is answered like what nobody has, on every route.
func TestOthersAreAbsent(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	mine := w.open(t, wire.OpenRequest{Size: 3})
	w.send(t, mine, []byte("abc"))
	w.complete(t, mine)
	open := w.open(t, wire.OpenRequest{Size: 6 * mib})
	before := w.stack.Snapshot(t)
	others := map[string]string{
		"owner":  tokenFor(t, "bob", allScopes),
		"tenant": mint(t, map[string]any{"sub": "ann", "tenant": "acme", "scope": allScopes}),
	}
	for who, token := range others {
		for _, x := range routes {
			if !strings.Contains(x.path, someUpload) && !strings.Contains(x.path, someFile) {
				continue
			}
			// An admin blocks any file of the tenant.
			if who == "owner" && strings.HasSuffix(x.path, "block") {
				continue
			}
			absent := w.call(x.method, x.path, token, x.body)
			absent.wants(t, 404, models.CodeNotFound)
			for _, u := range []wire.Upload{mine, open} {
				a := w.call(x.method, strings.NewReplacer(someUpload, u.ID, someFile, u.FileID).Replace(x.path), token, x.body)
				a.wants(t, 404, models.CodeNotFound)
				same := func(a answer) string {
					return strings.ReplaceAll(string(a.body), a.header.Get("X-Request-Id"), "")
				}
				if same(a) != same(absent) {
					t.Errorf("another %s: %s %s: %s, absent: %s", who, x.method, x.path, a.body, absent.body)
				}
			}
		}
		if l := into[wire.FileList](t, w.call("GET", "/v1/files", token, nil)); len(l.Files) != 0 {
			t.Errorf("another %s lists %+v", who, l)
		}
	}
	if after := w.stack.Snapshot(t); after != before {
		t.Errorf("changed:\n%s\n%s", before, after)
	}
}

// Grants narrow: what they do not allow is refused over HTTP too.
func TestGrants(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	before := w.stack.Snapshot(t)
	token := mint(t, map[string]any{"sub": "ann", "scope": "upload", "berth": map[string]any{
		"collection": "default", "max_bytes": 10, "content_types": []string{"image/*"}, "max_files": 1}})
	open := func(collection, ctype string, size int64) answer {
		return w.call("POST", "/v1/uploads", token, wire.OpenRequest{Collection: collection, Name: "n", Size: size, ContentType: ctype})
	}
	open("crc64", "image/png", 1).wants(t, 403, models.CodeForbidden)
	open("default", "image/png", 11).wants(t, 413, models.CodeTooLarge)
	open("default", "text/plain", 1).wants(t, 415, models.CodeTypeNotAllowed)
	if after := w.stack.Snapshot(t); after != before {
		t.Errorf("changed:\n%s\n%s", before, after)
	}
	if a := open("default", "image/png", 1); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	open("default", "image/png", 1).wants(t, 403, models.CodeForbidden)
}

// S3 itself refuses other bytes than those that the URL was signed for.
func TestOtherBytesAreRefusedByS3(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	for name, size := range map[string]int{"single": 1000, "multipart": 6 * mib} {
		body := stack.Bytes(1, size)
		u := w.open(t, wire.OpenRequest{Size: int64(size)})
		before := w.stack.Snapshot(t)
		urls := w.sign(t, u, body)
		for _, p := range urls {
			good := cut(u, body, p.Number)
			other := bytes.Clone(good)
			other[0] ^= 1
			for what, b := range map[string][]byte{"other bytes": other, "a byte more": append(bytes.Clone(good), 0), "a byte less": good[1:], "nothing": {}} {
				// S3 may hang up on a body that it has refused already: no answer is one too.
				if status, err := stack.Send(t.Context(), stack.Signed(p), b); err == nil && (status < 400 || status > 499) {
					t.Errorf("%s: %s: S3 answered %d", name, what, status)
				}
			}
		}
		// Pins are what signing stores; beyond them nothing has changed.
		if after := w.stack.Snapshot(t); withoutPins(after) != withoutPins(before) {
			t.Errorf("%s changed:\n%s\n%s", name, before, after)
		}
		w.call("POST", "/v1/uploads/"+u.ID+"/complete", w.ann, nil).wants(t, 409, models.CodeMissingParts)
		// Other bytes cannot be pinned now; the right ones still arrive.
		other := bytes.Clone(body)
		other[0] ^= 1
		w.call("POST", "/v1/uploads/"+u.ID+"/parts", w.ann, wire.SignRequest{Parts: []wire.PartToSign{{Number: 1, Checksum: models.SHA256.Sum(cut(u, other, 1))}}}).
			wants(t, 409, models.CodePartConflict)
		for _, p := range urls {
			if status := deliver(t, p, cut(u, body, p.Number)); status != 200 {
				t.Errorf("%s: the right bytes: %d", name, status)
			}
		}
		if done := w.complete(t, u); done.State != "committed" {
			t.Errorf("%s: %+v", name, done)
		}
	}
}

func withoutPins(snapshot string) string {
	var out []string
	for _, s := range strings.Fields(snapshot) {
		if !strings.HasPrefix(s, "pins=") {
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

// What is odd and yet a name is cleaned, not refused.
func TestOddNames(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	for name, want := range map[string]string{
		"\u202egnp.exe":          "gnp.exe",
		" spaces around ":        "spaces around",
		"a\tb\nc":                "abc",
		"...txt":                 "...txt",
		"C'est «ça» 你好 😀.pdf":    "C'est «ça» 你好 😀.pdf",
		"a+b c%20d.txt":          "a+b c%20d.txt",
		"\"quoted\"; x=<y>&z":    "\"quoted\"; x=<y>&z",
		strings.Repeat("ñ", 512): strings.Repeat("ñ", 512),
	} {
		u := w.open(t, wire.OpenRequest{Name: name, Size: 1})
		if f := into[wire.File](t, w.call("GET", "/v1/files/"+u.FileID, w.ann, nil)); f.Name != want {
			t.Errorf("%q became %q", name, f.Name)
		}
		if key := stack.Query[string](t, w.stack, "SELECT key FROM uploads WHERE id = $1", u.ID); strings.ContainsAny(key, " +%\"<ñ你") {
			t.Errorf("%q became the key %q", name, key)
		}
	}
}

// Bad input gets its code, changes nothing and leaves nothing behind.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	openBody := func(change string) string {
		fields := map[string]string{"collection": `"default"`, "name": `"n.bin"`, "size": `10`}
		var out []string
		for _, c := range strings.Split(change, "; ") {
			k, v, _ := strings.Cut(c, "=")
			if k != "" {
				fields[k] = v
			}
		}
		for k, v := range fields {
			if v != "-" {
				out = append(out, fmt.Sprintf("%q:%s", k, v))
			}
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	if a := w.call("POST", "/v1/uploads", w.ann, openBody("size=6291456")); a.status != 201 {
		t.Fatalf("the table's base is not good: %d %s", a.status, a.body)
	} else if u := into[wire.Upload](t, a); w.call("DELETE", "/v1/uploads/"+u.ID, w.ann, nil).status != 200 {
		t.Fatal("not aborted")
	}
	multi := w.open(t, wire.OpenRequest{Size: 12 * mib})
	single := w.open(t, wire.OpenRequest{Size: 10})
	draft := w.open(t, wire.OpenRequest{Collection: "draft", Size: 10})
	up, one, dr := "/v1/uploads/"+multi.ID, "/v1/uploads/"+single.ID, "/v1/uploads/"+draft.ID
	file := "/v1/files/" + multi.FileID
	sha := models.SHA256.Sum([]byte("x"))
	crc := models.CRC64NVME.Sum([]byte("x"))
	sum := func(fields string) string { return openBody("checksum={" + fields + "}") }
	part := func(fields string) string { return `{"parts":[` + fields + `]}` }
	pinned := func(n string) string { return `{"number":` + n + `,"checksum":"` + sha + `"}` }

	type row struct {
		name, method, path, body string
		status                   int
		code                     models.Code
		field                    string
	}
	opening := func(name, body string, status int, code models.Code, field string) row {
		return row{"open: " + name, "POST", "/v1/uploads", body, status, code, field}
	}
	bad := models.CodeInvalidRequest
	rows := []row{
		opening("name with NUL", openBody(`name="a\u0000b"`), 400, bad, "name"),
		opening("name with slash", openBody(`name="a/b"`), 400, bad, "name"),
		opening("name with backslash", openBody(`name="a\\b"`), 400, bad, "name"),
		opening("name of dots", openBody(`name=".."`), 400, bad, "name"),
		opening("path", openBody(`name="../../etc/passwd"`), 400, bad, "name"),
		opening("marks only", openBody(`name="\u202e\u200f"`), 400, bad, "name"),
		opening("10 kB name", openBody(`name="`+strings.Repeat("n", 10_000)+`"`), 400, bad, "name"),
		opening("513 characters", openBody(`name="`+strings.Repeat("n", 513)+`"`), 400, bad, "name"),
		opening("empty name", openBody(`name=""`), 400, bad, "name"),
		opening("spaces", openBody(`name="  "`), 400, bad, "name"),
		opening("no name", openBody(`name=-`), 400, bad, "name"),
		opening("name bad UTF-8", openBody("name=\"a\xffb\""), 400, bad, ""),
		opening("half surrogate", openBody(`name="a\ud800"`), 400, bad, "name"),
		opening("negative size", openBody(`size=-1`), 400, bad, "size"),
		opening("size beyond S3", openBody(`size=53687091200001`), 413, models.CodeTooLarge, ""),
		opening("size beyond int64", openBody(`size=9223372036854775808`), 400, bad, "size"),
		opening("largest int64", openBody(`size=9223372036854775807`), 413, models.CodeTooLarge, ""),
		opening("size over the collection", openBody(`collection="resume"; name="n.pdf"; size=10485761`), 413, models.CodeTooLarge, ""),
		opening("size text", openBody(`size="10"`), 400, bad, "size"),
		opening("size fraction", openBody(`size=1.5`), 400, bad, "size"),
		opening("size exponent", openBody(`size=1e3`), 400, bad, "size"),
		opening("size null", openBody(`size=null`), 400, bad, "size"),
		opening("size list", openBody(`size=[1]`), 400, bad, "size"),
		opening("no size", openBody(`size=-`), 400, bad, "size"),
		opening("unknown collection", openBody(`collection="nothing"`), 400, bad, "collection"),
		opening("empty collection", openBody(`collection=""`), 400, bad, "collection"),
		opening("collection with NUL", openBody(`collection="default\u0000"`), 400, bad, "collection"),
		opening("huge collection", openBody(`collection="`+strings.Repeat("c", 100_000)+`"`), 400, bad, "collection"),
		opening("extension", openBody(`collection="resume"; name="n.exe"`), 415, models.CodeTypeNotAllowed, ""),
		opening("type", openBody(`content_type="nonsense"`), 400, bad, "content_type"),
		opening("type with newline", openBody(`content_type="text/plain\r\nX-Evil: 1"`), 400, bad, "content_type"),
		opening("long type", openBody(`content_type="text/`+strings.Repeat("x", 300)+`"`), 400, bad, "content_type"),
		opening("commit", openBody(`commit="maybe"`), 400, bad, "commit"),
		opening("metadata list", openBody(`metadata=[1]`), 400, models.CodeMetadataInvalid, "metadata"),
		opening("metadata text", openBody(`metadata="a"`), 400, models.CodeMetadataInvalid, "metadata"),
		opening("metadata large", openBody(`metadata={"a":"`+strings.Repeat("x", 20_000)+`"}`), 400, models.CodeMetadataInvalid, "metadata"),
		opening("metadata NUL", openBody(`metadata={"a":"\u0000"}`), 400, bad, "metadata.a"),
		opening("metadata NUL name", openBody(`metadata={"\u0000":1}`), 400, bad, "metadata"),
		opening("metadata number", openBody(`metadata={"a":1e400000}`), 400, bad, "metadata.a"),
		opening("metadata deep", openBody(`metadata=`+strings.Repeat(`{"a":`, 50)+"1"+strings.Repeat("}", 50)), 400, bad, ""),
		opening("algorithm", sum(`"algorithm":"md5"`), 400, bad, "checksum"),
		opening("algorithm, read only", sum(`"algorithm":"crc32"`), 400, bad, "checksum"),
		opening("checksum type", sum(`"algorithm":"sha256","type":"whole"`), 400, bad, "checksum"),
		opening("type not attested", sum(`"algorithm":"sha256","type":"composite","value":"`+sha+`-1"`), 400, bad, "checksum"),
		opening("not base64", sum(`"algorithm":"sha256","value":"!!!"`), 400, bad, "checksum"),
		opening("hex", sum(`"algorithm":"sha256","value":"`+strings.Repeat("ab", 32)+`"`), 400, bad, "checksum"),
		opening("URL base64", sum(`"algorithm":"sha256","value":"`+strings.Repeat("_", 43)+`="`), 400, bad, "checksum"),
		opening("loose base64", sum(`"algorithm":"sha256","value":"`+strings.Repeat("A", 42)+`B="`), 400, bad, "checksum"),
		opening("digest of another length", sum(`"algorithm":"sha256","value":"`+crc+`"`), 400, bad, "checksum"),
		opening("digest with newline", sum(`"algorithm":"sha256","value":"`+sha+`\n"`), 400, bad, "checksum"),
		opening("empty object", `{}`, 400, bad, "collection"),
		opening("no JSON", `name=n&size=10`, 400, bad, ""),
		opening("two values", openBody("")+openBody(""), 400, bad, ""),
		opening("cut off", openBody("")[:20], 400, bad, ""),
		opening("unknown field", openBody(`key="k"`), 400, bad, "key"),
		opening("owner in the body", openBody(`owner="bob"`), 400, bad, "owner"),
		opening("name twice", `{"name":"a",`+openBody("")[1:], 400, bad, "name"),
		opening("too deep", strings.Repeat(`{"a":`, 10_000), 400, bad, ""),
		opening("too large", openBody(`name="`+strings.Repeat("n", mib)+`"`), 413, models.CodeTooLarge, ""),

		{"sign: part 0", "POST", up + "/parts", part(pinned("0")), 400, models.CodePartOutOfRange, ""},
		{"sign: part 10,001", "POST", up + "/parts", part(pinned("10001")), 400, models.CodePartOutOfRange, ""},
		{"sign: part beyond", "POST", up + "/parts", part(pinned("4")), 400, models.CodePartOutOfRange, ""},
		{"sign: part -1", "POST", up + "/parts", part(pinned("-1")), 400, models.CodePartOutOfRange, ""},
		{"sign: part 2^63", "POST", up + "/parts", part(pinned("9223372036854775808")), 400, bad, "parts[0].number"},
		{"sign: part 1.0", "POST", up + "/parts", part(pinned("1.0")), 400, bad, "parts[0].number"},
		{"sign: part twice", "POST", up + "/parts", part(pinned("1") + "," + pinned("1")), 400, bad, ""},
		{"sign: one good, one not", "POST", up + "/parts", part(pinned("1") + "," + pinned("10001")), 400, models.CodePartOutOfRange, ""},
		{"sign: range from 0", "POST", one + "/parts", `{"from":0,"to":1}`, 400, models.CodePartOutOfRange, ""},
		{"sign: range beyond", "POST", one + "/parts", `{"from":1,"to":10001}`, 400, models.CodePartOutOfRange, ""},
		{"sign: range backwards", "POST", up + "/parts", `{"from":3,"to":1}`, 400, models.CodePartOutOfRange, ""},
		{"sign: range at large", "POST", up + "/parts", `{"from":-9223372036854775808,"to":9223372036854775807}`, 400, models.CodePartOutOfRange, ""},
		{"sign: checksum not base64", "POST", up + "/parts", part(`{"number":1,"checksum":"???"}`), 400, bad, ""},
		{"sign: checksum length", "POST", up + "/parts", part(`{"number":1,"checksum":"` + crc + `"}`), 400, bad, ""},
		{"sign: checksum missing", "POST", up + "/parts", part(`{"number":1}`), 400, bad, ""},
		{"sign: nothing", "POST", up + "/parts", `{}`, 400, bad, "parts"},

		{"complete: checksum length", "POST", one + "/complete", `{"checksum":{"algorithm":"sha256","value":"` + crc + `"}}`, 400, bad, "checksum"},
		{"complete: another algorithm", "POST", one + "/complete", `{"checksum":{"algorithm":"crc64nvme","value":"` + crc + `"}}`, 400, bad, "checksum"},
		{"complete: part 0", "POST", up + "/complete", part(`{"number":0,"etag":"x"}`), 400, models.CodePartOutOfRange, ""},
		{"complete: part 10,001", "POST", up + "/complete", part(`{"number":10001,"etag":"x"}`), 400, models.CodePartOutOfRange, ""},
		{"complete: unknown field", "POST", up + "/complete", `{"force":true}`, 400, bad, "force"},
		{"complete: nothing sent, single", "POST", one + "/complete", ``, 409, models.CodeMissingParts, ""},

		{"commit: nothing sent", "POST", dr + "/commit", `{"name":"n"}`, 409, models.CodeSessionNotCompleted, ""},
		{"commit: bad name", "POST", dr + "/commit", `{"name":"a/b"}`, 400, bad, "name"},
		{"commit: bad type", "POST", dr + "/commit", `{"name":"n","content_type":"x"}`, 400, bad, "content_type"},
		{"commit: bad metadata", "POST", dr + "/commit", `{"name":"n","metadata":[]}`, 400, models.CodeMetadataInvalid, "metadata"},
		{"commit: no name", "POST", dr + "/commit", `{}`, 400, bad, "name"},

		{"file: not ready", "GET", file + "/url", "", 409, models.CodeNotReady, ""},
		{"file: content not ready", "GET", file + "/content", "", 409, models.CodeNotReady, ""},
		{"file: bad name", "PATCH", file, `{"name":"a\u0000"}`, 400, bad, "name"},
		{"file: name of dots", "PATCH", file, `{"name":"."}`, 400, bad, "name"},
		{"file: bad metadata", "PATCH", file, `{"metadata":7}`, 400, models.CodeMetadataInvalid, "metadata"},
		{"file: history cursor", "GET", file + "/history?cursor=nonsense", "", 400, bad, "cursor"},
		{"file: history cursor, other base64", "GET", file + "/history?cursor=" + base64.RawURLEncoding.EncodeToString([]byte("' OR 1=1")), "", 400, bad, "cursor"},
		{"files: cursor", "GET", "/v1/files?cursor=nonsense", "", 400, bad, "cursor"},
		{"files: cursor of another kind", "GET", "/v1/files?cursor=" + base64.RawURLEncoding.EncodeToString([]byte(multi.ID)), "", 400, bad, "cursor"},
		{"files: state", "GET", "/v1/files?state=ACTIVE", "", 400, bad, "state"},
		{"files: limit", "GET", "/v1/files?limit=1e2", "", 400, bad, "limit"},
		{"upload: file's id", "GET", "/v1/uploads/" + multi.FileID, "", 404, models.CodeNotFound, ""},
		{"upload: unknown", "GET", "/v1/uploads/" + someUpload, "", 404, models.CodeNotFound, ""},
		{"upload: unknown, complete", "POST", "/v1/uploads/" + someUpload + "/complete", "", 404, models.CodeNotFound, ""},
		{"upload: SQL", "GET", "/v1/uploads/upl_'%20OR%201=1--", "", 404, models.CodeNotFound, ""},
		{"file: unknown, delete", "DELETE", "/v1/files/" + someFile, "", 404, models.CodeNotFound, ""},
		{"file: unknown, block", "POST", "/v1/files/" + someFile + "/block", "", 404, models.CodeNotFound, ""},
	}
	before := w.stack.Snapshot(t)
	for _, r := range rows {
		var body any
		if r.body != "" {
			body = r.body
		}
		a := w.call(r.method, r.path, w.ann, body)
		if a.status != r.status || a.problem(t).Code != string(r.code) {
			t.Errorf("%s: answered %d %s, want %d %s", r.name, a.status, a.body, r.status, r.code)
			continue
		}
		if field := a.member(t, "field"); r.field != "" && field != r.field {
			t.Errorf("%s: names the field %v: %s", r.name, field, a.body)
		}
		if after := w.stack.Snapshot(t); after != before {
			t.Errorf("%s changed:\n%s\n%s", r.name, before, after)
			before = after
		}
	}
	// Completing before any part begins and gives up an attempt, which the history
	// tells; the session and all else are as they were.
	w.call("POST", up+"/complete", w.ann, nil).wants(t, 409, models.CodeMissingParts)
	if got := into[wire.Upload](t, w.call("GET", up, w.ann, nil)); got.State != "uploading" {
		t.Errorf("%+v", got)
	}
	if after := w.stack.Snapshot(t); withoutHistory(after) != withoutHistory(before) {
		t.Errorf("complete before any part changed:\n%s\n%s", before, after)
	}
	// Nothing was left at S3 beyond the multipart that was rightly begun, and the one
	// that the reaper will take.
	if s := w.stack.Snapshot(t); !strings.Contains(s, "versions=0 multiparts=2") {
		t.Errorf("left behind: %s", s)
	}
}

func withoutHistory(snapshot string) string {
	var out []string
	for _, s := range strings.Fields(snapshot) {
		if !strings.HasPrefix(s, "history=") {
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}
