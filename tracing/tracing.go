// Package tracing carries traces between the rooms: through calls in a context, and through
// rows, messages and time as a W3C traceparent. It imports models and OpenTelemetry's API,
// which does nothing by itself; the SDK and the exporter are cmd/berthd's.
//
// A nil *Tracer is off, and so is all that comes of it: nothing is allocated and nothing
// kept. What a span says is made of names that are ours: routes as templates, operations,
// ids, codes. Paths, queries, keys and the texts of errors are never in one: they may hold
// grants and signed URLs.
package tracing

import (
	"context"
	"errors"

	"berth/models"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Attr is one attribute of a span.
type Attr = attribute.KeyValue

// Attributes.
var (
	String = attribute.String
	Int    = attribute.Int
)

// Kind is what a span stands for.
type Kind = trace.SpanKind

// The kinds of spans.
const (
	Internal = trace.SpanKindInternal
	Server   = trace.SpanKindServer
	Client   = trace.SpanKindClient
	Producer = trace.SpanKindProducer
	Consumer = trace.SpanKindConsumer
)

// Tracer begins spans. Nil begins none.
type Tracer struct{ tracer trace.Tracer }

// New makes a Tracer of what exports.
func New(p trace.TracerProvider, version string) *Tracer {
	return &Tracer{p.Tracer("berth", trace.WithInstrumentationVersion(version))}
}

// On tells whether spans come to anything.
func (t *Tracer) On() bool { return t != nil }

// Start begins a span under the one that is current in ctx, or a trace.
func (t *Tracer) Start(ctx context.Context, kind Kind, name string, attrs ...Attr) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	return ctx, Span{s}
}

// Child is Start where there is a current span, and nothing where there is none: what is
// done all day long by itself is no trace.
func (t *Tracer) Child(ctx context.Context, kind Kind, name string, attrs ...Attr) (context.Context, Span) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, Span{}
	}
	return t.Start(ctx, kind, name, attrs...)
}

// Continue begins a span in the trace that a row or a message kept, linked to the span that
// is current in ctx: the batch that it was one of. Without a trace that was kept it is Start.
func (t *Tracer) Continue(ctx context.Context, traceparent string, kind Kind, name string, attrs ...Attr) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	parent := parse(traceparent)
	if !parent.IsValid() {
		return t.Start(ctx, kind, name, attrs...)
	}
	here := trace.SpanContextFromContext(ctx)
	ctx, s := t.Start(trace.ContextWithRemoteSpanContext(ctx, parent), kind, name, attrs...)
	if here.IsValid() {
		s.span.AddLink(trace.Link{SpanContext: here})
	}
	return ctx, s
}

// Receive puts the traceparent of a request's header into ctx, for the next span to be a
// child of. What is malformed is not there. The tracestate is left out: rows keep none, so
// that it would be lost half way.
func (t *Tracer) Receive(ctx context.Context, traceparent string) context.Context {
	if t == nil {
		return ctx
	}
	if parent := parse(traceparent); parent.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	return ctx
}

// Traceparent is the current span of ctx as a row or a message keeps it, "" if there is
// none: 55 bytes, as in W3C Trace Context, version 00.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	var c carrier
	propagation.TraceContext{}.Inject(ctx, &c)
	return string(c)
}

// IDs are the current trace and span of ctx, for log lines; "" if there is none.
func IDs(ctx context.Context) (traceID, spanID string) {
	c := trace.SpanContextFromContext(ctx)
	if !c.IsValid() {
		return "", ""
	}
	return c.TraceID().String(), c.SpanID().String()
}

// Note sets an attribute of the current span.
func Note(ctx context.Context, key, value string) {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		s.SetAttributes(String(key, value))
	}
}

// Link links the current span to the one that a row kept, if that is of another trace.
func Link(ctx context.Context, traceparent string) {
	s := trace.SpanFromContext(ctx)
	if !s.IsRecording() {
		return
	}
	if other := parse(traceparent); other.IsValid() && other.TraceID() != s.SpanContext().TraceID() {
		s.AddLink(trace.Link{SpanContext: other})
	}
}

// Span is one that was begun. The zero Span is off.
type Span struct{ span trace.Span }

// Set sets attributes.
func (s Span) Set(attrs ...Attr) {
	if s.span != nil {
		s.span.SetAttributes(attrs...)
	}
}

// Name renames the span.
func (s Span) Name(name string) {
	if s.span != nil {
		s.span.SetName(name)
	}
}

// Fail says that it failed, and how, in one word.
func (s Span) Fail(kind string) {
	if s.span != nil {
		s.span.SetStatus(codes.Error, "")
		s.span.SetAttributes(String("error.type", kind))
	}
}

// End ends it, failed if err is not nil. Of the error its kind is told, never its text.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.Fail(kindOf(err))
	}
	s.span.End()
}

func kindOf(err error) string {
	switch {
	case models.ObjectKind(err) != "":
		return string(models.ObjectKind(err))
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return string(models.ErrorCode(err))
	}
}

func parse(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	c := carrier(traceparent)
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), &c))
}

// carrier holds a traceparent and nothing else.
type carrier string

func (c *carrier) Get(key string) string {
	if key == "traceparent" {
		return string(*c)
	}
	return ""
}

func (c *carrier) Set(key, value string) {
	if key == "traceparent" {
		*c = carrier(value)
	}
}

func (c *carrier) Keys() []string { return []string{"traceparent"} }
