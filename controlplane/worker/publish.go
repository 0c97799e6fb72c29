package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth/models"
	"berth/tracing"
)

// Outbox is what the publisher needs of the database.
type Outbox interface {
	ClaimEvents(ctx context.Context, owner string, until time.Time, limit int, now time.Time) ([]models.Event, error)
	FinishEvents(ctx context.Context, events []models.Event, results []models.SendResult, now time.Time) (ok []bool, err error)
}

// Target is somewhere that events are sent to. Send returns nil only once the other side
// has the event for certain; it may be called again with the same one.
type Target interface {
	Name() string
	Send(ctx context.Context, e models.Event) error
}

// Publisher tells others what happened: at least once, each file's events in order.
type Publisher struct {
	Outbox  Outbox
	Targets []Target
	Owner   string
	Lease   time.Duration // longer than all targets together may take
	Limit   int
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
	Trace   *tracing.Tracer
}

// PublishCounts is what one pass did.
type PublishCounts struct{ Claimed, Sent, Retried, Failed, Lost int }

// RunOnce sends one batch. Without a target, events count as sent: nobody wants them.
func (p *Publisher) RunOnce(ctx context.Context) (PublishCounts, error) {
	now := p.Now()
	events, err := p.Outbox.ClaimEvents(ctx, p.Owner, now.Add(p.Lease), p.Limit, now)
	if err != nil {
		return PublishCounts{}, err
	}
	c := PublishCounts{Claimed: len(events)}
	var (
		errs []error
		mu   sync.Mutex
		wg   sync.WaitGroup
	)
	finish := func(events []models.Event, results []models.SendResult) {
		ok, err := p.Outbox.FinishEvents(context.WithoutCancel(ctx), events, results, p.Now())
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err) // the leases run out, and they are sent again
			return
		}
		for i, e := range events {
			p.count(ctx, &c, e, results[i], ok[i])
		}
	}
	if len(p.Targets) == 0 && len(events) > 0 {
		results := make([]models.SendResult, len(events))
		for i, e := range events {
			results[i] = models.AfterSend(e, e.SentTo, "", now)
		}
		finish(events, results)
		return c, errors.Join(errs...)
	}
	for _, e := range events {
		wg.Go(func() { finish([]models.Event{e}, []models.SendResult{p.send(ctx, e)}) })
	}
	wg.Wait()
	return c, errors.Join(errs...)
}

// count notes how one event ended.
func (p *Publisher) count(ctx context.Context, c *PublishCounts, e models.Event, r models.SendResult, ok bool) {
	switch {
	case !ok:
		c.Lost++
	case r.To == models.OutboxSent:
		c.Sent++
	case r.To == models.OutboxFailed:
		c.Failed++
		p.Log.ErrorContext(ctx, "an event could not be sent and waits for a person", "event", e.ID, "type", e.Type, "err", r.Err)
	default:
		c.Retried++
	}
	p.Metrics.published(r.To)
}

// sendTo sends an event to one target, as a span of the trace that caused it. What travels
// with the event is this span.
func (p *Publisher) sendTo(ctx context.Context, t Target, e models.Event) error {
	ctx, span := p.Trace.Continue(ctx, e.Traceparent, tracing.Producer, "send "+t.Name(),
		tracing.String("messaging.operation.type", "send"), tracing.String("messaging.message.id", string(e.ID)),
		tracing.String("berth.event.type", string(e.Type)), tracing.String("berth.file.id", string(e.FileID)))
	err := t.Send(ctx, e)
	span.End(err)
	return err
}

func (p *Publisher) send(ctx context.Context, e models.Event) models.SendResult {
	ctx, cancel := context.WithTimeout(ctx, p.Lease*3/4)
	defer cancel()
	sent := slices.Clone(e.SentTo)
	said := ""
	for _, t := range p.Targets {
		if slices.Contains(sent, t.Name()) {
			continue
		}
		if err := p.sendTo(ctx, t, e); err != nil {
			said = t.Name() + ": " + short(err)
			continue
		}
		sent = append(sent, t.Name())
	}
	return models.AfterSend(e, sent, said, p.Now())
}
