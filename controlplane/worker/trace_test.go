package worker_test

import (
	"testing"
	"time"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/tracing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// What is reaped, years later it may be, is a trace of its own, linked to the one that
// opened the upload.
func TestAReapIsLinkedToTheUpload(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	memory := tracetest.NewInMemoryExporter()
	tr := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(memory)), "test")
	ctx, span := tr.Start(t.Context(), tracing.Server, "request")
	id, _ := tracing.IDs(ctx)
	v, err := s.Service.Open(ctx, stack.Caller("ann"), controlplane.OpenRequest{Collection: "default", Name: "a", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	span.End(nil)
	memory.Reset()
	if _, err := s.Service.Abort(t.Context(), stack.Caller("ann"), v.ID); err != nil {
		t.Fatal(err)
	}
	s.Clock.Advance(time.Hour)
	r := reaper(s, "one")
	r.Trace = tr
	if c, err := r.RunOnce(t.Context()); err != nil || c.Reaped != 1 {
		t.Fatalf("%+v %v", c, err)
	}
	got := memory.GetSpans()
	if len(got) != 1 || got[0].Name != "reap" || got[0].SpanContext.TraceID().String() == id || len(got[0].Links) != 1 ||
		got[0].Links[0].SpanContext.TraceID().String() != id {
		t.Errorf("%+v", got)
	}
}
