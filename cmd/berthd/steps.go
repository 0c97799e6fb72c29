package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"berth/cmd/berthd/config"
	"berth/controlplane"
	"berth/controlplane/objects"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/events"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/service/sns"
)

// stepURLLife is how long a step may read the file by the URL that it is given.
const stepURLLife = 6 * time.Hour

// Publishing: how many events a pass takes, and how long an attempt at one may take.
const (
	publishLimit = 32  // sent side by side
	unsentLimit  = 512 // where nobody is told
	publishLease = 2 * time.Minute
	// Events come in bursts; claimed one by one, each would cost several statements.
	publishGather = 20 * time.Millisecond
)

// processLoop runs the steps of collections.
func (a *app) processLoop(c *config.Config, log *slog.Logger, metrics *worker.Metrics, wakers *worker.Wakers, owner string, db *store.Store,
	stores map[models.StoreName]*objects.Store, service *controlplane.Service) func(context.Context) {
	caller := events.NewCaller(c.Webhooks.AllowPrivate, nil)
	of := func(name models.StoreName) (*objects.Store, error) {
		s, ok := stores[name]
		if !ok {
			return nil, fmt.Errorf("the store %q is not configured", name)
		}
		return s, nil
	}
	p := &worker.Processor{
		Tasks: db, Chain: service.Steps, Owner: owner, Lease: c.Worker.Lease.Std(),
		Now: utcNow, Log: log, Metrics: metrics, Trace: a.trace,
		Kinds: map[string]worker.StepFunc{
			"inspect": worker.Inspect(func(ctx context.Context, r models.Replica, n int64) ([]byte, error) {
				s, err := of(r.Store)
				if err != nil {
					return nil, err
				}
				return s.Peek(ctx, r.Key, r.VersionID, n)
			}),
			"webhook": func(ctx context.Context, call worker.StepCall) (models.StepAnswer, error) {
				s, err := of(call.Replica.Store)
				if err != nil {
					return models.StepAnswer{}, err
				}
				url, until, err := s.PresignGet(ctx, call.Replica.Key, call.Replica.VersionID, "", "", stepURLLife, utcNow())
				if err != nil {
					return models.StepAnswer{}, err
				}
				return caller.Step(ctx, events.StepRequest{
					Step: call.Step, Task: call.Task, File: call.File, URL: url, URLExpires: until, LeaseToken: call.Token,
					ResultURL: strings.TrimSuffix(c.PublicURL, "/") + "/v1/tasks/" + string(call.Task.ID) + "/result",
				})
			},
		},
	}
	loop := worker.Pool{
		Loop: worker.Loop{
			Name: "process", Tick: c.Worker.Interval.Std(), Wake: wakers.Of(string(models.TaskProcess)), Log: log, Beat: metrics.Beat,
			Next: func(ctx context.Context) (time.Time, bool, error) { return db.NextDue(ctx, models.TaskProcess) },
		},
		Slots: c.Worker.Concurrency.Process, Claim: p.Claim, Do: p.Do,
	}
	return loop.Run
}

// publishLoop tells others what happened.
func (a *app) publishLoop(ctx context.Context, c *config.Config, log *slog.Logger, metrics *worker.Metrics, wakers *worker.Wakers, owner string, db *store.Store) (func(context.Context), error) {
	targets, err := outboxTargets(ctx, c)
	if err != nil {
		return nil, err
	}
	p := &worker.Publisher{Outbox: db, Targets: targets, Owner: owner, Lease: publishLease, Limit: publishLimit,
		Now: utcNow, Log: log, Metrics: metrics, Trace: a.trace}
	if len(targets) == 0 {
		p.Limit = unsentLimit
	}
	loop := worker.Loop{
		Name: "publish", Tick: c.Worker.Interval.Std(), Wake: wakers.Of("outbox"), Gather: publishGather, Next: db.NextEvent, Log: log, Beat: metrics.Beat,
		Once: func(ctx context.Context) (int, error) {
			n, err := p.RunOnce(ctx)
			return n.Claimed, err
		},
	}
	return loop.Run, nil
}

func outboxTargets(ctx context.Context, c *config.Config) ([]worker.Target, error) {
	var out []worker.Target
	o := c.Outbox
	if o.QueueURL != "" {
		queue, err := sqsClient(ctx, c)
		if err != nil {
			return nil, err
		}
		out = append(out, events.SQSTarget{Queue: queue, QueueURL: o.QueueURL, FIFO: strings.HasSuffix(o.QueueURL, ".fifo")})
	}
	if o.TopicARN != "" {
		conf, err := awsConfig(ctx, c.Events.Region, c.Events.AccessKeyID, c.Events.SecretAccessKey)
		if err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		topic := sns.NewFromConfig(conf, func(s *sns.Options) {
			if c.Events.Endpoint != "" {
				s.BaseEndpoint = &c.Events.Endpoint
			}
		})
		out = append(out, events.SNSTarget{Topic: topic, TopicARN: o.TopicARN, FIFO: strings.HasSuffix(o.TopicARN, ".fifo")})
	}
	if o.WebhookURL != "" {
		out = append(out, events.WebhookTarget{Caller: events.NewCaller(c.Webhooks.AllowPrivate, nil), URL: o.WebhookURL, Secret: o.WebhookSecret.Reveal()})
	}
	return out, nil
}
