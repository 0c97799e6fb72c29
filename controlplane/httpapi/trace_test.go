package httpapi_test

import (
	"errors"
	"strings"
	"testing"

	"berth/controlplane/httpapi"
	"berth/tracing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A request is a span of the trace that its caller names, called after the route's template.
func TestRequestsAreTraced(t *testing.T) {
	t.Parallel()
	const theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	memory := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(memory))
	s, r := record(t, func(c *httpapi.Config) { c.Trace = tracing.New(provider, "test") })
	s.undocumented()
	ann := tokenFor(t, "ann", allScopes)
	path := "/v1/files/" + someFile
	for _, c := range []struct {
		method, path, token, traceparent string
		err                              error
		name                             string
		status                           int
		inherits, fails                  bool
	}{
		{"GET", path, ann, theirs, nil, "GET /v1/files/:id", 200, true, false},
		{"HEAD", path, ann, "", nil, "HEAD /v1/files/:id", 200, false, false},
		{"GET", path + "?x=eyJ0eXAi", ann, "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", nil, "GET /v1/files/:id", 200, false, false},
		{"GET", path, "nonsense", theirs, nil, "GET /v1/files/:id", 401, true, false},
		{"GET", path, ann, theirs, errors.New("at " + signedURL), "GET /v1/files/:id", 500, true, true},
		{"GET", "/nothing/" + ann, ann, theirs, nil, "GET (none)", 404, true, false},
	} {
		memory.Reset()
		r.err = c.err
		if a := s.call(c.method, c.path, c.token, nil, "Traceparent", c.traceparent); a.status != c.status {
			t.Fatalf("%s %s: %d", c.method, c.path, a.status)
		}
		got := memory.GetSpans()
		if len(got) != 1 {
			t.Fatalf("%s: %d spans", c.path, len(got))
		}
		span := got[0]
		if span.Name != c.name || span.SpanKind != trace.SpanKindServer || (span.Parent.SpanID().String() == "b7ad6b7169203331") != c.inherits ||
			(span.Status.Code == codes.Error) != c.fails || span.Status.Description != "" {
			t.Errorf("%s %s: %+v", c.method, c.path, span)
		}
		set := attribute.NewSet(span.Attributes...)
		if v, _ := set.Value("http.response.status_code"); v.AsInt64() != int64(c.status) {
			t.Errorf("%s: status %d", c.path, v.AsInt64())
		}
		for _, a := range span.Attributes {
			if v := a.Value.String(); strings.Contains(v, "eyJ") || strings.Contains(v, "X-Amz") || strings.Contains(v, someFile) {
				t.Errorf("%s: %s is %q", c.path, a.Key, v)
			}
		}
	}
	memory.Reset()
	s.call("GET", "/healthz", "", nil)
	s.call("GET", "/metrics", "", nil)
	if n := len(memory.GetSpans()); n != 0 {
		t.Errorf("%d spans of probes", n)
	}
}
