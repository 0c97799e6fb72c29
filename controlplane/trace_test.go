package controlplane_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
	"berth/tracing"

	"github.com/jackc/pgx/v5/pgconn"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// traced is a service whose spans are kept.
func traced(t *testing.T, s *stack.Stack) (*controlplane.Service, *tracing.Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	memory := tracetest.NewInMemoryExporter()
	tr := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(memory)), "test")
	svc, err := controlplane.New(controlplane.Config{
		Records: s.Store, Stores: map[models.StoreName]controlplane.Store{stack.Main: {Objects: s.Objects, Prefix: "b/"}},
		Collections: stack.Collections(), Now: s.Clock.Now, Trace: tr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return svc, tr, memory
}

// openIn opens an upload of one byte in a trace of its own, sends it, and returns the trace's id.
func openIn(t *testing.T, s *stack.Stack, svc *controlplane.Service, tr *tracing.Tracer) (controlplane.UploadView, string) {
	t.Helper()
	ctx, span := tr.Start(t.Context(), tracing.Server, "request")
	defer span.End(nil)
	v, err := svc.Open(ctx, stack.Caller("ann"), controlplane.OpenRequest{Collection: "default", Name: "a", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	stack.MustSend(t, v.Parts[0], []byte("x"))
	id, _ := tracing.IDs(ctx)
	return v, id
}

// Events of many uploads are recorded in one transaction: what is told of each is of its own trace.
func TestABatchOfEventsIsOfManyTraces(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	svc, tr, memory := traced(t, s)
	ids := map[models.FileID]string{}
	var events []models.ObjectEvent
	for range 3 {
		v, id := openIn(t, s, svc, tr)
		ids[v.FileID] = id
		events = append(events, models.ObjectEvent{Store: stack.Main, Key: v.Key, Created: true})
	}
	plain := open(t, s, "default", 1) // by a server that traces nothing
	stack.MustSend(t, plain.Parts[0], []byte("x"))
	ids[plain.FileID] = ""
	events = append(events, models.ObjectEvent{Store: stack.Main, Key: plain.Key, Created: true})

	batch, span := tr.Start(t.Context(), tracing.Consumer, "process queue")
	for _, err := range svc.Settle(batch, events) {
		if err != nil {
			t.Fatal(err)
		}
	}
	span.End(nil)
	own, _ := tracing.IDs(batch)
	seen := map[string]bool{}
	for file, id := range ids {
		kept := stack.Query[string](t, s, "SELECT COALESCE(traceparent, '') FROM outbox WHERE type = 'file.active' AND file_id = $1", file)
		if id == "" {
			id = own // nothing was kept at open: the batch is all that is known
		}
		if !strings.HasPrefix(kept, "00-"+id+"-") || seen[kept] {
			t.Errorf("%s was told with %q, its trace is %s", file, kept, id)
		}
		seen[kept] = true
	}
	for _, sp := range memory.GetSpans() {
		if sp.Name == "process queue" && len(sp.Links) != 3 {
			t.Errorf("the batch has %d links", len(sp.Links))
		}
	}
}

// What nobody heard of is found by repair, in the trace that opened it.
func TestRepairGoesOnWithTheTrace(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	svc, tr, memory := traced(t, s)
	v, id := openIn(t, s, svc, tr)
	memory.Reset()
	s.Clock.Advance(2 * time.Minute)
	if c, err := svc.Repair(t.Context(), time.Minute, 10); err != nil || c.Finished != 1 {
		t.Fatalf("%+v %v", c, err)
	}
	for _, name := range []string{"look at quiet upload", "verify"} {
		found := false
		for _, sp := range memory.GetSpans() {
			found = found || sp.Name == name && sp.SpanContext.TraceID().String() == id
		}
		if !found {
			t.Errorf("the trace lacks %q", name)
		}
	}
	if kept := stack.Query[string](t, s, "SELECT traceparent FROM outbox WHERE file_id = $1", v.FileID); !strings.HasPrefix(kept, "00-"+id+"-") {
		t.Errorf("told with %q", kept)
	}
}

// The database takes nothing but a traceparent, whoever writes.
func TestRowsKeepOnlyTraceparents(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 1)
	for _, bad := range []string{"", "x", "00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) + "-ff", "00-" + strings.Repeat("A", 32) + "-" + strings.Repeat("b", 16) + "-01",
		"00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) + "-01\n", strings.Repeat("a", 1<<16)} {
		_, err := s.Pool().Exec(context.WithoutCancel(t.Context()), "UPDATE uploads SET traceparent = $1 WHERE id = $2", bad, v.ID)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.ConstraintName != "uploads_traceparent" {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}
