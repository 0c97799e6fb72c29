package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"berth/cmd/berthd/config"
	"berth/tracing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// traceFlush bounds how long a stop waits for the last spans to be taken.
const traceFlush = 5 * time.Second

// newTracer makes what traces go through, nil where nothing is configured. stop sends what
// is left. A receiver that is away costs its spans, and nothing else.
func newTracer(ctx context.Context, c *config.Config, log *slog.Logger) (t *tracing.Tracer, stop func(), err error) {
	if !traceWanted(c.Telemetry) {
		return nil, func() {}, nil
	}
	var where []otlptracehttp.Option
	if e := c.Telemetry.OTLPEndpoint; e != "" {
		where = append(where, otlptracehttp.WithEndpointURL(strings.TrimSuffix(e, "/")+"/v1/traces"))
	}
	exporter, err := otlptracehttp.New(ctx, where...)
	if err != nil {
		return nil, nil, fmt.Errorf("telemetry: %w", err)
	}
	self, err := traceResource(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("telemetry: %w", err)
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(self)}
	if r := c.Telemetry.SampleRatio; r != nil {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(*r))))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are lost", "err", err) }))
	provider := sdktrace.NewTracerProvider(options...)
	v, _ := version()
	return tracing.New(provider, v), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces are lost", "err", err)
		}
	}, nil
}

// traceWanted tells whether anything says where traces go.
func traceWanted(t config.Telemetry) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return t.OTLPEndpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// traceResource is who the spans are of. What the environment says wins over what is known
// here, and the configuration over both.
func traceResource(ctx context.Context, c *config.Config) (*resource.Resource, error) {
	v, commit := version()
	roles := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		roles[i] = string(r)
	}
	own := []attribute.KeyValue{
		attribute.String("service.name", "berthd"), attribute.String("service.version", v), attribute.String("service.instance.id", processName()),
		attribute.String("vcs.ref.head.revision", commit), attribute.StringSlice("berth.roles", roles),
	}
	options := []resource.Option{resource.WithAttributes(own...), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv()}
	if n := c.Telemetry.ServiceName; n != "" {
		options = append(options, resource.WithAttributes(attribute.String("service.name", n)))
	}
	return resource.New(ctx, options...)
}

// tracedLog adds the trace to the lines that are written in one.
type tracedLog struct{ slog.Handler }

func (h tracedLog) Handle(ctx context.Context, r slog.Record) error {
	if trace, span := tracing.IDs(ctx); trace != "" {
		r.AddAttrs(slog.String("trace_id", trace), slog.String("span_id", span))
	}
	return h.Handler.Handle(ctx, r)
}

func (h tracedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLog{h.Handler.WithAttrs(attrs)}
}

func (h tracedLog) WithGroup(name string) slog.Handler { return tracedLog{h.Handler.WithGroup(name)} }
