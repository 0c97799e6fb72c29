package main

import (
	"context"
	"log/slog"

	"berth/cmd/berthd/config"
	"berth/controlplane"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/events"
	"berth/models"

	"github.com/prometheus/client_golang/prometheus"
)

// dispatch adds the two loops of reap.dispatch: sqs: one announces due reap tasks on the
// queue, one does what is announced there.
func (a *app) dispatch(ctx context.Context, c *config.Config, log *slog.Logger, registry prometheus.Registerer, db *store.Store,
	service *controlplane.Service, reaper *worker.Reaper, wakers *worker.Wakers) error {
	queue, err := sqsClient(ctx, c)
	if err != nil {
		return err
	}
	consumer, err := events.NewConsumer(events.Config{
		Queue: queue, QueueURL: c.Reap.QueueURL, Reaps: reaper, Ready: service.Ready, Pollers: c.Reap.Pollers,
		Batch:      min(10, c.Worker.Concurrency.Reap), // more would only wait here, while others have nothing to do
		Visibility: c.Reap.Visibility.Std(), Grace: stopTimeout * 2 / 3, Log: log, Registry: registry, Trace: a.trace,
	})
	if err != nil {
		return err
	}
	announcer := &worker.Announcer{
		Tasks: db, Queue: events.ReapQueue{Queue: queue, QueueURL: c.Reap.QueueURL}, Again: c.Reap.Again.Std(),
		Now: utcNow, Log: log, Metrics: reaper.Metrics,
	}
	announce := worker.Loop{
		Name: "announce", Tick: c.Worker.Interval.Std(), Wake: wakers.Of(string(models.TaskReap)), Next: announcer.Next, Log: log,
		Beat: reaper.Metrics.Beat,
		Once: func(ctx context.Context) (int, error) {
			n, err := announcer.RunOnce(ctx)
			return n.Sent, err
		},
	}
	a.loops["announce"], a.loops["reap-queue"] = announce.Run, consumer.Run
	return nil
}
