package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/models"
	"berth/tracing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/prometheus/client_golang/prometheus"
)

// Settler does what events ask for. The errors stand at the places of their events;
// nil means settled, or harmless. Every error passes: the event is brought again.
type Settler interface {
	Settle(ctx context.Context, events []models.ObjectEvent) []error
}

// Queue is what the consumer needs of SQS. *sqs.Client has it.
type Queue interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

// StoreOf finds the store of an object.
type StoreOf func(bucket, key string) (models.StoreName, bool)

// Reaps does the reap tasks that messages announce. patience is for how long a message can
// stay in the queue, hidden. Every error passes: the message is brought again.
type Reaps interface {
	Told(ctx context.Context, m models.ReapMessage, patience time.Duration) (models.ReapAnswer, error)
}

// Config is what a consumer is made of. Queue and QueueURL must be given, and either
// Settler with StoreOf, for a queue of S3's notifications, or Reaps, for one of due reap
// tasks; zero durations and counts mean the defaults.
type Config struct {
	Queue      Queue
	QueueURL   string
	Settler    Settler
	StoreOf    StoreOf
	Reaps      Reaps
	Ready      func(context.Context) error // asked before a trial while all fails; nil: ready
	Pollers    int                         // 2
	Batch      int                         // messages a receive, at most 10, which is the default
	Wait       time.Duration               // of a long poll; 20 s, SQS's most; the HTTP client's timeout must be longer
	Visibility time.Duration               // of a message in hand, prolonged while it is; 60 s
	BackOff    time.Duration               // of a message's first passing fault; doubles by receive; 10 s
	MaxBackOff time.Duration               // 15 min
	Grace      time.Duration               // of work in hand at a stop; 20 s
	Log        *slog.Logger
	Registry   prometheus.Registerer // nil: not registered
	Trace      *tracing.Tracer       // nil: off
}

const (
	batchSize   = 10  // SQS's most for each of its batches
	together    = 128 // messages that are settled together
	settlers    = 2   // how many such batches side by side: one asks S3 while the other writes
	chunkSize   = 512 // events in one call of Settle
	callTimeout = 10 * time.Second
	deleteTries = 4
	maxHold     = 12 * time.Hour // SQS's most, counted from the receive
)

// Consumer reads messages from a queue.
type Consumer struct {
	Config
	metrics   *metrics
	breaker   *breaker
	queueName string
	// take does what the messages ask for, and notes in each what came of it. It returns how
	// many pieces of work were tried and how many of them met a passing fault.
	take func(ctx context.Context, msgs []*message) (tried, passing int)
}

// NewConsumer makes a consumer that Run starts.
func NewConsumer(c Config) (*Consumer, error) {
	notified := c.Settler != nil && c.StoreOf != nil
	if c.Queue == nil || c.QueueURL == "" || notified == (c.Reaps != nil) {
		return nil, errors.New("events: a consumer needs Queue, QueueURL, and either Settler and StoreOf, or Reaps")
	}
	or(&c.Pollers, 2)
	or(&c.Batch, batchSize)
	or(&c.Wait, 20*time.Second)
	or(&c.Visibility, time.Minute)
	or(&c.BackOff, 10*time.Second)
	or(&c.MaxBackOff, 15*time.Minute)
	or(&c.Grace, 20*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	out := &Consumer{
		Config: c, queueName: c.QueueURL[strings.LastIndexByte(c.QueueURL, '/')+1:],
		breaker: newBreaker(min(time.Second, c.BackOff), min(15*time.Second, c.MaxBackOff)),
	}
	if notified {
		out.take, out.metrics = out.settle, newMetrics(c.Registry, "events", c.Pollers)
	} else {
		out.take, out.metrics = out.reap, newMetrics(c.Registry, "reap", c.Pollers)
	}
	return out, nil
}

func or[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

// Run polls until ctx ends; then it finishes what is in hand within Grace, makes the
// rest visible again, and returns. What a poll that is cut off was about to bring stays
// hidden until its visibility ends.
func (c *Consumer) Run(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-stopped:
			return
		case <-ctx.Done():
		}
		timer := time.NewTimer(c.Grace)
		defer timer.Stop()
		select {
		case <-stopped:
		case <-timer.C:
			cancel()
		}
	}()
	hauls := make(chan *haul, together/batchSize)
	var polling, settling sync.WaitGroup
	for i := range c.Pollers {
		polling.Go(func() { c.poll(ctx, work, i, hauls) })
	}
	for range settlers {
		settling.Go(func() { c.settleHauls(work, hauls) })
	}
	polling.Wait()
	close(hauls)
	settling.Wait()
}

// haul is what one receive brought. It is kept hidden until release.
type haul struct {
	msgs    []*message
	release func()
}

// settleHauls settles what the pollers bring, and what has come meanwhile together with
// it: a batch grows with the load, and with it what one look-up and one transaction carry.
func (c *Consumer) settleHauls(work context.Context, hauls <-chan *haul) {
	for h := range hauls {
		batch, n := []*haul{h}, len(h.msgs)
	more:
		for n+batchSize <= together {
			select {
			case h, ok := <-hauls:
				if !ok {
					break more
				}
				batch, n = append(batch, h), n+len(h.msgs)
			default:
				break more
			}
		}
		c.handle(work, batch, false)
	}
}

// poll receives until ctx ends. What it brings is settled by settleHauls, but for a trial
// and for reaps, whose end it waits for.
func (c *Consumer) poll(ctx, work context.Context, poller int, hauls chan<- *haul) {
	failures := 0
	for {
		trial, ok := c.breaker.enter(ctx)
		if !ok {
			return
		}
		if trial && c.Ready != nil {
			if err := c.ask(ctx); err != nil {
				c.breaker.failed(true)
				continue
			}
		}
		msgs, err := c.receive(ctx, trial)
		if err != nil {
			if trial {
				c.breaker.idle()
			}
			if ctx.Err() != nil {
				return
			}
			failures++
			c.metrics.receiveFailed.Inc()
			c.Log.WarnContext(ctx, "events: receive failed", "error", reason(err), "in_a_row", failures)
			pause(ctx, jitter(min(time.Second<<min(failures-1, 5), 30*time.Second)))
			continue
		}
		failures = 0
		c.noteOldest(poller, msgs)
		if len(msgs) == 0 {
			if trial {
				c.breaker.idle()
			}
			continue
		}
		h := &haul{msgs, c.hold(msgs)}
		if trial || c.Reaps != nil {
			// Reaps gain nothing by being taken together, and each may be long: what one process
			// held beside them, others could do.
			c.handle(work, []*haul{h}, trial)
			continue
		}
		hauls <- h // settleHauls takes it, however long that is: no more is received meanwhile
	}
}

func (c *Consumer) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.Ready(ctx)
}

// message is one that is in hand.
type message struct {
	id, handle, body string
	received, sent   time.Time
	receives         int

	malformed error // it is not all understood
	outcome   string
	failed    error // the first passing fault
	events    int
	later     time.Duration // after which it is to come again, though nothing is wrong; 0: not
}

func (c *Consumer) receive(ctx context.Context, trial bool) ([]*message, error) {
	most := int32(c.Batch) // #nosec G115 -- at most 10
	if trial {
		most = 1
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait+callTimeout)
	defer cancel()
	out, err := c.Queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &c.QueueURL, MaxNumberOfMessages: most,
		WaitTimeSeconds: seconds(c.Wait), VisibilityTimeout: seconds(c.Visibility),
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameSentTimestamp,
		},
	})
	if err != nil {
		return nil, err
	}
	return messages(out.Messages, time.Now()), nil
}

func messages(in []types.Message, now time.Time) []*message {
	var out []*message
	for _, m := range in {
		msg := &message{id: aws.ToString(m.MessageId), handle: aws.ToString(m.ReceiptHandle), body: aws.ToString(m.Body), received: now}
		msg.receives, _ = strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
		if ms, err := strconv.ParseInt(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64); err == nil {
			msg.sent = time.UnixMilli(ms)
		}
		out = append(out, msg)
	}
	return out
}

func (c *Consumer) noteOldest(poller int, msgs []*message) {
	var oldest time.Duration
	for _, m := range msgs {
		if !m.sent.IsZero() {
			oldest = max(oldest, m.received.Sub(m.sent))
		}
	}
	c.metrics.oldest[poller].Store(int64(oldest))
}

// handle brings one batch of messages to their ends.
func (c *Consumer) handle(work context.Context, hauls []*haul, trial bool) {
	var msgs []*message
	for _, h := range hauls {
		msgs = append(msgs, h.msgs...)
	}
	tried, passing := c.traced(work, msgs)
	for _, h := range hauls {
		h.release()
	}

	switch {
	case work.Err() != nil:
	case tried > 0 && passing == tried:
		c.breaker.failed(trial)
	case tried > 0 && (passing == 0 || trial):
		c.breaker.settled()
	case trial:
		c.breaker.idle()
	}
	outage := c.breaker.open()
	c.metrics.broken.Set(boolFloat(outage))

	// What follows must be said to the queue also when the work was cut off.
	done := context.WithoutCancel(work)
	now := time.Now()
	var gone, later []*message
	var delays []time.Duration
	for _, m := range msgs {
		switch {
		case m.failed != nil && work.Err() != nil:
			m.outcome = outcomeReleased
			later, delays = append(later, m), append(delays, 0)
		case m.failed != nil:
			m.outcome = outcomePassing
			later, delays = append(later, m), append(delays, c.backOff(m.receives, outage))
			c.Log.WarnContext(done, "events: not settled yet", "message", m.id, "receives", m.receives, "error", reason(m.failed))
		case m.malformed != nil:
			m.outcome = outcomeMalformed
			later, delays = append(later, m), append(delays, hasten(m.receives))
			c.Log.ErrorContext(done, "events: message not understood; left to the dead-letter queue", "message", m.id, "receives", m.receives, "reason", reason(m.malformed))
		case m.later > 0:
			m.outcome = outcomeLater
			later, delays = append(later, m), append(delays, m.later)
		default:
			gone = append(gone, m)
		}
		c.metrics.ended(m.outcome, m, now)
	}
	c.delete(done, gone)
	c.setVisibility(done, later, delays)
}

// traced is take in a span of the batch, as OpenTelemetry's conventions for messaging have
// it. S3 sends no trace with its events: the settler links the batch to those that the
// uploads kept.
func (c *Consumer) traced(ctx context.Context, msgs []*message) (tried, passing int) {
	ctx, span := c.Trace.Start(ctx, tracing.Consumer, "process "+c.queueName, tracing.String("messaging.system", "aws_sqs"),
		tracing.String("messaging.operation.type", "process"), tracing.String("messaging.destination.name", c.queueName),
		tracing.Int("messaging.batch.message_count", len(msgs)))
	tried, passing = c.take(ctx, msgs)
	if passing > 0 {
		span.Fail("passing")
	}
	span.End(nil)
	return tried, passing
}

// settle gives all events of the messages to the settler, each distinct one once, and
// notes in each message what came of it. It returns how many distinct events were
// tried and how many of them met a passing fault.
func (c *Consumer) settle(ctx context.Context, msgs []*message) (tried, passing int) {
	type identity struct {
		store        models.StoreName
		key, version string
		created      bool
	}
	var events []models.ObjectEvent
	var from [][]*message
	at := map[identity]int{}
	for _, m := range msgs {
		b, err := Parse([]byte(m.body))
		if err == nil && len(b.Bad) > 0 {
			err = errors.Join(b.Bad[:min(len(b.Bad), 3)]...)
		}
		m.malformed = err
		c.metrics.skippedKeys.Add(float64(b.Skipped))
		for _, e := range b.Events {
			store, ok := c.StoreOf(e.Bucket, e.Key)
			if !ok {
				c.metrics.unknownBuckets.Inc()
				continue
			}
			e.Store = store
			m.events++
			id := identity{store, e.Key, e.VersionID, e.Created}
			i, twice := at[id]
			if !twice {
				i = len(events)
				at[id] = i
				events, from = append(events, e), append(from, nil)
			}
			from[i] = append(from[i], m)
		}
		switch {
		case m.events > 0:
			m.outcome = outcomeSettled
		case b.Test:
			m.outcome = outcomeTest
		default:
			m.outcome = outcomeForeign
		}
	}
	c.metrics.events.Add(float64(len(events)))
	for start := 0; start < len(events); start += chunkSize {
		chunk := events[start:min(start+chunkSize, len(events))]
		for i, err := range c.call(ctx, chunk) {
			if err == nil {
				continue
			}
			passing++
			for _, m := range from[start+i] {
				if m.failed == nil {
					m.failed = err
				}
			}
		}
	}
	return len(events), passing
}

// call is Settle, with an error for each event if it breaks its word.
func (c *Consumer) call(ctx context.Context, events []models.ObjectEvent) (errs []error) {
	all := func(err error) []error {
		errs := make([]error, len(events))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer func() {
		if p := recover(); p != nil {
			c.Log.ErrorContext(ctx, "events: settling panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			errs = all(errors.New("settling panicked"))
		}
	}()
	if err := ctx.Err(); err != nil {
		return all(err)
	}
	if errs = c.Settler.Settle(ctx, events); len(errs) != len(events) {
		return all(fmt.Errorf("settling %d events gave %d answers", len(events), len(errs)))
	}
	return errs
}

// backOff is how long a message that met a passing fault is hidden: while everything
// fails four times as long, since the trials would else spend the receives of the few
// messages of a quiet queue.
func (c *Consumer) backOff(receives int, outage bool) time.Duration {
	doublings := max(receives-1, 0)
	if outage {
		doublings += 2
	}
	return jitter(min(c.BackOff<<min(doublings, 20), c.MaxBackOff))
}

// hasten is how long a message that is not understood is hidden: briefly, so that it
// uses up its receives, but longer each time, in case no redrive policy ends it.
func hasten(receives int) time.Duration {
	return min(time.Second<<min(max(receives-1, 0), 9), 5*time.Minute)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// seconds rounds up to SQS's unit.
func seconds(d time.Duration) int32 {
	return int32(min((d+time.Second-1)/time.Second, maxHold/time.Second)) // #nosec G115 -- at most 43,200
}

func boolFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
