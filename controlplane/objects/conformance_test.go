package objects

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/credentials"
)

// What Berth relies on in a store. TestConformance runs it against the store of the
// tests; TestConformanceElsewhere against any other, named in the environment:
//
//	BERTH_CONFORMANCE_ENDPOINT, _REGION, _BUCKET (versions on), _PATH_STYLE (true),
//	AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
//
// It writes below conformance/ and removes what it wrote. What a store cannot do fails
// here; whether Berth can live without it is said at each test.

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, func(t *testing.T) *Store { return versitygw(t) })
}

func TestConformanceElsewhere(t *testing.T) {
	env := func(name string) string { return os.Getenv("BERTH_CONFORMANCE_" + name) }
	if env("BUCKET") == "" {
		t.Skip("BERTH_CONFORMANCE_BUCKET names no bucket")
	}
	s := mustNew(t, Config{
		Name: "elsewhere", Bucket: env("BUCKET"), Region: env("REGION"), Endpoint: env("ENDPOINT"), PathStyle: env("PATH_STYLE") == "true",
		Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")),
	})
	conform(t, func(*testing.T) *Store { return s })
}

func versitygw(t testing.TB) *Store {
	i := testkit.S3(t)
	return mustNew(t, Config{Name: "test", Bucket: i.Bucket, Region: i.Region, Endpoint: i.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, "")})
}

func conform(t *testing.T, open func(t *testing.T) *Store) {
	for name, test := range map[string]func(*testing.T, *desk){
		"a pinned PUT takes these bytes only":           pinnedPut,
		"a PUT takes this length only":                  lengthPut,
		"a PUT succeeds once":                           putOnce,
		"an empty PUT":                                  emptyPut,
		"a PUT with no checksum":                        loosePut,
		"keys of every kind":                            oddKeys,
		"URLs end":                                      urlsEnd,
		"a GET of one version":                          getVersion,
		"a pinned part takes these bytes only":          pinnedPart,
		"multipart: sha256 composite":                   func(t *testing.T, d *desk) { wholeMultipart(t, d, models.SHA256) },
		"multipart: crc64nvme full object":              func(t *testing.T, d *desk) { wholeMultipart(t, d, models.CRC64NVME) },
		"multipart: crc32c full object":                 func(t *testing.T, d *desk) { wholeMultipart(t, d, models.CRC32C) },
		"multipart: no algorithm":                       noAlgorithm,
		"multipart: an abort is final":                  abortIsFinal,
		"multipart: complete yields to what is there":   completeYields,
		"multipart: a small part is refused":            smallPart,
		"multipart: listed in pages":                    listMultiparts,
		"versions are listed in pages and deleted each": versionsAndMarkers,
		"a form takes what was agreed":                  form,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newDesk(t, open(t)))
		})
	}
}

// desk is a store and a corner of it of the test's own.
type desk struct {
	*Store
	prefix string
}

func newDesk(t *testing.T, s *Store) *desk {
	d := &desk{Store: s, prefix: fmt.Sprintf("conformance/%x/", randomBytes(8))}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for m, err := range d.ListMultiparts(ctx, d.prefix) {
			if err == nil {
				err = d.AbortMultipart(ctx, m.Key, m.S3UploadID)
			}
			if err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
		var refs []models.VersionRef
		for v, err := range d.ListVersions(ctx, d.prefix) {
			if err != nil {
				t.Errorf("clean up: %v", err)
			}
			refs = append(refs, models.VersionRef{Key: v.Key, VersionID: v.VersionID})
		}
		results, err := d.DeleteVersions(ctx, refs)
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Errorf("clean up: %s %s: %v", r.Key, r.VersionID, r.Err)
			}
		}
	})
	return d
}

func (d *desk) spec(name string, alg models.Algorithm, m models.Method) models.ObjectSpec {
	return models.ObjectSpec{Key: d.prefix + name, UploadID: models.NewUploadID(), ContentType: "text/x-berth", Algorithm: alg, Type: alg.TypeFor(m)}
}

func (d *desk) signPut(t *testing.T, spec models.ObjectSpec, size int64, digest []byte) models.SignedPart {
	t.Helper()
	p, _, err := d.PresignPut(t.Context(), spec, size, digest, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (d *desk) put(t *testing.T, spec models.ObjectSpec, body []byte) models.Object {
	t.Helper()
	wantStatus(t, send(t, d.signPut(t, spec, int64(len(body)), digest(spec.Algorithm, body)), body), 200)
	o, err := d.Head(t.Context(), spec.Key, "")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (d *desk) wantKind(t *testing.T, err error, kind models.ObjectErrorKind) {
	t.Helper()
	if models.ObjectKind(err) != kind {
		t.Errorf("want %s, got %v", kind, err)
	}
}

func (d *desk) wantAbsent(t *testing.T, key string) {
	t.Helper()
	_, err := d.Head(t.Context(), key, "")
	d.wantKind(t, err, models.ObjectAbsent)
}

type reply struct {
	status int
	code   string
	body   []byte
	header http.Header
}

// send sends the request as a client does: the headers that it was given, and those
// that change says.
func send(t *testing.T, p models.SignedPart, body []byte, change ...func(http.Header)) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), p.Method, p.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range p.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	for _, c := range change {
		c(req.Header)
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) reply {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(r.body), "<Code>")
	r.code, _, _ = strings.Cut(after, "</Code>")
	return r
}

func wantStatus(t *testing.T, r reply, statuses ...int) {
	t.Helper()
	if !slices.Contains(statuses, r.status) {
		t.Errorf("status %d %s, want %v: %.300s", r.status, r.code, statuses, r.body)
	}
}

func digest(alg models.Algorithm, b []byte) []byte {
	if alg == "" {
		return nil
	}
	h := alg.New()
	h.Write(b)
	return h.Sum(nil)
}

func wantChecksum(t *testing.T, o models.Object, want models.Checksum) {
	t.Helper()
	if !slices.Contains(o.Checksums, want) {
		t.Errorf("%v is not among the attested %v", want, o.Checksums)
	}
}

// Without this the bytes of a single PUT are not Berth's to vouch for.
func pinnedPut(t *testing.T, d *desk) {
	for _, alg := range models.Algorithms {
		spec := d.spec("pinned-"+string(alg), alg, models.MethodSingle)
		body, other := randomBytes(4096), randomBytes(4096)
		p := d.signPut(t, spec, 4096, digest(alg, body))
		wantStatus(t, send(t, p, other), 400, 403)
		wantStatus(t, send(t, p, other, func(h http.Header) { // the checksum of the other bytes
			h.Set(alg.Header(), base64.StdEncoding.EncodeToString(digest(alg, other)))
		}), 403)
		wantStatus(t, send(t, p, body, func(h http.Header) { h.Del(alg.Header()) }), 403)
		wantStatus(t, send(t, p, body, func(h http.Header) { h.Set("content-type", "text/html") }), 403)
		wantStatus(t, send(t, p, body, func(h http.Header) { h.Set(metaUpload, "upl_another") }), 403)
		d.wantAbsent(t, spec.Key)
		wantStatus(t, send(t, p, body), 200) // the control: nothing else was wrong
		o, err := d.Head(t.Context(), spec.Key, "")
		if err != nil {
			t.Fatal(err)
		}
		if o.Size != 4096 || o.UploadID != spec.UploadID || o.Key != spec.Key || o.ETag == "" || strings.Contains(o.ETag, `"`) || o.Modified.IsZero() {
			t.Errorf("attested %+v", o)
		}
		wantChecksum(t, o, models.Checksum{Algorithm: alg, Type: models.FullObject, Value: alg.Sum(body)})
		again, err := d.Head(t.Context(), spec.Key, o.VersionID)
		if err != nil || again.ETag != o.ETag {
			t.Errorf("by its version: %+v, %v", again, err)
		}
	}
}

func lengthPut(t *testing.T, d *desk) {
	spec := d.spec("length", "", models.MethodSingle)
	p := d.signPut(t, spec, 100, nil)
	for _, n := range []int{99, 101, 0} {
		wantStatus(t, send(t, p, randomBytes(n)), 403, 411)
	}
	d.wantAbsent(t, spec.Key)
	wantStatus(t, send(t, p, randomBytes(100)), 200)
}

// Without this a URL that outlives its upload can write the key again; the key is then
// reaped once more, so that Berth lives with it.
func putOnce(t *testing.T, d *desk) {
	spec := d.spec("once", models.SHA256, models.MethodSingle)
	body := randomBytes(10)
	first := d.put(t, spec, body)
	p := d.signPut(t, spec, 10, digest(models.SHA256, body))
	wantStatus(t, send(t, p, body), 412)
	wantStatus(t, send(t, p, body, func(h http.Header) { h.Del("if-none-match") }), 403)
	now, err := d.Head(t.Context(), spec.Key, "")
	if err != nil || now.VersionID != first.VersionID {
		t.Errorf("another version: %v, %v, %v", now, first, err)
	}
}

func emptyPut(t *testing.T, d *desk) {
	for _, alg := range models.Algorithms {
		spec := d.spec("empty-"+string(alg), alg, models.MethodSingle)
		p := d.signPut(t, spec, 0, digest(alg, nil))
		wantStatus(t, send(t, p, []byte("x")), 400, 403)
		d.wantAbsent(t, spec.Key)
		wantStatus(t, send(t, p, nil), 200)
		o, err := d.Head(t.Context(), spec.Key, "")
		if err != nil || o.Size != 0 || o.UploadID != spec.UploadID {
			t.Errorf("attested %+v, %v", o, err)
		}
		wantChecksum(t, o, models.Checksum{Algorithm: alg, Type: models.FullObject, Value: alg.Sum(nil)})
	}
}

// S3 and versitygw attest a CRC64NVME of their own where none was sent. A store that
// attests nothing is no fault, but the record then holds no checksum.
func loosePut(t *testing.T, d *desk) {
	body := randomBytes(1000)
	o := d.put(t, d.spec("loose", "", models.MethodSingle), body)
	if len(o.Checksums) == 0 {
		t.Log("this store attests no checksum by itself")
		return
	}
	for _, c := range o.Checksums {
		if c.Type != models.FullObject || c.Value != c.Algorithm.Sum(body) {
			t.Errorf("attested %v of other bytes", c)
		}
	}
}

func oddKeys(t *testing.T, d *desk) {
	names := []string{"a b", "a+b", "100%", "%2Fx", "~-._", "ü/日本/🙂.txt", "q?x=1&y=2#z", "semi;colon:at@eq=comma,", `quote'"<>`, "star*!()$", "back\\slash", "[x]{y}|^`"}
	want := map[string]string{}
	for _, n := range names {
		body := randomBytes(20)
		spec := d.spec("odd/"+n, models.SHA256, models.MethodSingle)
		o := d.put(t, spec, body)
		if o.UploadID != spec.UploadID {
			t.Errorf("%q: not ours: %+v", n, o)
		}
		want[spec.Key] = o.VersionID
		u, _, err := d.PresignGet(t.Context(), spec.Key, o.VersionID, "", "", time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if r := send(t, models.SignedPart{Method: "GET", URL: u}, nil); r.status != 200 || !bytes.Equal(r.body, body) {
			t.Errorf("%q: GET %d %s", n, r.status, r.code)
		}
	}
	got := map[string]string{}
	for v, err := range d.ListVersions(t.Context(), d.prefix+"odd/") {
		if err != nil {
			t.Fatal(err)
		}
		got[v.Key] = v.VersionID
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%q is listed as version %q, want %q", k, got[k], v)
		}
	}
	var refs []models.VersionRef
	for k, v := range want {
		refs = append(refs, models.VersionRef{Key: k, VersionID: v})
	}
	results, err := d.DeleteVersions(t.Context(), refs)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Errorf("%q: %v", r.Key, r.Err)
		}
		d.wantAbsent(t, r.Key)
	}
}

func urlsEnd(t *testing.T, d *desk) {
	spec := d.spec("late", models.SHA256, models.MethodSingle)
	body := randomBytes(10)
	p, until, err := d.PresignPut(t.Context(), spec, 10, digest(models.SHA256, body), 10*time.Second, time.Now().Add(-20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if !until.Before(time.Now()) {
		t.Fatalf("until %v is not over", until)
	}
	wantStatus(t, send(t, p, body), 403)
	d.wantAbsent(t, spec.Key)
	wantStatus(t, send(t, d.signPut(t, spec, 10, digest(models.SHA256, body)), body), 200)
}

func getVersion(t *testing.T, d *desk) {
	spec := d.spec("read", models.SHA256, models.MethodSingle)
	body := randomBytes(3000)
	o := d.put(t, spec, body)
	get := func(version string) reply {
		u, _, err := d.PresignGet(t.Context(), spec.Key, version, `attachment; filename="r.pdf"; filename*=UTF-8''%C3%BC.pdf`, "application/pdf", time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return send(t, models.SignedPart{Method: "GET", URL: u}, nil)
	}
	r := get(o.VersionID)
	if r.status != 200 || !bytes.Equal(r.body, body) || r.header.Get("Content-Type") != "application/pdf" || !strings.HasPrefix(r.header.Get("Content-Disposition"), "attachment") {
		t.Errorf("GET %d, %v", r.status, r.header)
	}
	results, err := d.DeleteVersions(t.Context(), []models.VersionRef{{Key: spec.Key, VersionID: o.VersionID}})
	if err != nil || results[0].Err != nil {
		t.Fatal(results, err)
	}
	wantStatus(t, get(o.VersionID), 404)
	_, err = d.Head(t.Context(), spec.Key, o.VersionID)
	d.wantKind(t, err, models.ObjectAbsent)
}

// multipartOf begins an upload of a first part of 5 MiB and a short last one.
func multipartOf(t *testing.T, d *desk, spec models.ObjectSpec) (id string, data [][]byte, digests [][]byte) {
	t.Helper()
	id, err := d.CreateMultipart(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	data = [][]byte{randomBytes(models.MinPartSize), randomBytes(777)}
	for _, b := range data {
		digests = append(digests, digest(spec.Algorithm, b))
	}
	return id, data, digests
}

func signParts(t *testing.T, d *desk, spec models.ObjectSpec, id string, data, digests [][]byte) []models.SignedPart {
	t.Helper()
	ask := make([]models.PartToSign, len(data))
	for i := range data {
		ask[i] = models.PartToSign{Number: i + 1, Size: int64(len(data[i])), Digest: digests[i]}
	}
	parts, _, err := d.PresignParts(t.Context(), spec.Key, id, ask, spec.Algorithm, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func listed(t *testing.T, d *desk, key, id string, alg models.Algorithm) []models.Part {
	t.Helper()
	var parts []models.Part
	for p, err := range d.ListParts(t.Context(), key, id, alg) {
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	return parts
}

func pinnedPart(t *testing.T, d *desk) {
	for _, alg := range models.Algorithms {
		spec := d.spec("part-"+string(alg), alg, models.MethodMultipart)
		id, data, digests := multipartOf(t, d, spec)
		p := signParts(t, d, spec, id, data, digests)[1]
		other := randomBytes(len(data[1]))
		wantStatus(t, send(t, p, other), 400, 403)
		wantStatus(t, send(t, p, other, func(h http.Header) { h.Set(alg.Header(), alg.Sum(other)) }), 403)
		wantStatus(t, send(t, p, data[1], func(h http.Header) { h.Del(alg.Header()) }), 403)
		wantStatus(t, send(t, p, data[1][1:]), 403)
		if got := listed(t, d, spec.Key, id, alg); len(got) != 0 {
			t.Errorf("%s: refused parts are listed: %v", alg, got)
		}
		wantStatus(t, send(t, p, data[1]), 200)
		got := listed(t, d, spec.Key, id, alg)
		if len(got) != 1 || got[0].Number != 2 || got[0].Size != int64(len(data[1])) || got[0].ETag == "" || strings.Contains(got[0].ETag, `"`) {
			t.Errorf("%s: listed %v", alg, got)
		}
		if got[0].Checksum == "" {
			t.Logf("%s: this store lists no part checksums", alg)
		} else if got[0].Checksum != alg.Sum(data[1]) {
			t.Errorf("%s: listed %v", alg, got)
		}
	}
}

// wholeMultipart goes through all that CompleteMultipart must refuse, and that the
// upload outlives each refusal, then completes it twice.
func wholeMultipart(t *testing.T, d *desk, alg models.Algorithm) {
	ctx := t.Context()
	spec := d.spec("whole-"+string(alg), alg, models.MethodMultipart)
	id, data, digests := multipartOf(t, d, spec)
	for i, p := range signParts(t, d, spec, id, data, digests) {
		wantStatus(t, send(t, p, data[i]), 200)
	}
	parts := listed(t, d, spec.Key, id, alg)
	if len(parts) != 2 {
		t.Fatalf("listed %v", parts)
	}
	for i := range parts { // a store may list none; Complete wants them for a composite
		parts[i].Checksum = base64.StdEncoding.EncodeToString(digests[i])
	}
	size := int64(len(data[0]) + len(data[1]))
	want := models.CompositeOf(alg, digests)
	if alg.Linear() {
		want, _ = models.FullObjectOf(alg, digests, []int64{int64(len(data[0])), int64(len(data[1]))})
	}
	good := models.CompleteSpec{Key: spec.Key, S3UploadID: id, Parts: parts, Size: size, Checksum: want}
	for _, c := range []struct {
		name   string
		change func(*models.CompleteSpec)
		kind   models.ObjectErrorKind
	}{
		{"another size", func(c *models.CompleteSpec) { c.Size++ }, models.ObjectBadSize},
		{"another ETag", func(c *models.CompleteSpec) { c.Parts[0].ETag = "0123456789abcdef0123456789abcdef" }, models.ObjectBadPart},
		{"another part checksum", func(c *models.CompleteSpec) {
			c.Parts[0].Checksum, c.Checksum.Value = alg.Sum([]byte("other")), ""
		}, models.ObjectBadPart},
		{"a part that never was", func(c *models.CompleteSpec) {
			p := c.Parts[1]
			p.Number = 3
			c.Parts = append(c.Parts, p)
			c.Size += p.Size
			c.Checksum.Value = ""
		}, models.ObjectBadPart},
		{"out of order", func(c *models.CompleteSpec) { slices.Reverse(c.Parts); c.Checksum.Value = "" }, models.ObjectBadPart},
		{"another whole", func(c *models.CompleteSpec) {
			c.Checksum.Value = alg.Sum([]byte("other"))
			if !alg.Linear() {
				c.Checksum.Value += "-2"
			}
		}, models.ObjectBadDigest},
	} {
		cs := good
		cs.Parts = slices.Clone(parts)
		c.change(&cs)
		_, err := d.CompleteMultipart(ctx, cs)
		if models.ObjectKind(err) != c.kind {
			t.Errorf("%s: want %s, got %v", c.name, c.kind, err)
		}
		d.wantAbsent(t, spec.Key)
		if left := listed(t, d, spec.Key, id, alg); len(left) != 2 {
			t.Fatalf("%s: the upload did not outlive it: %v", c.name, left)
		}
	}
	done, err := d.CompleteMultipart(ctx, good)
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.Head(ctx, spec.Key, "")
	if err != nil {
		t.Fatal(err)
	}
	if o.Size != size || o.UploadID != spec.UploadID || done.ETag != o.ETag || (done.VersionID != "" && done.VersionID != o.VersionID) {
		t.Errorf("completed %+v, attested %+v", done, o)
	}
	wantChecksum(t, o, want)

	// Repeated, it succeeds (S3, versitygw) or finds no upload (MinIO), and makes nothing new.
	_, err = d.CompleteMultipart(ctx, good)
	if k := models.ObjectKind(err); err != nil && k != models.ObjectNoUpload && k != models.ObjectExists {
		t.Errorf("repeated: %v", err)
	}
	if now, err := d.Head(ctx, spec.Key, ""); err != nil || now.VersionID != o.VersionID {
		t.Errorf("repeated: %+v, %v", now, err)
	}
	if err := d.AbortMultipart(ctx, spec.Key, id); err != nil {
		t.Errorf("abort after: %v", err)
	}
	if _, err := d.Head(ctx, spec.Key, o.VersionID); err != nil {
		t.Errorf("an abort after the complete took the object: %v", err)
	}
}

func noAlgorithm(t *testing.T, d *desk) {
	spec := d.spec("plain", "", models.MethodMultipart)
	spec.Type = ""
	id, data, _ := multipartOf(t, d, spec)
	for i, p := range signParts(t, d, spec, id, data, [][]byte{nil, nil}) {
		wantStatus(t, send(t, p, data[i]), 200)
	}
	parts := listed(t, d, spec.Key, id, "")
	size := int64(len(data[0]) + len(data[1]))
	if _, err := d.CompleteMultipart(t.Context(), models.CompleteSpec{Key: spec.Key, S3UploadID: id, Parts: parts, Size: size}); err != nil {
		t.Fatal(err)
	}
	o, err := d.Head(t.Context(), spec.Key, "")
	if err != nil || o.Size != size || o.UploadID != spec.UploadID {
		t.Errorf("attested %+v, %v", o, err)
	}
	t.Logf("attested by itself: %v", o.Checksums)
	for _, c := range o.Checksums {
		if c.Type == models.FullObject && c.Value != c.Algorithm.Sum(slices.Concat(data...)) {
			t.Errorf("attested %v of other bytes", c)
		}
	}
}

func abortIsFinal(t *testing.T, d *desk) {
	ctx := t.Context()
	spec := d.spec("aborted", models.SHA256, models.MethodMultipart)
	id, data, digests := multipartOf(t, d, spec)
	signed := signParts(t, d, spec, id, data, digests)
	wantStatus(t, send(t, signed[1], data[1]), 200)
	parts := listed(t, d, spec.Key, id, models.SHA256)
	for range 2 { // what is not there is aborted already
		if err := d.AbortMultipart(ctx, spec.Key, id); err != nil {
			t.Fatal(err)
		}
	}
	wantStatus(t, send(t, signed[1], data[1]), 404)
	for _, err := range d.ListParts(ctx, spec.Key, id, models.SHA256) {
		d.wantKind(t, err, models.ObjectNoUpload)
	}
	_, err := d.CompleteMultipart(ctx, models.CompleteSpec{Key: spec.Key, S3UploadID: id, Parts: parts, Size: int64(len(data[1])),
		Checksum: models.Checksum{Algorithm: models.SHA256, Type: models.Composite}})
	d.wantKind(t, err, models.ObjectNoUpload)
	d.wantAbsent(t, spec.Key)
}

// Without this two uploads could share a key; Berth's keys are unique, so that it is a
// second bar only.
func completeYields(t *testing.T, d *desk) {
	ctx := t.Context()
	spec := d.spec("taken", models.SHA256, models.MethodMultipart)
	id, data, digests := multipartOf(t, d, spec)
	wantStatus(t, send(t, signParts(t, d, spec, id, data[1:], digests[1:])[0], data[1]), 200)
	single := d.spec("taken", models.SHA256, models.MethodSingle)
	there := d.put(t, single, []byte("first"))
	cs := models.CompleteSpec{Key: spec.Key, S3UploadID: id, Parts: listed(t, d, spec.Key, id, models.SHA256), Size: int64(len(data[1])),
		Checksum: models.Checksum{Algorithm: models.SHA256, Type: models.Composite}}
	_, err := d.CompleteMultipart(ctx, cs)
	d.wantKind(t, err, models.ObjectExists)
	if o, err := d.Head(ctx, spec.Key, ""); err != nil || o.VersionID != there.VersionID {
		t.Errorf("the object was replaced: %+v, %v", o, err)
	}
	if _, err := d.DeleteVersions(ctx, []models.VersionRef{{Key: spec.Key, VersionID: there.VersionID}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.CompleteMultipart(ctx, cs); err != nil { // the control: only that stood in its way
		t.Errorf("complete: %v", err)
	}
}

func smallPart(t *testing.T, d *desk) {
	spec := d.spec("small", models.CRC64NVME, models.MethodMultipart)
	id, err := d.CreateMultipart(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	data := [][]byte{randomBytes(100), randomBytes(100)}
	for i, p := range signParts(t, d, spec, id, data, [][]byte{nil, nil}) {
		wantStatus(t, send(t, p, data[i]), 200)
	}
	_, err = d.CompleteMultipart(t.Context(), models.CompleteSpec{Key: spec.Key, S3UploadID: id, Parts: listed(t, d, spec.Key, id, models.CRC64NVME), Size: 200,
		Checksum: models.Checksum{Algorithm: models.CRC64NVME, Type: models.FullObject}})
	d.wantKind(t, err, models.ObjectBadPart)
	d.wantAbsent(t, spec.Key)
}

func listMultiparts(t *testing.T, d *desk) {
	small := *d.Store
	two := int32(2)
	small.page = &two
	want := map[models.OpenMultipart]bool{}
	for i := range 7 { // several uploads of one key too: pages end within a key
		spec := d.spec(fmt.Sprintf("multi-%d", i/3), models.SHA256, models.MethodMultipart)
		id, err := d.CreateMultipart(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		want[models.OpenMultipart{Key: spec.Key, S3UploadID: id}] = true
	}
	for _, s := range []*Store{d.Store, &small} {
		got, last := 0, ""
		for m, err := range s.ListMultiparts(t.Context(), d.prefix+"multi-") {
			if err != nil {
				t.Fatal(err)
			}
			if m.Initiated.IsZero() || m.Key < last {
				t.Errorf("listed %+v after %s", m, last)
			}
			last, m.Initiated = m.Key, time.Time{}
			if !want[m] {
				t.Errorf("listed %+v", m)
			}
			got++
		}
		if got != len(want) {
			t.Errorf("listed %d of %d", got, len(want))
		}
	}
	for range small.ListMultiparts(t.Context(), d.prefix) {
		break // a caller may stop
	}
	// Parts in pages: numbers have gaps, as they come.
	var first models.OpenMultipart
	for m := range want {
		first = m
	}
	var ask []models.PartToSign
	for _, n := range []int{1, 2, 5, 9, 10000} {
		ask = append(ask, models.PartToSign{Number: n, Size: 3, Digest: digest(models.SHA256, []byte("abc"))})
	}
	signed, _, err := d.PresignParts(t.Context(), first.Key, first.S3UploadID, ask, models.SHA256, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range signed {
		wantStatus(t, send(t, p, []byte("abc")), 200)
	}
	var numbers []int
	for p, err := range small.ListParts(t.Context(), first.Key, first.S3UploadID, models.SHA256) {
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, p.Number)
	}
	if !slices.Equal(numbers, []int{1, 2, 5, 9, 10000}) {
		t.Errorf("parts %v", numbers)
	}
}

func versionsAndMarkers(t *testing.T, d *desk) {
	ctx := t.Context()
	small := *d.Store
	three := int32(3)
	small.page = &three
	type entry struct {
		key    string
		marker bool
	}
	want := map[entry]int{}
	for i := range 3 {
		spec := d.spec(fmt.Sprintf("v-%d", i), "", models.MethodSingle)
		for range 3 { // a version, then a marker over it
			write(t, d, spec.Key, []byte("abc"))
			want[entry{spec.Key, false}]++
			hide(t, d, spec.Key)
			want[entry{spec.Key, true}]++
		}
		d.wantAbsent(t, spec.Key)
	}
	d.put(t, d.spec("v-1x", "", models.MethodSingle), []byte("a longer key of the same prefix"))
	want[entry{d.prefix + "v-1x", false}]++
	var refs []models.VersionRef
	for _, s := range []*Store{d.Store, &small} {
		got := map[entry]int{}
		latest := map[string]int{}
		refs = nil
		last := ""
		for v, err := range s.ListVersions(ctx, d.prefix+"v-") {
			if err != nil {
				t.Fatal(err)
			}
			if v.Key < last || v.VersionID == "" || v.Modified.IsZero() || v.Marker != (v.ETag == "") || strings.Contains(v.ETag, `"`) {
				t.Errorf("listed %+v after %s", v, last)
			}
			if v.Latest {
				latest[v.Key]++
			}
			last = v.Key
			got[entry{v.Key, v.Marker}]++
			refs = append(refs, models.VersionRef{Key: v.Key, VersionID: v.VersionID})
			if v.Marker { // of a marker there is nothing to see
				_, err := s.Head(ctx, v.Key, v.VersionID)
				d.wantKind(t, err, models.ObjectAbsent)
			}
		}
		for k, n := range want {
			if got[k] != n || latest[k.key] != 1 {
				t.Errorf("page of %d: %v listed %d times, want %d; latest %d times", *s.page, k, got[k], n, latest[k.key])
			}
		}
	}

	// A ref with no version id would hide, not delete: nothing at all is done.
	for _, bad := range []models.VersionRef{{Key: refs[0].Key}, {VersionID: refs[0].VersionID}} {
		results, err := d.DeleteVersions(ctx, append(slices.Clone(refs), bad))
		d.wantKind(t, err, models.ObjectInvalid)
		if results != nil {
			t.Errorf("refused, yet %v", results)
		}
	}
	if n := count(t, d, "v-"); n != len(refs) {
		t.Fatalf("%d versions are left of %d", n, len(refs))
	}
	refs = append(refs, models.VersionRef{Key: d.prefix + "never", VersionID: refs[0].VersionID})
	for range 2 { // again: what is gone is gone
		results, err := d.DeleteVersions(ctx, refs)
		if err != nil || len(results) != len(refs) {
			t.Fatal(results, err)
		}
		for i, r := range results {
			if r.Err != nil || r.Key != refs[i].Key || r.VersionID != refs[i].VersionID {
				t.Errorf("%+v: %v", refs[i], r)
			}
		}
	}
	if n := count(t, d, ""); n != 0 {
		t.Errorf("%d versions are left", n)
	}
}

func count(t *testing.T, d *desk, prefix string) (n int) {
	t.Helper()
	for _, err := range d.ListVersions(t.Context(), d.prefix+prefix) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// write sends a PUT that does not mind what lies at the key, as others may.
func write(t *testing.T, d *desk, key string, body []byte) {
	t.Helper()
	st, err := d.stamp(t.Context(), "Write", time.Minute, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	u := d.signer.sign(&st, request{method: "PUT", key: key, size: int64(len(body))})
	wantStatus(t, send(t, models.SignedPart{Method: "PUT", URL: u}, body), 200)
}

// hide sends a DELETE without a version id, as others may; the adapter has none.
func hide(t *testing.T, d *desk, key string) {
	t.Helper()
	st, err := d.stamp(t.Context(), "Hide", time.Minute, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	u := d.signer.sign(&st, request{method: "DELETE", key: key})
	wantStatus(t, send(t, models.SignedPart{Method: "DELETE", URL: u}, nil), 204)
}

// Needed by Uppy's form uploads only.
func form(t *testing.T, d *desk) {
	spec := d.spec("form", models.SHA256, models.MethodSingle)
	body := []byte("the file of a form")
	f, _, err := d.PresignPost(t.Context(), spec, int64(len(body)), int64(len(body)), nil, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	post := func(body []byte, change map[string]string) reply {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for k, v := range f.Fields {
			if c, ok := change[k]; ok {
				v = c
			}
			_ = w.WriteField(k, v)
		}
		part, _ := w.CreateFormFile("file", "x.txt")
		_, _ = part.Write(body)
		_ = w.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, &b)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", w.FormDataContentType())
		return do(t, req)
	}
	wantStatus(t, post(append(body, '!'), nil), 400, 403)
	wantStatus(t, post(body[1:], nil), 400, 403)
	wantStatus(t, post(body, map[string]string{"key": spec.Key + "x"}), 403)
	wantStatus(t, post(body, map[string]string{"Content-Type": "text/html"}), 403)
	wantStatus(t, post(body, map[string]string{metaUpload: "upl_another"}), 403)
	if n := count(t, d, ""); n != 0 {
		t.Errorf("refused forms left %d versions", n)
	}
	wantStatus(t, post(body, nil), 200, 201, 204)
	o, err := d.Head(t.Context(), spec.Key, "")
	if err != nil || o.Size != int64(len(body)) || o.UploadID != spec.UploadID {
		t.Errorf("attested %+v, %v", o, err)
	}
}
