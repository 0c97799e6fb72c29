package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"berth/cmd/berthd/config"
	"berth/controlplane/objects"
	"berth/controlplane/reconcile"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/models"

	"github.com/prometheus/client_golang/prometheus"
)

// reconcileCmd compares rows and stores, by hand or from a timer of one's own.
type reconcileCmd struct {
	configFlag
	Store     string          `help:"Only this store; without it all, one after the other." placeholder:"NAME"`
	Repair    bool            `help:"Mend what is found. Without it nothing is changed."`
	OlderThan config.Duration `default:"24h" help:"How old something must be to be called left behind; at least 1h." placeholder:"AGE"`
	Inventory string          `help:"Read the versions from an S3 Inventory: the key of its manifest.json in the store's bucket, or s3://bucket/key. Needs --store where there are several." placeholder:"KEY"`
	Most      int64           `default:"10000" help:"Remove no more than this many things." placeholder:"N"`
	JSON      bool            `name:"json" help:"One JSON report a line, a store each."`
}

// Run reconciles and prints the reports. That something was found is no failure.
func (r reconcileCmd) Run(ctx context.Context, s streams) error {
	if r.OlderThan.Std() <= 0 || r.Most <= 0 {
		return usageError("--older-than and --most must be more than 0")
	}
	c, err := r.load()
	if err != nil {
		return err
	}
	names, err := r.stores(c)
	if err != nil {
		return err
	}
	if err := migrated(ctx, c.Database.URL); err != nil {
		return err
	}
	db, err := store.Open(ctx, c.Database.URL.Reveal(), store.Options{MaxConns: 4})
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // nothing is written through it any more
	stores, err := openStores(ctx, c, nil)
	if err != nil {
		return err
	}
	runners := reconcilers(c, newLog(c.Log, s.err), nil, db, stores, func() []string { return models.Limited(c.Policies()) })
	var errs []error
	for _, name := range names {
		report, err := runners[name].Run(ctx, reconcile.Options{Repair: r.Repair, OlderThan: r.OlderThan.Std(), Inventory: r.Inventory, Most: r.Most})
		if report.Run != "" {
			errs = append(errs, r.print(s, report))
		}
		if err != nil {
			if models.ErrorCode(err) == models.CodeInvalidRequest {
				err = usageError(err.Error())
			}
			errs = append(errs, fmt.Errorf("store %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (r reconcileCmd) stores(c *config.Config) ([]string, error) {
	names := slices.Sorted(maps.Keys(c.Stores))
	if r.Store != "" {
		if !slices.Contains(names, r.Store) {
			return nil, usageError(fmt.Sprintf("--store: there is no store %q; there are %v", r.Store, names))
		}
		names = []string{r.Store}
	}
	if r.Inventory != "" && len(names) != 1 {
		return nil, usageError("--inventory is of one bucket: say which with --store")
	}
	return names, nil
}

func (r reconcileCmd) print(s streams, report models.ReconcileReport) error {
	if r.JSON {
		return json.NewEncoder(s.out).Encode(report)
	}
	return reconcile.Render(s.out, report)
}

// reconcilers are one for each store, by name. reg may be nil.
func reconcilers(c *config.Config, log *slog.Logger, reg prometheus.Registerer, db *store.Store, stores map[models.StoreName]*objects.Store,
	limited func() []string) map[string]*reconcile.Runner {
	metrics := reconcile.NewMetrics(reg)
	out := make(map[string]*reconcile.Runner, len(stores))
	for name, o := range stores {
		out[string(name)] = &reconcile.Runner{Store: name, Prefix: c.Stores[string(name)].Prefix, Records: db, Objects: o, Limited: limited, Now: utcNow,
			Log: log, Metrics: metrics}
	}
	return out
}

// reconcileTick is how often it is looked whether a run is due, by whichever process: one
// look costs one query a store.
const reconcileTick = 10 * time.Minute

// reconcileLoop runs what is due, every so often; it only reports. Several processes may
// have it: one runs, the others show its findings.
func reconcileLoop(every time.Duration, c *config.Config, log *slog.Logger, reg prometheus.Registerer, db *store.Store,
	stores map[models.StoreName]*objects.Store, limited func() []string, beat func(string, time.Time)) *worker.Loop {
	d := &reconcile.Daily{Every: every}
	runners := reconcilers(c, log, reg, db, stores, limited)
	for _, name := range slices.Sorted(maps.Keys(runners)) {
		d.Runners = append(d.Runners, runners[name])
	}
	return &worker.Loop{Name: "reconcile", Tick: min(reconcileTick, every), Log: log, Beat: beat, Once: d.RunOnce}
}
