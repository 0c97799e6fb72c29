package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"berth/controlplane/httpapi"
	"berth/internal/stack"
	"berth/models"

	"github.com/golang-jwt/jwt/v5"
)

// uppyStack is the API on a whole control plane.
func uppyStack(t testing.TB) (*server, *stack.Stack) {
	t.Helper()
	k := stack.New(t)
	return serve(t, func(c *httpapi.Config) { c.Service, c.Now = k.Service, k.Clock.Now }), k
}

// created is a multipart upload as Uppy knows it.
type created struct{ Key, UploadID, Bucket string }

func (m created) path(tail, more string) string {
	return "/s3/multipart/" + url.PathEscape(m.UploadID) + tail + "?key=" + url.QueryEscape(m.Key) + more
}

func create(t testing.TB, s *server, base, name, collection string) created {
	t.Helper()
	a := s.call("POST", base+"/s3/multipart", "", map[string]any{"filename": name, "type": "text/plain", "metadata": map[string]any{"collection": collection}})
	if a.status != 200 {
		t.Fatalf("create: %d %s", a.status, a.body)
	}
	m := into[created](t, a)
	if m.Key == "" || m.UploadID == "" || m.Bucket == "" {
		t.Fatalf("create: %s", a.body)
	}
	return m
}

// putPart sends a part as Uppy does: a plain PUT.
func putPart(t testing.TB, s *server, base string, m created, number int, body []byte) map[string]any {
	t.Helper()
	a := s.call("GET", base+m.path(fmt.Sprint("/", number), ""), "", nil)
	if a.status != 200 {
		t.Fatalf("sign: %d %s", a.status, a.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, a.member(t, "url").(string), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != 200 {
		t.Fatalf("part %d: S3 answered %d", number, resp.StatusCode)
	}
	return map[string]any{"PartNumber": number, "ETag": strings.Trim(resp.Header.Get("ETag"), `"`)}
}

func TestUppyMultipart(t *testing.T) {
	t.Parallel()
	s, k := uppyStack(t)
	base := "/uppy/" + grant(t, "ann", map[string]any{})
	m := create(t, s, base, "a+b c%20d 📦.txt", "")
	data := stack.Bytes(1, 11<<20)
	if a := s.call("GET", base+m.path("", ""), "", nil); string(a.body) != "[]\n" {
		t.Fatalf("list of nothing: %s", a.body)
	}
	s.call("POST", base+m.path("/complete", ""), "", map[string]any{"parts": []any{map[string]any{"PartNumber": 1, "ETag": "e"}}}).
		refused(t, 409, models.CodeMissingParts)
	var parts []any
	for i := range 3 {
		parts = append(parts, putPart(t, s, base, m, i+1, data[i*5<<20:min((i+1)*5<<20, len(data))]))
	}
	var listed []struct {
		PartNumber, Size int
		ETag             string
	}
	if err := json.Unmarshal(s.call("GET", base+m.path("", ""), "", nil).body, &listed); err != nil || len(listed) != 3 || listed[2].Size != 1<<20 || listed[2].PartNumber != 3 || !strings.HasPrefix(listed[2].ETag, `"`) {
		t.Fatalf("listed %+v: %v", listed, err)
	}
	urls := s.call("GET", base+m.path("/batch", "&partNumbers=1,10000"), "", nil).member(t, "presignedUrls").(map[string]any)
	if len(urls) != 2 || urls["1"] == "" || urls["10000"] == "" {
		t.Fatalf("batch: %v", urls)
	}
	s.call("GET", base+m.path("/10001", ""), "", nil).refused(t, 400, models.CodePartOutOfRange)
	s.call("GET", base+m.path("/0", ""), "", nil).refused(t, 400, models.CodePartOutOfRange)
	// A list that leaves one out, and one that tells of other bytes.
	s.call("POST", base+m.path("/complete", ""), "", map[string]any{"parts": parts[:2]}).refused(t, 409, models.CodePartCorrupt)
	s.call("POST", base+m.path("/complete", ""), "", map[string]any{"parts": []any{parts[0], parts[1], map[string]any{"PartNumber": 3, "ETag": "x"}}}).
		refused(t, 409, models.CodePartCorrupt)

	first := s.call("POST", base+m.path("/complete", ""), "", map[string]any{"parts": parts})
	if first.status != 200 {
		t.Fatalf("complete: %d %s", first.status, first.body)
	}
	again := s.call("POST", base+m.path("/complete", ""), "", map[string]any{"parts": parts})
	if again.status != 200 || string(again.body) != string(first.body) {
		t.Fatalf("again: %d %s, first %s", again.status, again.body, first.body)
	}
	if err := json.Unmarshal(s.call("GET", base+m.path("", ""), "", nil).body, &listed); err != nil || len(listed) != 3 {
		t.Fatalf("a completed upload lists %+v: %v", listed, err)
	}
	s.call("DELETE", base+m.path("", ""), "", nil).refused(t, 409, models.CodeSessionClosed)
	s.call("GET", base+m.path("/1", ""), "", nil).refused(t, 409, models.CodeSessionClosed)

	location := first.member(t, "location").(string)
	id, _, _ := strings.Cut(strings.TrimPrefix(location, s.url+"/v1/files/"), "/")
	f, err := k.Service.File(t.Context(), stack.Caller("ann"), models.FileID(id))
	if err != nil || f.State != models.FileActive || f.Size != int64(len(data)) || f.Declared || f.Checksum.IsZero() || f.Name != "a+b c%20d 📦.txt" || f.ContentType != "text/plain" {
		t.Fatalf("file %+v: %v", f, err)
	}
	s.undocumented() // the store's answer
	content := s.call("GET", "/v1/files/"+id+"/content", tokenFor(t, "ann", "read"), nil)
	resp, err := http.Get(content.header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("read %d bytes back: %v", len(got), err)
	}
}

func TestUppyForm(t *testing.T) {
	t.Parallel()
	s, k := uppyStack(t)
	base := "/uppy/" + grant(t, "ann", map[string]any{"collection": "resume", "max_bytes": 1000})
	for _, c := range []struct {
		size   int
		status int
	}{{0, 200}, {1000, 200}, {1001, 400}} {
		a := s.call("GET", base+"/s3/params?filename="+url.QueryEscape("سيرة ذاتية.pdf")+"&type=application%2Fpdf&metadata%5Bwhy%5D=%F0%9F%93%A6", "", nil)
		if a.status != 200 {
			t.Fatalf("params: %d %s", a.status, a.body)
		}
		var form struct {
			Method, URL string
			Fields      map[string]string
			Expires     int
		}
		if err := json.Unmarshal(a.body, &form); err != nil {
			t.Fatal(err)
		}
		status := postForm(t, form.URL, form.Fields, stack.Bytes(byte(c.size), c.size))
		if (status < 300) != (c.status == 200) {
			t.Fatalf("%d bytes: S3 answered %d", c.size, status)
		}
		// What the store reports through its events.
		errs := k.Service.Settle(t.Context(), []models.ObjectEvent{{Store: stack.Main, Key: form.Fields["key"], Created: true}})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		var state, meta string
		if err := k.Pool().QueryRow(t.Context(), "SELECT f.state, f.metadata FROM files f JOIN uploads u ON u.file_id = f.id WHERE u.key = $1", form.Fields["key"]).Scan(&state, &meta); err != nil {
			t.Fatal(err)
		}
		want := models.FileActive
		if c.status != 200 {
			want = models.FilePreparing
		}
		if state != string(want) || !strings.Contains(meta, `"why"`) || strings.Contains(meta, "relativePath") {
			t.Errorf("%d bytes: file %s with metadata %s", c.size, state, meta)
		}
	}
}

func postForm(t testing.TB, to string, fields map[string]string, body []byte) int {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, v := range fields {
		_ = w.WriteField(name, v)
	}
	part, _ := w.CreateFormFile("file", "blob")
	_, _ = part.Write(body)
	_ = w.Close()
	resp, err := http.Post(to, w.FormDataContentType(), &b)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// One owner's token or grant does nothing to another's upload, through any of the routes,
// and neither does a pair of key and upload id that do not belong together.
func TestUppyKeepsOwnersApart(t *testing.T) {
	t.Parallel()
	s, k := uppyStack(t)
	ann := "/uppy/" + grant(t, "ann", map[string]any{})
	m := create(t, s, ann, "a.txt", "")
	part := putPart(t, s, ann, m, 1, []byte("hello"))
	other := create(t, s, ann, "b.txt", "")
	eves := create(t, s, "/uppy/"+grant(t, "eve", map[string]any{}), "e.txt", "")

	narrow := func(sub, tenant, collection string) string {
		return "/uppy/" + mint(t, jwt.MapClaims{"sub": sub, "tenant": tenant, "scope": "upload", "berth": map[string]any{"collection": collection}})
	}
	before := k.Snapshot(t)
	for name, c := range map[string]struct {
		base string
		m    created
	}{
		"another owner":           {narrow("eve", "default", "default"), m},
		"another tenant":          {narrow("ann", "other", "default"), m},
		"a grant for elsewhere":   {narrow("ann", "default", "draft"), m},
		"key of one, id of other": {ann, created{Key: m.Key, UploadID: other.UploadID}},
		"own key, another's id":   {narrow("eve", "default", "default"), created{Key: eves.Key, UploadID: m.UploadID}},
		"another's key, own id":   {narrow("eve", "default", "default"), created{Key: m.Key, UploadID: eves.UploadID}},
		"a key that is not":       {ann, created{Key: m.Key + "x", UploadID: m.UploadID}},
		"an id that is not":       {ann, created{Key: m.Key, UploadID: m.UploadID + "x"}},
	} {
		body := map[string]any{"parts": []any{part}}
		for _, x := range []struct {
			method, path string
			body         any
		}{
			{"GET", c.m.path("", ""), nil}, {"GET", c.m.path("/1", ""), nil}, {"GET", c.m.path("/batch", "&partNumbers=1,2"), nil},
			{"POST", c.m.path("/complete", ""), body}, {"DELETE", c.m.path("", ""), nil},
		} {
			a := s.call(x.method, c.base+x.path, "", x.body)
			if a.status != 404 {
				t.Errorf("%s: %s %s answered %d %s", name, x.method, x.path, a.status, a.body)
			}
		}
	}
	if after := k.Snapshot(t); after != before {
		t.Errorf("something was changed:\n%s\n%s", before, after)
	}
	// The control: the owner may do all of it.
	if a := s.call("POST", ann+m.path("/complete", ""), "", map[string]any{"parts": []any{part}}); a.status != 200 {
		t.Fatalf("the owner's complete: %d %s", a.status, a.body)
	}
	for range 2 {
		if a := s.call("DELETE", ann+other.path("", ""), "", nil); a.status != 200 || string(a.body) != "{}\n" {
			t.Fatalf("the owner's abort: %d %s", a.status, a.body)
		}
	}
	s.call("GET", ann+other.path("", ""), "", nil).refused(t, 409, models.CodeSessionClosed)
}

// A grant's limits hold where no size is told: at complete, from the store's list.
func TestUppyGrantLimits(t *testing.T) {
	t.Parallel()
	s, k := uppyStack(t)
	base := "/uppy/" + grant(t, "ann", map[string]any{"max_bytes": 10, "content_types": []string{"text/*"}, "max_files": 3, "id": "g1"})
	for size, want := range map[int]int{10: 200, 11: 413} {
		m := create(t, s, base, "a.txt", "")
		part := putPart(t, s, base, m, 1, stack.Bytes(1, size))
		for range 2 { // the same answer again
			if a := s.call("POST", base+m.path("/complete", ""), "", map[string]any{"parts": []any{part}}); a.status != want {
				t.Errorf("%d bytes: %d %s, want %d", size, a.status, a.body, want)
			}
		}
	}
	s.call("POST", base+"/s3/multipart", "", `{"filename":"a","type":"image/png"}`).refused(t, 415, models.CodeTypeNotAllowed)
	s.call("POST", base+"/s3/multipart", "", `{"filename":"a","type":"text/plain","metadata":{"collection":"nowhere"}}`)
	if a := s.call("GET", base+"/s3/params?filename=a&type=text%2Fplain", "", nil); a.status != 200 {
		t.Errorf("the third: %d %s", a.status, a.body)
	}
	s.call("GET", base+"/s3/params?filename=a&type=text%2Fplain", "", nil).refused(t, 403, models.CodeForbidden)
	if n := stack.Query[int64](t, k, "SELECT count(*) FROM files WHERE state = 'active'"); n != 1 {
		t.Errorf("%d files are active", n)
	}
}
