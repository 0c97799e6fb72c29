package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/httpapi"
	"berth/models"
	"berth/tracing"

	"github.com/golang-jwt/jwt/v5"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Multipart upload ids: one, and one as no store promises not to give, which takes an
// undocumented server: the document's check calls its path ambiguous.
const (
	someS3ID = "2~a-b_c.d"
	oddS3ID  = "2~a/b+c=%2F.."
)

func (r *recorder) Form(ctx context.Context, c models.Caller, id models.UploadID) (models.SignedForm, time.Time, error) {
	return models.SignedForm{URL: "https://s3.example.com/b", Fields: map[string]string{"key": "k", "policy": "p"}}, time.Now().Add(time.Minute), r.err
}

func (r *recorder) UploadOf(_ context.Context, _ models.Caller, key, s3 string) (models.UploadID, error) {
	if key != "c/k" || (s3 != someS3ID && s3 != oddS3ID) {
		return "", models.NotFound("upload")
	}
	return someUpload, nil
}

func (r *recorder) Bucket(models.StoreName) string { return "bucket" }

// uppyCall is one of Companion's calls, with a query that is good.
type uppyCall struct {
	method, path string
	body         any
}

const ofID = "/s3/multipart/" + someS3ID

var uppyCalls = []uppyCall{
	{"GET", "/s3/params?filename=a.txt&type=text%2Fplain&metadata%5Bname%5D=a.txt", nil},
	{"POST", "/s3/multipart", `{"filename":"a.txt","type":"text/plain","metadata":{"name":"a.txt"}}`},
	{"GET", ofID + "?key=c%2Fk", nil},
	{"GET", ofID + "/batch?key=c%2Fk&partNumbers=1", nil},
	{"GET", ofID + "/1?key=c%2Fk", nil},
	{"POST", ofID + "/complete?key=c%2Fk", `{"parts":[{"PartNumber":1,"ETag":"\"e\""}]}`},
	{"DELETE", ofID + "?key=c%2Fk", nil},
}

func grant(t testing.TB, owner string, claims map[string]any) string {
	t.Helper()
	return mint(t, jwt.MapClaims{"sub": owner, "scope": "upload", "berth": claims})
}

// refused fails unless the answer is a refusal in Companion's form.
func (a answer) refused(t testing.TB, status int, code models.Code) {
	t.Helper()
	var p struct{ Error, Message, RequestID string }
	if err := json.Unmarshal(a.body, &p); err != nil || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s is no refusal: %s", a.status, a.header.Get("Content-Type"), a.body)
	}
	if a.status != status || p.Error != string(code) || p.Message == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Fatalf("answered %d %s, want %d %s", a.status, a.body, status, code)
	}
}

func recordUppy(t testing.TB, change ...func(*httpapi.Config)) (*server, *recorder) {
	t.Helper()
	s, r := record(t, change...)
	r.parts = []models.SignedPart{{Number: 1, Size: models.AnySize, Method: "PUT", URL: signedURL}}
	return s, r
}

func TestUppyCallers(t *testing.T) {
	t.Parallel()
	s, r := recordUppy(t)
	token := tokenFor(t, "ann", "upload")
	narrow := grant(t, "ann", map[string]any{"collection": "c"})
	for _, x := range uppyCalls {
		call := func(path, token string, header ...string) answer {
			return s.call(x.method, path+x.path, token, x.body, header...)
		}
		cookie := httpapi.UppyCookie + "=" + token
		for name, a := range map[string]answer{
			"bearer":             call("/uppy", token),
			"bearer, cross-site": call("/uppy", token, "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"),
			"cookie":             call("/uppy", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin"),
			"cookie, old":        call("/uppy", "", "Cookie", cookie, "Origin", s.url),
			"path":               call("/uppy/"+narrow, ""),
			"path, cross-site":   call("/uppy/"+narrow, "", "Sec-Fetch-Site", "cross-site", "Origin", "https://app.example.com"),
		} {
			if a.status != 200 {
				t.Errorf("%s %s by %s: %d %s", x.method, x.path, name, a.status, a.body)
			}
			if got := a.header.Get("Referrer-Policy"); got != "no-referrer" {
				t.Errorf("%s: Referrer-Policy %q", name, got)
			}
		}
		asked := len(r.asked)
		call("/uppy", "").refused(t, 401, models.CodeUnauthenticated)
		call("/uppy", token+"x").refused(t, 401, models.CodeUnauthenticated)
		call("/uppy", "nonsense", "Cookie", cookie, "Sec-Fetch-Site", "same-origin").refused(t, 401, models.CodeUnauthenticated)
		call("/uppy", tokenFor(t, "ann", "read delete admin")).refused(t, 403, models.CodeForbidden)
		for _, h := range [][]string{
			{}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "none"},
			{"Sec-Fetch-Site", "cross-site", "Origin", s.url}, {"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", s.url + ".evil.example"},
		} {
			call("/uppy", "", append(h, "Cookie", cookie)...).refused(t, 403, models.CodeForbidden)
		}
		same := []string{"Sec-Fetch-Site", "same-origin"}
		call("/uppy", "", append(same, "Cookie", cookie+"; "+cookie)...).refused(t, 401, models.CodeUnauthenticated)
		call("/uppy", "", append(same, "Cookie", cookie+"x")...).refused(t, 401, models.CodeUnauthenticated)
		call("/uppy/"+narrow+"x", "").refused(t, 401, models.CodeUnauthenticated)
		call("/uppy/nonsense", token, append(same, "Cookie", cookie)...).refused(t, 401, models.CodeUnauthenticated)
		call("/uppy/"+token, "").refused(t, 403, models.CodeForbidden) // not narrowed
		call("/uppy/"+mint(t, jwt.MapClaims{"scope": "read", "berth": map[string]any{}}), "").refused(t, 403, models.CodeForbidden)
		long := mint(t, jwt.MapClaims{"scope": "upload", "berth": map[string]any{}, "exp": time.Now().Add(25 * time.Hour).Unix()})
		call("/uppy/"+long, "").refused(t, 403, models.CodeForbidden)
		if len(r.asked) != asked {
			t.Fatalf("%s %s: a use case was asked", x.method, x.path)
		}
	}
	// The cookie is for Companion's API only.
	s.call("GET", "/v1/files", "", nil, "Cookie", httpapi.UppyCookie+"="+tokenFor(t, "ann", allScopes), "Sec-Fetch-Site", "same-origin").
		wants(t, 401, models.CodeUnauthenticated)
}

func TestUppyAnswers(t *testing.T) {
	t.Parallel()
	s, r := recordUppy(t)
	token := tokenFor(t, "ann", "upload")
	get := func(path string) answer { return s.call("GET", "/uppy"+path, token, nil) }

	form := get(uppyCalls[0].path)
	if form.member(t, "method") != "POST" || form.member(t, "fields").(map[string]any)["key"] != "k" || form.member(t, "expires").(float64) < 50 {
		t.Errorf("params: %s", form.body)
	}
	if a := get(ofID + "/batch?key=c%2Fk&partNumbers=1"); string(a.body) != `{"presignedUrls":{"1":"`+signedURL+`"}}`+"\n" {
		t.Errorf("batch: %s", a.body)
	}
	if a := get(ofID + "?key=c%2Fk"); string(a.body) != `[{"PartNumber":1,"ETag":"\"e\"","Size":3}]`+"\n" {
		t.Errorf("list: %s", a.body)
	}
	if a := s.call("DELETE", "/uppy"+ofID+"?key=c%2Fk", token, nil); string(a.body) != "{}\n" || a.status != 200 {
		t.Errorf("abort: %d %s", a.status, a.body)
	}
	for _, etag := range []string{"e", `"e"`} {
		a := s.call("POST", "/uppy"+ofID+"/complete?key=c%2Fk", token, map[string]any{"parts": []any{map[string]any{"PartNumber": 1, "ETag": etag}}})
		if a.member(t, "location") != s.url+"/v1/files/"+someFile+"/content" || a.member(t, "key") != "c/k" || a.member(t, "bucket") != "bucket" {
			t.Errorf("complete: %s", a.body)
		}
		if req := r.last().(controlplane.CompleteRequest); len(req.Parts) != 1 || req.Parts[0] != (models.Part{Number: 1, ETag: "e"}) {
			t.Errorf("complete asked %+v", req)
		}
	}
	sts := get("/s3/sts")
	sts.refused(t, 404, models.CodeNotFound)
	if !strings.Contains(string(sts.body), "temporary credentials") {
		t.Errorf("sts does not say why: %s", sts.body)
	}
	asked := len(r.asked)
	if a := s.call("HEAD", "/uppy"+uppyCalls[0].path, token, nil); a.status != 405 || len(r.asked) != asked {
		t.Errorf("HEAD opened an upload: %d", a.status)
	}
	odd, _ := recordUppy(t)
	odd.undocumented()
	for _, tail := range []string{"", "/1", "/batch"} {
		if a := odd.call("GET", "/uppy/s3/multipart/2~a%2Fb%2Bc%3D%252F.."+tail+"?key=c%2Fk&partNumbers=1", token, nil); tail != "" && a.status != 200 {
			t.Errorf("odd id %s: %d %s", tail, a.status, a.body)
		}
	}
	public, _ := recordUppy(t, func(c *httpapi.Config) { c.PublicURL = "https://up.example.com/" })
	a := public.call("POST", "/uppy"+ofID+"/complete?key=c%2Fk", token, uppyCalls[5].body)
	if a.member(t, "location") != "https://up.example.com/v1/files/"+someFile+"/content" {
		t.Errorf("location: %s", a.body)
	}
}

// What Uppy says of a file reaches the use case, whichever way it says it.
func TestUppyOpens(t *testing.T) {
	t.Parallel()
	s, r := recordUppy(t)
	token := tokenFor(t, "ann", "upload")
	names := []string{"📦 ünï.txt", "ملف عربي.pdf", "a+b c%20d.txt", strings.Repeat("長", 300), strings.Repeat("x", 500)}
	for _, name := range names {
		q := "filename=" + escape(name) + "&type=text%2Fplain&metadata%5Bname%5D=" + escape(name) + "&metadata%5Btype%5D=text%2Fplain&metadata%5BrelativePath%5D=null&metadata%5Bcollection%5D=c2&metadata%5Bid%5D=" + escape(name)
		if a := s.call("GET", "/uppy/s3/params?"+q, token, nil); a.status != 200 {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		first := r.last().(controlplane.OpenRequest)
		body := map[string]any{"filename": name, "type": "text/plain", "metadata": map[string]any{"name": name, "type": "text/plain", "relativePath": nil, "collection": "c2", "id": name}}
		if a := s.call("POST", "/uppy/s3/multipart", token, body); a.status != 200 {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		second := r.last().(controlplane.OpenRequest)
		if first.Method != models.MethodSingle || second.Method != models.MethodMultipart {
			t.Errorf("methods %s, %s", first.Method, second.Method)
		}
		for _, req := range []controlplane.OpenRequest{first, second} {
			var meta map[string]string
			if err := json.Unmarshal(req.Metadata, &meta); err != nil || len(meta) != 1 || meta["id"] != name {
				t.Errorf("metadata %s: %v", req.Metadata, err)
			}
			if req.Name != name || req.ContentType != "text/plain" || req.Collection != "c2" || !req.SizeUnknown {
				t.Errorf("asked %+v", req)
			}
		}
	}
	for path, want := range map[string]string{
		"/uppy": "default", "/uppy/" + grant(t, "ann", map[string]any{"collection": "g"}): "g", "/uppy/" + grant(t, "ann", map[string]any{}): "default",
	} {
		s.call("GET", path+"/s3/params?filename=a", token, nil)
		if got := r.last().(controlplane.OpenRequest).Collection; got != want {
			t.Errorf("collection %q, want %q", got, want)
		}
	}
}

func escape(s string) string {
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	q := r.URL.Query()
	q.Set("k", s)
	return strings.TrimPrefix(q.Encode(), "k=")
}

func TestUppyRefusesBadRequests(t *testing.T) {
	t.Parallel()
	s, r := recordUppy(t)
	token := tokenFor(t, "ann", "upload")
	many := strings.Repeat("1,", models.MaxParts) + "1"
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		code         models.Code
	}{
		{"GET", "/s3/params?filename=a&filename=b", nil, 400, models.CodeInvalidRequest},
		{"GET", "/s3/params?filename=%ff", nil, 400, models.CodeInvalidRequest},
		{"GET", "/s3/params?filename=a&metadata%5Bk%5D=%00", nil, 400, models.CodeInvalidRequest},
		{"GET", "/s3/params?filename=%zz", nil, 400, models.CodeInvalidRequest},
		{"POST", "/s3/multipart", nil, 400, models.CodeInvalidRequest},
		{"POST", "/s3/multipart", `{"type":"a/b"}`, 400, models.CodeInvalidRequest},
		{"POST", "/s3/multipart", `{"filename":7}`, 400, models.CodeInvalidRequest},
		{"POST", "/s3/multipart", `{"filename":"a","size":7}`, 400, models.CodeInvalidRequest},
		{"POST", "/s3/multipart", `{"filename":"a","metadata":[1]}`, 400, models.CodeMetadataInvalid},
		{"POST", "/s3/multipart", `{"filename":"a","metadata":{"collection":7}}`, 400, models.CodeInvalidRequest},
		{"POST", "/s3/multipart", "{" + strings.Repeat(" ", httpapi.DefaultMaxBody) + "}", 413, models.CodeTooLarge},
		{"GET", ofID, nil, 404, models.CodeNotFound},
		{"GET", ofID + "?key=", nil, 404, models.CodeNotFound},
		{"GET", ofID + "?key=other", nil, 404, models.CodeNotFound},
		{"GET", "/s3/multipart/other?key=c%2Fk", nil, 404, models.CodeNotFound},
		{"GET", "/s3/multipart/%ff%00?key=c%2Fk", nil, 404, models.CodeNotFound},
		{"GET", ofID + "?key=c%2Fk&key=x", nil, 400, models.CodeInvalidRequest},
		{"GET", ofID + "/batch?key=c%2Fk", nil, 400, models.CodePartOutOfRange},
		{"GET", ofID + "/batch?key=c%2Fk&partNumbers=1,x", nil, 400, models.CodePartOutOfRange},
		{"GET", ofID + "/batch?key=c%2Fk&partNumbers=" + many, nil, 400, models.CodeInvalidRequest},
		{"GET", ofID + "/batch?key=other&partNumbers=1", nil, 404, models.CodeNotFound},
		{"GET", ofID + "/-1?key=c%2Fk", nil, 400, models.CodePartOutOfRange},
		{"GET", ofID + "/99999999999?key=c%2Fk", nil, 400, models.CodePartOutOfRange},
		{"GET", ofID + "/Batch?key=c%2Fk", nil, 400, models.CodePartOutOfRange},
		{"GET", ofID + "/1?key=other", nil, 404, models.CodeNotFound},
		{"POST", ofID + "/complete?key=other", `{"parts":[{"PartNumber":1,"ETag":"e"}]}`, 404, models.CodeNotFound},
		{"POST", ofID + "/complete?key=c%2Fk", nil, 400, models.CodeInvalidRequest},
		{"POST", ofID + "/complete?key=c%2Fk", `{"parts":[]}`, 400, models.CodeInvalidRequest},
		{"POST", ofID + "/complete?key=c%2Fk", `{"parts":[{"PartNumber":1}]}`, 400, models.CodeInvalidRequest},
		{"POST", ofID + "/complete?key=c%2Fk", `{"parts":[{"PartNumber":"1","ETag":"e"}]}`, 400, models.CodeInvalidRequest},
		{"DELETE", ofID + "?key=other", nil, 404, models.CodeNotFound},
		{"GET", "/s3/nothing", nil, 404, models.CodeNotFound},
	} {
		s.call(c.method, "/uppy"+c.path, token, c.body).refused(t, c.status, c.code)
	}
	if r.last() != nil {
		t.Fatalf("a use case was asked: %+v", r.last())
	}
}

// What passes by itself is a 5xx to Companion's clients, and the rest is final.
func TestUppyStatuses(t *testing.T) {
	t.Parallel()
	s, r := recordUppy(t)
	token := tokenFor(t, "ann", "upload")
	for code, status := range map[models.Code]int{
		models.CodeBusy: 503, models.CodeStoreUnavailable: 503, models.CodeRateLimited: 429, models.CodeSessionClosed: 409,
		models.CodeSessionExpired: 410, models.CodeInternal: 500,
	} {
		r.err = models.Errorf(code, "so it is")
		if code == models.CodeInternal {
			r.err = errors.New("secret " + signedURL)
		}
		a := s.call("GET", "/uppy"+ofID+"/1?key=c%2Fk", token, nil)
		a.refused(t, status, code)
		if strings.Contains(string(a.body), "secret") {
			t.Errorf("tells %s", a.body)
		}
	}
	r.err = nil
	r.hold = func(context.Context) { panic("x") }
	s.call("GET", "/uppy"+ofID+"/1?key=c%2Fk", token, nil).refused(t, 500, models.CodeInternal)
}

// The grant in the path is in no log line, no metric and no span, whatever becomes of the request.
func TestUppyGrantIsNotWrittenDown(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	s, r := recordUppy(t, func(c *httpapi.Config) { c.Trace = tracing.New(provider, "test") })
	s.undocumented()
	good := grant(t, "ann", map[string]any{"collection": "c"})
	for _, token := range []string{good, good + "x", tokenFor(t, "ann", "upload")} {
		for _, x := range append(uppyCalls, uppyCall{"GET", "/s3/nothing", nil}, uppyCall{"PUT", "/s3/params", nil}, uppyCall{"OPTIONS", "/s3/params", nil}, uppyCall{"GET", "", nil}) {
			s.call(x.method, "/uppy/"+token+x.path, "", x.body)
		}
	}
	r.err = errors.New("at /uppy/" + good + "/s3/params")
	s.call("POST", "/uppy/"+good+"/s3/multipart", "", uppyCalls[1].body)
	r.err, r.hold = nil, func(context.Context) { panic("/uppy/" + good + "/s3") }
	s.call("POST", "/uppy/"+good+"/s3/multipart", "", uppyCalls[1].body)
	metrics := s.call("GET", "/metrics", "", nil)
	traced, err := json.Marshal(spans.GetSpans())
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"log": s.log.String(), "metrics": string(metrics.body), "trace": string(traced)} {
		for _, bad := range []string{"eyJ", good[strings.LastIndexByte(good, '.')+1:], "AKIDEXAMPLE"} {
			if strings.Contains(text, bad) {
				t.Errorf("the %s holds %q", where, bad)
			}
		}
		if !strings.Contains(text, "/uppy/:grant/s3/multipart/:uploadId/:partNumber") {
			t.Errorf("the %s lacks the route", where)
		}
	}
}

func TestUppyCORS(t *testing.T) {
	t.Parallel()
	const app = "https://app.example.com"
	s, _ := recordUppy(t, func(c *httpapi.Config) { c.AllowedOrigins = []string{app} })
	closed, _ := recordUppy(t)
	path := "/uppy/" + grant(t, "ann", map[string]any{}) + "/s3/multipart"
	ask := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type"}
	for _, c := range []struct {
		s            *server
		origin, want string
	}{{s, app, app}, {s, "https://evil.example", ""}, {closed, app, ""}} {
		pre := c.s.call("OPTIONS", path, "", nil, append(ask, "Origin", c.origin)...)
		if pre.status != 204 || pre.header.Get("Access-Control-Allow-Origin") != c.want || pre.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("preflight of %s: %d %v", c.origin, pre.status, pre.header)
		}
		if c.want != "" && !strings.Contains(pre.header.Get("Access-Control-Allow-Methods"), "DELETE") {
			t.Errorf("no DELETE: %v", pre.header)
		}
		a := c.s.call("POST", path, "", uppyCalls[1].body, "Origin", c.origin)
		if a.header.Get("Access-Control-Allow-Origin") != c.want {
			t.Errorf("%s: %v", c.origin, a.header)
		}
	}
}

// Whatever bytes stand in path, query and body, the answer is one of the contract.
func FuzzUppy(f *testing.F) {
	f.Add("GET", "/s3/params", "filename=a&metadata[k]=v", "")
	f.Add("POST", "/s3/multipart", "", `{"filename":"a"}`)
	f.Add("GET", "/s3/multipart/%2F/batch", "key=c%2Fk&partNumbers=1,2", "")
	f.Add("POST", "/s3/multipart/x/complete", "key=k", `{"parts":[{"PartNumber":1,"ETag":"e"}]}`)
	token := tokenFor(f, "ann", "upload")
	auth, err := httpapi.NewVerifier(f.Context(), httpapi.TokenConfig{Secret: []byte(secret)})
	if err != nil {
		f.Fatal(err)
	}
	api := httpapi.New(httpapi.Config{Service: &recorder{parts: []models.SignedPart{{Number: 1, URL: signedURL}}}, Auth: auth, Log: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		r, err := http.NewRequest(method, "http://x/uppy"+path+"?"+query, strings.NewReader(body))
		if err != nil || !strings.HasPrefix(r.URL.Path, "/uppy/") {
			t.Skip("not a request that could come, or for another route")
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Code != 204 && w.Body.Len() > 0 && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("not JSON: %s", w.Body)
		}
	})
}
