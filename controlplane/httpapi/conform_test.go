package httpapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"berth/controlplane/httpapi"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	verrors "github.com/pb33f/libopenapi-validator/errors"
)

// contract validates against the document that is served.
var contract = sync.OnceValues(func() (validator.Validator, error) {
	doc, err := libopenapi.NewDocument(httpapi.OpenAPI())
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithRejectUndeclaredRequestBody())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return v, nil
})

// conforming is a transport that holds every exchange against the document: each
// answer, and each request that was not refused. HEAD is not in the document.
type conforming struct {
	t    testing.TB
	next http.RoundTripper
}

func (c conforming) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(got))
	if err := conforms(r, sent, resp, got); err != nil {
		c.t.Errorf("%s %s → %d is not as the document says: %v", r.Method, r.URL.Path, resp.StatusCode, err)
	}
	return resp, nil
}

func conforms(r *http.Request, sent []byte, resp *http.Response, got []byte) error {
	if r.Method == http.MethodHead || r.Method == http.MethodOptions || resp.StatusCode == http.StatusMethodNotAllowed {
		return nil
	}
	if resp.StatusCode == http.StatusNotFound && bytes.Contains(got, []byte(`"there is nothing at this path"`)) {
		return nil // of no route, so of no operation
	}
	v, err := contract()
	if err != nil {
		return err
	}
	asked := r.Clone(r.Context())
	asked.Body = io.NopCloser(bytes.NewReader(sent))
	if len(sent) == 0 {
		asked.Body = http.NoBody
	}
	answer := *resp
	answer.Body = io.NopCloser(bytes.NewReader(got))
	ok, errs := v.ValidateHttpResponse(asked, &answer)
	if ok && resp.StatusCode < 400 {
		asked.Body = io.NopCloser(bytes.NewReader(sent))
		if len(sent) == 0 {
			asked.Body = http.NoBody
		}
		ok, errs = v.ValidateHttpRequestSync(asked)
	}
	if ok {
		return nil
	}
	return explain(errs)
}

func explain(errs []*verrors.ValidationError) error {
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintf(&b, "\n  %s: %s", e.Message, e.Reason)
		for _, s := range e.SchemaValidationErrors {
			fmt.Fprintf(&b, "\n    %s at %s", s.Reason, s.FieldPath)
		}
	}
	return errors.New(b.String())
}

// The document itself is OpenAPI 3.1.
func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	v, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	if ok, errs := v.ValidateDocument(); !ok {
		t.Fatal(explain(errs))
	}
}

// The check refuses what is not as the document says: else it would prove nothing.
func TestConformanceRefuses(t *testing.T) {
	t.Parallel()
	const id = "upl_019ad1f1-0c11-7a22-9b33-4455667788aa"
	good := `{"id":"` + id + `","file_id":"fil_019ad1f1-0c12-7a22-9b33-4455667788ab","collection":"c","state":"uploading",` +
		`"method":"single","size":1,"part_size":1,"part_count":1,"checksum":{"algorithm":"sha256","type":"full_object"},"expires_at":"2026-11-30T18:00:00Z"}`
	problem := `{"type":"urn:berth:problem:not-found","title":"x","status":404,"code":"NOT_FOUND","request_id":"a"}`
	for name, c := range map[string]struct {
		status int
		ctype  string
		body   string
		ok     bool
	}{
		"good":           {200, "application/json", good, true},
		"good problem":   {404, "application/problem+json", problem, true},
		"another state":  {200, "application/json", strings.Replace(good, `"uploading"`, `"done"`, 1), false},
		"unknown member": {200, "application/json", strings.Replace(good, `"size":1`, `"size":1,"key":"k"`, 1), false},
		"missing member": {200, "application/json", strings.Replace(good, `"method":"single",`, ``, 1), false},
		"bad time":       {200, "application/json", strings.Replace(good, "2026-11-30T18:00:00Z", "yesterday", 1), false},
		"unlisted code":  {404, "application/problem+json", strings.Replace(problem, "NOT_FOUND", "NOT_READY", 1), false},
		"status":         {418, "application/json", good, false},
		"content type":   {404, "text/plain", problem, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/uploads/"+id, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer x")
			resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.ctype}, "X-Request-Id": {"a"}}}
			if err := conforms(r, nil, resp, []byte(c.body)); (err == nil) != c.ok {
				t.Fatalf("want ok=%v, got %v", c.ok, err)
			}
		})
	}
}
