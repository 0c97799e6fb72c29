package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"berth/cmd/berthd/config"
	"berth/controlplane"
	"berth/controlplane/httpapi"
	"berth/controlplane/objects"
	"berth/controlplane/store"
	"berth/events"
	"berth/migrations"
	"berth/models"
	"berth/tracing"
	"berth/web"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// build makes and joins the parts that the configuration's roles need.
func build(ctx context.Context, c *config.Config, log *slog.Logger) (*app, error) {
	if err := migrated(ctx, c.Database.URL); err != nil {
		return nil, err
	}
	trace, stop, err := newTracer(ctx, c, log)
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, c.Database.URL.Reveal(), store.Options{MaxConns: c.Database.MaxConns, Trace: trace})
	if err != nil {
		stop()
		return nil, err
	}
	// Requests are answered for a while after ctx has ended, and need what is renewed for them.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	a, err := join(ctx, serving, c, log, db, trace)
	if err != nil {
		end()
		stop()
		return nil, errors.Join(err, db.Close())
	}
	a.close = func() {
		end()
		stop()
		if err := db.Close(); err != nil {
			log.Warn("closing the database", "error", err)
		}
	}
	return a, nil
}

// migrated refuses a schema that lacks what this code needs. A newer one is fine: a
// migration adds first and takes away a release later.
func migrated(ctx context.Context, dsn config.Secret) error {
	n, err := migrations.Pending(ctx, dsn.Reveal())
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("the database lacks %d migrations; run `berthd migrate` with the same configuration, then serve", n)
	}
	return nil
}

// join makes the parts; what serves requests lives until serving ends.
func join(ctx, serving context.Context, c *config.Config, log *slog.Logger, db *store.Store, trace *tracing.Tracer) (*app, error) {
	registry := newRegistry()
	stores, err := openStores(ctx, c, trace)
	if err != nil {
		return nil, err
	}
	inService := make(map[models.StoreName]controlplane.Store, len(stores))
	for name, o := range stores {
		inService[name] = controlplane.Store{Objects: o, Prefix: c.Stores[string(name)].Prefix}
	}
	service, err := controlplane.New(controlplane.Config{
		Records: db, Stores: inService, Collections: c.Policies(), Log: log, Metrics: controlplane.NewMetrics(registry), Trace: trace,
	})
	if err != nil {
		return nil, err
	}
	a := &app{log: log, trace: trace, loops: map[string]func(context.Context){}, policies: service.SetCollections}
	if c.Has(config.RoleAPI) {
		a.delay = c.StopDelay.Std()
	}
	if a.handler, err = newHandler(serving, c, log, registry, service, stores, a); err != nil {
		return nil, err
	}
	if c.Has(config.RoleEvents) {
		if c.Events.QueueURL == "" {
			log.Info("no queue is configured: S3 is heard by webhook only")
		} else {
			consumer, err := newConsumer(ctx, c, log, registry, service, trace)
			if err != nil {
				return nil, err
			}
			a.loops["events"] = consumer.Run
		}
	}
	if c.Has(config.RoleWorker) {
		if err := a.workers(ctx, c, log, registry, db, stores, service); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	v, commit := version()
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_build_info", Help: "Always 1; what runs.",
		ConstLabels: prometheus.Labels{"version": v, "commit": commit}})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}

// openStores makes the adapter of each store. It makes no call.
func openStores(ctx context.Context, c *config.Config, trace *tracing.Tracer) (map[models.StoreName]*objects.Store, error) {
	out := make(map[models.StoreName]*objects.Store, len(c.Stores))
	for name, s := range c.Stores {
		aws, err := awsConfig(ctx, s.Region, s.AccessKeyID, s.SecretAccessKey)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", name, err)
		}
		o, err := objects.New(objects.Config{
			Name: models.StoreName(name), Bucket: s.Bucket, Region: aws.Region, Endpoint: s.Endpoint, PublicEndpoint: s.PublicEndpoint,
			PathStyle: *s.PathStyle, ChecksumWhenRequired: s.ChecksumWhenRequired, Credentials: aws.Credentials,
			ExpectedBucketOwner: s.ExpectedBucketOwner, Trace: trace,
		})
		if err != nil {
			return nil, err
		}
		out[models.StoreName(name)] = o
	}
	return out, nil
}

// newHandler is the API, or only the probes where the process has not that role.
func newHandler(ctx context.Context, c *config.Config, log *slog.Logger, registry *prometheus.Registry, service *controlplane.Service, stores map[models.StoreName]*objects.Store, a *app) (http.Handler, error) {
	conf := httpapi.Config{
		Service: service, Log: log, Registry: registry, Trace: a.trace,
		Ready: func(ctx context.Context) error {
			if a.stopping.Load() {
				return httpapi.ErrStopping
			}
			return service.Ready(ctx)
		},
		MaxBody: int64(c.Limits.MaxBody), RequestTimeout: c.Limits.RequestTimeout.Std(), AllowedOrigins: c.CORS.AllowedOrigins,
		PublicURL: c.PublicURL, TrustedProxies: c.Limits.TrustedProxies,
		CallerRate:  httpapi.Rate{PerSecond: float64(c.Limits.CallerRate), Burst: c.Limits.CallerBurst},
		AddressRate: httpapi.Rate{PerSecond: float64(c.Limits.AddressRate), Burst: c.Limits.AddressBurst},
	}
	if !c.Has(config.RoleAPI) {
		return onlyProbes(httpapi.New(conf)), nil
	}
	auth, err := httpapi.NewVerifier(ctx, httpapi.TokenConfig{
		Secret: []byte(c.Auth.HS256Secret.Reveal()), JWKSURL: c.Auth.JWKSURL, Issuer: c.Auth.Issuer, Audience: c.Auth.Audience,
		Leeway: c.Auth.Leeway.Std(), Log: log,
	})
	if err != nil {
		return nil, err
	}
	conf.Auth = auth
	conf.Notify = events.Webhook{Settler: hears(c, service, log)}.Notify
	conf.NotificationTokens = map[models.StoreName]string{}
	for name, s := range c.Stores {
		conf.NotificationTokens[models.StoreName(name)] = s.NotificationToken.Reveal()
	}
	conf.Pages = web.Handler(web.Config{Connect: origins(stores)})
	return httpapi.New(conf), nil
}

// origins are those that browsers send parts to.
func origins(stores map[models.StoreName]*objects.Store) []string {
	var out []string
	for _, s := range stores {
		out = append(out, s.Origin())
	}
	return out
}

func onlyProbes(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
			h.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

func newConsumer(ctx context.Context, c *config.Config, log *slog.Logger, registry prometheus.Registerer, service *controlplane.Service, trace *tracing.Tracer) (*events.Consumer, error) {
	queue, err := sqsClient(ctx, c)
	if err != nil {
		return nil, err
	}
	return events.NewConsumer(events.Config{
		Queue: queue, QueueURL: c.Events.QueueURL, Settler: hears(c, service, log), StoreOf: c.StoreOf, Ready: service.Ready,
		Pollers: c.Events.Pollers, Visibility: c.Events.Visibility.Std(), Grace: stopTimeout * 2 / 3, Log: log, Registry: registry, Trace: trace,
	})
}
