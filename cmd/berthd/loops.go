package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"time"

	"berth/cmd/berthd/config"
	"berth/controlplane"
	"berth/controlplane/objects"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/models"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of the repair sweep: how long a session is quiet before it is looked at, how many
// records of a kind a pass takes, and how late a session may be closed before it is worth
// an alarm. Quiet is at most a minute, and shorter where the loops run faster.
const (
	repairQuiet = time.Minute
	repairLimit = 100
	repairSlack = 10 * time.Minute
)

// workers adds the loops of the worker role.
func (a *app) workers(ctx context.Context, c *config.Config, log *slog.Logger, registry prometheus.Registerer, db *store.Store,
	stores map[models.StoreName]*objects.Store, service *controlplane.Service) error {
	metrics := worker.NewMetrics(registry)
	wakers := &worker.Wakers{}
	owner := processName()
	tick := c.Worker.Interval.Std()
	reaper := &worker.Reaper{
		Tasks: db, Owner: owner, Lease: c.Worker.Lease.Std(), Limit: c.Worker.Concurrency.Reap, Now: utcNow, Log: log, Metrics: metrics, Trace: a.trace,
		Stores: func(name models.StoreName) (worker.ReapObjects, bool) {
			s, ok := stores[name]
			return s, ok
		},
	}
	repairer := &worker.Repairer{
		Sweep: service, Keep: db, Quiet: min(repairQuiet, max(tick, time.Second)), Limit: repairLimit, Slack: repairSlack,
		History: c.Worker.History.Std(),
		Now:     utcNow, Log: log, Metrics: metrics,
	}
	reap := worker.Pool{
		Loop: worker.Loop{
			Name: "reap", Tick: tick, Wake: wakers.Of(string(models.TaskReap)), Log: log, Beat: metrics.Beat,
			Next: func(ctx context.Context) (time.Time, bool, error) { return db.NextDue(ctx, models.TaskReap) },
		},
		Slots: c.Worker.Concurrency.Reap, Claim: reaper.Claim, Do: reaper.Do,
	}
	if c.Reap.Dispatch == config.DispatchSQS {
		// The queue wakes the reaper; the loop is the net below it.
		reap.Tick, reap.Wake, reap.Next = c.Reap.Net.Std(), nil, nil
		if err := a.dispatch(ctx, c, log, registry, db, service, reaper, wakers); err != nil {
			return err
		}
	}
	repair := worker.Loop{
		Name: "repair", Tick: tick, Log: log, Beat: metrics.Beat,
		Once: func(ctx context.Context) (int, error) {
			n, err := repairer.RunOnce(ctx)
			did := n.Expired + n.Finished + n.Ensured
			if n.Rechecked == repairLimit { // more may be quiet
				did += n.Rechecked
			}
			return did, err
		},
	}
	if every := c.Worker.Reconcile.Std(); every > 0 {
		a.loops["reconcile"] = reconcileLoop(every, c, log, registry, db, stores, service.Limited, metrics.Beat).Run
	}
	a.loops["reap"], a.loops["repair"] = reap.Run, repair.Run
	a.loops["process"] = a.processLoop(c, log, metrics, wakers, owner, db, stores, service)
	publish, err := a.publishLoop(ctx, c, log, metrics, wakers, owner, db)
	if err != nil {
		return err
	}
	a.loops["publish"] = publish
	a.loops["wake"] = func(ctx context.Context) { wakers.Listen(ctx, db, log) }
	return nil
}

// processName names this process in leases: unlike any other's, and unlike its own after
// a restart, so that what it held before is not mistaken for its own.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "berthd"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}

func utcNow() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
