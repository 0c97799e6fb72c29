package objects

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/models"
)

// Answers that the store of the tests never gives: faults, throttling, errors under a
// status of 200, batches that are half done. The server here only speaks; what real
// stores do is in the conformance suite.

type wire struct {
	*Store
	calls atomic.Int32
	last  atomic.Pointer[http.Request]
	body  atomic.Pointer[string]
}

func newWire(t *testing.T, answer func(call int, w http.ResponseWriter, r *http.Request)) *wire {
	t.Helper()
	w := &wire{}
	cfg := plainConfig()
	// No sockets: over one, the client may see an answer before it has done with its own
	// request, and then tries again what the test counts.
	cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		var b []byte
		if r.Body != nil {
			b, _ = io.ReadAll(r.Body)
			_ = r.Body.Close()
		}
		text := string(b)
		w.body.Store(&text)
		w.last.Store(r)
		rec := httptest.NewRecorder()
		answer(int(w.calls.Add(1)), rec, r)
		return rec.Result(), nil
	})}
	w.Store = mustNew(t, cfg)
	return w
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func says(status int, code, more string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if r.Method != http.MethodHead && code != "" {
			_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n<Error><Code>%s</Code><Message>told so</Message>%s<RequestId>R</RequestId></Error>", code, more)
		}
	}
}

func complete(w *wire, t *testing.T) (models.Object, error) {
	return w.CompleteMultipart(t.Context(), models.CompleteSpec{Key: "k", S3UploadID: "u", Size: 5,
		Parts:    []models.Part{{Number: 1, Size: 5, ETag: "e1", Checksum: models.CRC64NVME.Sum([]byte("hello"))}},
		Checksum: models.Checksum{Algorithm: models.CRC64NVME, Type: models.FullObject, Value: models.CRC64NVME.Sum([]byte("hello"))}})
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		code   string
		kind   models.ObjectErrorKind
	}{
		{400, "InvalidPart", models.ObjectBadPart},
		{400, "InvalidPartOrder", models.ObjectBadPart},
		{400, "EntityTooSmall", models.ObjectBadPart},
		{400, "BadDigest", models.ObjectBadDigest},
		{400, "XAmzContentChecksumMismatch", models.ObjectBadDigest},
		{400, "InvalidRequest", models.ObjectInvalid}, // the sizes agree: something else is wrong
		{400, "MalformedXML", models.ObjectInvalid},
		{400, "RequestTimeout", models.ObjectUnavailable},
		{403, "AccessDenied", models.ObjectDenied},
		{403, "SignatureDoesNotMatch", models.ObjectDenied},
		{403, "SomethingNew", models.ObjectDenied},
		{404, "NoSuchUpload", models.ObjectNoUpload},
		{404, "NoSuchKey", models.ObjectAbsent},
		{404, "NoSuchBucket", models.ObjectInvalid},
		{404, "SomethingNew", models.ObjectInvalid},
		{405, "MethodNotAllowed", models.ObjectInvalid},
		{409, "ConditionalRequestConflict", models.ObjectConflict},
		{409, "SomethingNew", models.ObjectConflict},
		{412, "PreconditionFailed", models.ObjectExists},
		{429, "SomethingNew", models.ObjectUnavailable},
		{500, "InternalError", models.ObjectUnavailable},
		{501, "NotImplemented", models.ObjectInvalid},
		{503, "SlowDown", models.ObjectUnavailable},
		{503, "ServiceUnavailable", models.ObjectUnavailable},
		{502, "", models.ObjectUnavailable}, // a proxy's page
		{404, "", models.ObjectInvalid},
	} {
		w := newWire(t, says(c.status, c.code, ""))
		_, err := complete(w, t)
		var oe *models.ObjectError
		if !errors.As(err, &oe) || oe.Kind != c.kind || oe.Op != "CompleteMultipartUpload" || (c.code != "" && oe.Code != c.code) {
			t.Errorf("%d %s: want %s, got %v", c.status, c.code, c.kind, err)
		}
	}
}

// A HEAD has a status only.
func TestKindsOfHead(t *testing.T) {
	t.Parallel()
	for status, kind := range map[int]models.ObjectErrorKind{
		400: models.ObjectInvalid, 403: models.ObjectDenied, 404: models.ObjectAbsent, 405: models.ObjectAbsent,
		412: models.ObjectExists, 500: models.ObjectUnavailable, 503: models.ObjectUnavailable,
	} {
		w := newWire(t, says(status, "", ""))
		if _, err := w.Head(t.Context(), "k", "v"); models.ObjectKind(err) != kind {
			t.Errorf("%d: want %s, got %v", status, kind, err)
		}
	}
}

func TestAbortTakesNoOtherAbsenceForSuccess(t *testing.T) {
	t.Parallel()
	for code, gone := range map[string]bool{"NoSuchUpload": true, "NoSuchKey": true, "NoSuchBucket": false, "": false, "NotHere": false} {
		w := newWire(t, says(404, code, ""))
		if err := w.AbortMultipart(t.Context(), "k", "u"); (err == nil) != gone {
			t.Errorf("404 %q: %v", code, err)
		}
	}
}

func TestErrorUnder200(t *testing.T) {
	t.Parallel()
	for code, kind := range map[string]models.ObjectErrorKind{"InternalError": models.ObjectUnavailable, "InvalidPart": models.ObjectBadPart, "PreconditionFailed": models.ObjectExists} {
		w := newWire(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			_, _ = fmt.Fprintf(w, "%s\n<Error><Code>%s</Code><Message>too late</Message><PartNumber>7</PartNumber></Error>", `<?xml version="1.0" encoding="UTF-8"?>`, code)
		})
		_, err := complete(w, t)
		var oe *models.ObjectError
		if !errors.As(err, &oe) || oe.Kind != kind || oe.Part != 7 {
			t.Errorf("%s: want %s, got %#v", code, kind, err)
		}
		if n := w.calls.Load(); n != 1 {
			t.Errorf("%s: asked %d times", code, n)
		}
	}
}

func TestPartNumberOfAnError(t *testing.T) {
	t.Parallel()
	w := newWire(t, says(400, "InvalidPart", "<UploadId>u</UploadId><PartNumber>42</PartNumber><ETag>x</ETag>"))
	_, err := complete(w, t)
	var oe *models.ObjectError
	if !errors.As(err, &oe) || oe.Part != 42 || oe.Kind != models.ObjectBadPart {
		t.Errorf("got %#v", err)
	}
}

// What goes out on a Complete of each kind.
func TestCompleteSays(t *testing.T) {
	t.Parallel()
	ok := func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-amz-version-id", "v1")
		_, _ = io.WriteString(w, `<CompleteMultipartUploadResult><ETag>"e-1"</ETag><ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME><ChecksumType>FULL_OBJECT</ChecksumType></CompleteMultipartUploadResult>`)
	}
	w := newWire(t, ok)
	o, err := complete(w, t)
	if err != nil || o.VersionID != "v1" || o.ETag != "e-1" || len(o.Checksums) != 1 || o.Checksums[0].Type != models.FullObject {
		t.Fatalf("%+v, %v", o, err)
	}
	h := w.last.Load().Header
	for name, want := range map[string]string{
		"X-Amz-Checksum-Crc64nvme": models.CRC64NVME.Sum([]byte("hello")), "X-Amz-Checksum-Type": "FULL_OBJECT", "X-Amz-Mp-Object-Size": "5", "If-None-Match": "*",
	} {
		if h.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, h.Get(name), want)
		}
	}
	if b := *w.body.Load(); !strings.Contains(b, "<ChecksumCRC64NVME>") || !strings.Contains(b, "<PartNumber>1</PartNumber>") {
		t.Errorf("body %s", b)
	}

	// No algorithm: part checksums would be refused.
	w = newWire(t, ok)
	if _, err := w.CompleteMultipart(t.Context(), models.CompleteSpec{Key: "k", S3UploadID: "u", Size: 5, Parts: []models.Part{{Number: 1, Size: 5, ETag: "e1", Checksum: "AAAA"}}}); err != nil {
		t.Fatal(err)
	}
	if b := *w.body.Load(); strings.Contains(b, "Checksum") {
		t.Errorf("body %s", b)
	}
	for name := range w.last.Load().Header {
		if n := strings.ToLower(name); strings.HasPrefix(n, "x-amz-checksum") {
			t.Errorf("header %s", name)
		}
	}

	// A part checksum that is none is refused before the call.
	w = newWire(t, ok)
	_, err = w.CompleteMultipart(t.Context(), models.CompleteSpec{Key: "k", S3UploadID: "u", Size: 5, Parts: []models.Part{{Number: 3, Size: 5, ETag: "e1", Checksum: "AAAA"}},
		Checksum: models.Checksum{Algorithm: models.SHA256, Type: models.Composite}})
	var oe *models.ObjectError
	if !errors.As(err, &oe) || oe.Kind != models.ObjectBadPart || oe.Part != 3 || w.calls.Load() != 0 {
		t.Errorf("got %v after %d calls", err, w.calls.Load())
	}
}

func TestCreateSays(t *testing.T) {
	t.Parallel()
	ok := func(_ int, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>`)
	}
	w := newWire(t, ok)
	id, err := w.CreateMultipart(t.Context(), models.ObjectSpec{Key: "k", UploadID: "upl_1", ContentType: "a/b", Algorithm: models.SHA256, Type: models.Composite, StorageClass: "STANDARD_IA", SSEKMSKeyID: "kms"})
	if err != nil || id != "u1" {
		t.Fatal(id, err)
	}
	for name, want := range map[string]string{
		"X-Amz-Checksum-Algorithm": "SHA256", "X-Amz-Checksum-Type": "COMPOSITE", "X-Amz-Meta-Berth-Upload": "upl_1", "Content-Type": "a/b",
		"X-Amz-Storage-Class": "STANDARD_IA", "X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "kms",
	} {
		if got := w.last.Load().Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	w = newWire(t, ok)
	if _, err := w.CreateMultipart(t.Context(), models.ObjectSpec{Key: "k", Type: models.FullObject}); err != nil {
		t.Fatal(err)
	}
	for name := range w.last.Load().Header {
		if strings.Contains(strings.ToLower(name), "checksum") {
			t.Errorf("no algorithm was asked for, yet %s is sent", name)
		}
	}
	w = newWire(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	if _, err := w.CreateMultipart(t.Context(), models.ObjectSpec{Key: "k"}); models.ObjectKind(err) != models.ObjectUnavailable {
		t.Errorf("no upload id: %v", err)
	}
}

// Reads are tried again; what may have had its effect is not, unless the store said
// that it did nothing.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	create := func(w *wire) error {
		_, err := w.CreateMultipart(t.Context(), models.ObjectSpec{Key: "k"})
		return err
	}
	head := func(w *wire) error { _, err := w.Head(t.Context(), "k", ""); return err }
	done := func(w *wire) error { _, err := complete(w, t); return err }
	for _, c := range []struct {
		name   string
		call   func(*wire) error
		status int
		code   string
		want   int32
	}{
		{"head, 500", head, 500, "", attempts},
		{"head, 404", head, 404, "", 1},
		{"create, 500", create, 500, "InternalError", 1},
		{"create, slow down", create, 503, "SlowDown", attempts},
		{"complete, 500", done, 500, "InternalError", 1},
		{"complete, slow down", done, 503, "SlowDown", attempts},
		{"abort, 500", func(w *wire) error { return w.AbortMultipart(t.Context(), "k", "u") }, 500, "InternalError", attempts},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, says(c.status, c.code, ""))
			if err := c.call(w); err == nil {
				t.Error("no error")
			}
			if n := w.calls.Load(); n != c.want {
				t.Errorf("asked %d times, want %d", n, c.want)
			}
		})
	}
}

func TestDeleteCountsWhatWasSaid(t *testing.T) {
	t.Parallel()
	refs := []models.VersionRef{{Key: "a", VersionID: "1"}, {Key: "b", VersionID: "2"}, {Key: "c", VersionID: "3"}, {Key: "d", VersionID: "4"}, {Key: "e", VersionID: models.NullVersion}, {Key: "f", VersionID: "6"}, {Key: "g", VersionID: "7"}}
	w := newWire(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<DeleteResult><Deleted><Key>a</Key><VersionId>1</VersionId></Deleted><Deleted><Key>e</Key></Deleted>
<Error><Key>b</Key><VersionId>2</VersionId><Code>NoSuchVersion</Code><Message>gone</Message></Error>
<Error><Key>c</Key><VersionId>3</VersionId><Code>AccessDenied</Code><Message>Access Denied because object protected by object lock.</Message></Error>
<Error><Key>d</Key><VersionId>4</VersionId><Code>AccessDenied</Code><Message>Access Denied</Message></Error>
<Error><Key>f</Key><VersionId>6</VersionId><Code>InternalError</Code><Message>https://example.org/?X-Amz-Signature=0123</Message></Error></DeleteResult>`)
	})
	results, err := w.DeleteVersions(t.Context(), refs)
	if err != nil {
		t.Fatal(err)
	}
	want := []models.ObjectErrorKind{"", "", models.ObjectLocked, models.ObjectDenied, "", models.ObjectUnavailable, models.ObjectUnavailable}
	for i, r := range results {
		kind := models.ObjectErrorKind("")
		if r.Err != nil {
			kind = r.Err.Kind
			if strings.Contains(r.Err.Error(), "Signature") {
				t.Errorf("a signed address: %v", r.Err)
			}
		}
		if kind != want[i] || r.Key != refs[i].Key || r.VersionID != refs[i].VersionID {
			t.Errorf("%v: got %q, want %q", refs[i], kind, want[i])
		}
	}
}

func TestDeleteGoesInBatches(t *testing.T) {
	t.Parallel()
	w := newWire(t, func(call int, w http.ResponseWriter, _ *http.Request) {
		if call == 3 {
			says(403, "AccessDenied", "")(call, w, httptest.NewRequest(http.MethodPost, "/", nil))
			return
		}
		_, _ = io.WriteString(w, "<DeleteResult>")
		for i := range deleteBatch {
			_, _ = fmt.Fprintf(w, "<Deleted><Key>k</Key><VersionId>%d</VersionId></Deleted>", (call-1)*deleteBatch+i)
		}
		_, _ = io.WriteString(w, "</DeleteResult>")
	})
	refs := make([]models.VersionRef, 2*deleteBatch+1)
	for i := range refs {
		refs[i] = models.VersionRef{Key: "k", VersionID: fmt.Sprint(i)}
	}
	results, err := w.DeleteVersions(t.Context(), refs)
	if models.ObjectKind(err) != models.ObjectDenied || len(results) != 2*deleteBatch || w.calls.Load() != 3 {
		t.Errorf("%d results in %d calls, %v", len(results), w.calls.Load(), err)
	}
	if n := strings.Count(*w.body.Load(), "<Object>"); n != 1 {
		t.Errorf("the last batch holds %d", n)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatalf("%v", r)
		}
	}
}

// A page that says there is more, and not from where, would be listed for ever.
func TestListingsEnd(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"ListPartsResult", "ListMultipartUploadsResult", "ListVersionsResult"} {
		w := newWire(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "<%s><IsTruncated>true</IsTruncated><NextPartNumberMarker>5</NextPartNumberMarker><NextKeyMarker>k</NextKeyMarker></%s>", root, root)
		})
		var err error
		switch root {
		case "ListPartsResult":
			for _, err = range w.ListParts(t.Context(), "k", "u", models.SHA256) {
			}
		case "ListMultipartUploadsResult":
			for _, err = range w.ListMultiparts(t.Context(), "") {
			}
		default:
			for _, err = range w.ListVersions(t.Context(), "") {
			}
		}
		if models.ObjectKind(err) != models.ObjectUnavailable || w.calls.Load() != 2 {
			t.Errorf("%s: %v after %d calls", root, err, w.calls.Load())
		}
	}
}

// A store that begins a page with the last of the one before is heard once.
func TestListsAVersionOnce(t *testing.T) {
	t.Parallel()
	version := func(id string) string { return "<Version><Key>k</Key><VersionId>" + id + "</VersionId></Version>" }
	w := newWire(t, func(call int, w http.ResponseWriter, r *http.Request) {
		const root = "ListVersionsResult"
		if call == 1 {
			_, _ = fmt.Fprintf(w, "<%s><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker><NextVersionIdMarker>2</NextVersionIdMarker>%s%s</%s>", root, version("1"), version("2"), root)
			return
		}
		_, _ = fmt.Fprintf(w, "<%s>%s%s</%s>", root, version("2"), version("3"), root)
	})
	var got string
	for v, err := range w.ListVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got += v.VersionID
	}
	if got != "123" {
		t.Errorf("listed %s", got)
	}
}

// Keys that XML cannot hold come encoded, and the markers with them.
func TestListsKeysThatXMLCannotHold(t *testing.T) {
	t.Parallel()
	const odd, encoded = "a b+\x01/ü%", "a+b%2B%01/%C3%BC%25"
	page := func(root, entry, next string) func(int, http.ResponseWriter, *http.Request) {
		return func(call int, w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if q.Get("encoding-type") != "url" {
				t.Errorf("%s: the encoding was not asked for", root)
			}
			if call == 2 && q.Get("key-marker") != odd {
				t.Errorf("%s: goes on from %q", root, q.Get("key-marker"))
			}
			more := ""
			if call == 1 {
				more = "<IsTruncated>true</IsTruncated><NextKeyMarker>" + encoded + "</NextKeyMarker>" + next
			}
			_, _ = fmt.Fprintf(w, "<%s><EncodingType>url</EncodingType>%s%s</%s>", root, more, strings.ReplaceAll(entry, "#", strconv.Itoa(call)), root)
		}
	}
	w := newWire(t, page("ListVersionsResult", "<Version><Key>"+encoded+"</Key><VersionId>#</VersionId></Version>", "<NextVersionIdMarker>1</NextVersionIdMarker>"))
	n := 0
	for v, err := range w.ListVersions(t.Context(), "") {
		if err != nil || v.Key != odd {
			t.Errorf("version of %q, %v", v.Key, err)
		}
		n++
	}
	w = newWire(t, page("ListMultipartUploadsResult", "<Upload><Key>"+encoded+"</Key><UploadId>#</UploadId></Upload>", "<NextUploadIdMarker>1</NextUploadIdMarker>"))
	for m, err := range w.ListMultiparts(t.Context(), "") {
		if err != nil || m.Key != odd {
			t.Errorf("upload of %q, %v", m.Key, err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d entries", n)
	}
}

// Stores older than checksum types, and metadata in another case.
func TestHeadOfOlderStores(t *testing.T) {
	t.Parallel()
	w := newWire(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Checksum-Mode") != "ENABLED" {
			t.Error("the checksum was not asked for")
		}
		w.Header().Set("Content-Length", "9")
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("X-Amz-Meta-BERTH-Upload", "upl_1")
		w.Header().Set("X-Amz-Checksum-Sha256", "c29tZXRoaW5n-3")
		w.Header().Set("X-Amz-Checksum-Crc32", "AAAAAA==")
	})
	o, err := w.Head(t.Context(), "k", "")
	if err != nil {
		t.Fatal(err)
	}
	if o.VersionID != models.NullVersion || o.UploadID != "upl_1" || o.Size != 9 || o.ETag != "e" {
		t.Errorf("%+v", o)
	}
	if len(o.Checksums) != 2 || o.Checksums[0].Type != models.Composite || o.Checksums[1] != (models.Checksum{Algorithm: models.CRC32, Type: models.FullObject, Value: "AAAAAA=="}) {
		t.Errorf("%v", o.Checksums)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := plainConfig()
	cfg.Endpoint = "http://" + l.Addr().String()
	_ = l.Close()
	s := mustNew(t, cfg)
	_, head := s.Head(t.Context(), "some/key", "")
	_, create := s.CreateMultipart(t.Context(), models.ObjectSpec{Key: "some/key"})
	for name, err := range map[string]error{"head": head, "create": create} {
		if models.ObjectKind(err) != models.ObjectUnavailable || strings.Contains(err.Error(), "://") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The client's own time limit is the store's fault, not the caller's cancellation.
	block := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer server.Close()
	defer close(block)
	cfg.Endpoint, cfg.HTTPClient = server.URL, &http.Client{Timeout: 20 * time.Millisecond}
	_, err = mustNew(t, cfg).Head(t.Context(), "some/key", "")
	if models.ObjectKind(err) != models.ObjectUnavailable || strings.Contains(err.Error(), "://") {
		t.Errorf("silent: %v", err)
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "no message", "plain": "plain", "see https://x/?X-Amz-Signature=1": "a message with an address in it, withheld",
		"the query X-Amz-Signature=00 is wrong": "a message with an address in it, withheld",
	} {
		if got := shorten(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := shorten(strings.Repeat("ü", 1000)); len(got) > 310 || !strings.HasSuffix(got, "ü…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
