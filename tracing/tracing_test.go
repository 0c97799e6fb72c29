package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"berth/models"
	"berth/tracing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

const theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func recording(t *testing.T) (*tracing.Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	memory := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(memory))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return tracing.New(p, "test"), memory.GetSpans
}

// What a row keeps is what a request brought, and what is done for the row later is of the
// same trace, linked to the batch that it was done in.
func TestATraceOutlivesItsContext(t *testing.T) {
	t.Parallel()
	tr, spans := recording(t)
	ctx, request := tr.Start(tr.Receive(t.Context(), theirs), tracing.Server, "request")
	kept := tracing.Traceparent(ctx)
	request.End(nil)
	if len(kept) != 55 || !strings.HasPrefix(kept, theirs[:36]) || kept == theirs {
		t.Fatalf("kept %q", kept)
	}

	batch, span := tr.Start(t.Context(), tracing.Consumer, "batch")
	tracing.Link(batch, kept)
	tracing.Link(batch, tracing.Traceparent(batch)) // its own trace: no link
	work, part := tr.Continue(batch, kept, tracing.Internal, "part")
	_, below := tr.Child(work, tracing.Client, "call")
	below.End(nil)
	part.End(nil)
	span.End(nil)
	_, alone := tr.Child(t.Context(), tracing.Client, "nobody's")
	alone.End(nil)

	by := map[string]tracetest.SpanStub{}
	for _, s := range spans() {
		by[s.Name] = s
	}
	id := theirs[3:35]
	for _, name := range []string{"request", "part", "call"} {
		if got := by[name].SpanContext.TraceID().String(); got != id {
			t.Errorf("%s is of trace %s", name, got)
		}
	}
	if p := by["part"]; p.Parent.SpanID() != by["request"].SpanContext.SpanID() || len(p.Links) != 1 || p.Links[0].SpanContext.SpanID() != by["batch"].SpanContext.SpanID() {
		t.Errorf("part: parent %s, links %v", p.Parent.SpanID(), p.Links)
	}
	if b := by["batch"]; b.SpanContext.TraceID().String() == id || len(b.Links) != 1 || b.Links[0].SpanContext.TraceID().String() != id {
		t.Errorf("batch: %s, links %v", b.SpanContext.TraceID(), b.Links)
	}
	if by["call"].Parent.SpanID() != by["part"].SpanContext.SpanID() {
		t.Error("the call is not the part's")
	}
	if _, made := by["nobody's"]; made {
		t.Error("a child of nothing is a span")
	}
}

// What is no traceparent begins a trace of its own, and never comes to a row.
func TestMalformedTraceparents(t *testing.T) {
	t.Parallel()
	tr, _ := recording(t)
	for _, bad := range []string{
		"", "x", theirs[:54], theirs + "0", theirs + "-00", strings.ToUpper(theirs), "ff" + theirs[2:], "00-" + strings.Repeat("0", 32) + theirs[35:],
		theirs[:36] + strings.Repeat("0", 16) + "-01", theirs[:53] + "ff", strings.Replace(theirs, "-", "_", 1), " " + theirs, theirs + "\n", strings.Repeat("a", 1<<16),
		"'; DROP TABLE uploads; --",
	} {
		ctx, s := tr.Start(tr.Receive(t.Context(), bad), tracing.Server, "request")
		if kept := tracing.Traceparent(ctx); strings.Contains(kept, theirs[3:35]) || len(kept) != 55 {
			t.Errorf("%.60q is taken: %q", bad, kept)
		}
		s.End(nil)
		ctx, s = tr.Continue(t.Context(), bad, tracing.Internal, "work")
		if kept := tracing.Traceparent(ctx); strings.Contains(kept, theirs[3:35]) || len(kept) != 55 {
			t.Errorf("%.60q is gone on with: %q", bad, kept)
		}
		s.End(nil)
	}
}

// Errors quote URLs, and URLs hold grants and signatures.
func TestASpanHoldsNoErrorsText(t *testing.T) {
	t.Parallel()
	tr, spans := recording(t)
	const secret = "https://s3.example.com/k?X-Amz-Signature=0123"
	for _, err := range []error{
		errors.New(secret), fmt.Errorf("call: %w", context.Canceled), context.DeadlineExceeded,
		models.Errorf(models.CodeStoreUnavailable, "%s", secret).Because(errors.New(secret)),
		&models.ObjectError{Kind: models.ObjectDenied, Op: "HeadObject", Code: secret, Err: errors.New(secret)},
	} {
		_, s := tr.Start(t.Context(), tracing.Internal, "work")
		s.End(err)
	}
	var kinds []string
	for _, s := range spans() {
		if text := fmt.Sprintf("%+v", s); strings.Contains(text, "X-Amz") {
			t.Errorf("a span holds it: %s", text)
		}
		kinds = append(kinds, s.Attributes[0].Value.AsString())
	}
	if got := strings.Join(kinds, " "); got != "INTERNAL canceled timeout STORE_UNAVAILABLE denied" {
		t.Errorf("kinds: %s", got)
	}
}

// Off costs nothing: the same context comes back, and not a byte is allocated.
func TestOffIsFree(t *testing.T) {
	var off *tracing.Tracer
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		ctx := off.Receive(ctx, theirs)
		ctx, s := off.Start(ctx, tracing.Server, "request")
		ctx, c := off.Child(ctx, tracing.Client, "call")
		ctx, w := off.Continue(ctx, theirs, tracing.Internal, "work")
		tracing.Note(ctx, "berth.upload.id", "upl")
		tracing.Link(ctx, theirs)
		if tracing.Traceparent(ctx) != "" {
			t.Error("there is a trace")
		}
		w.End(nil)
		c.Fail("x")
		c.End(nil)
		s.Name("x")
		s.End(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
