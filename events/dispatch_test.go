package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/events"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/prometheus/client_golang/prometheus"
)

// dispatched is a control plane whose reaps go over a queue.
type dispatched struct {
	*stack.Stack
	queue    testkit.SQSInfo
	registry *prometheus.Registry
	reaper   *worker.Reaper
}

func newDispatched(t *testing.T) *dispatched {
	t.Helper()
	s := stack.New(t)
	return &dispatched{Stack: s, queue: testkit.SQS(t), registry: prometheus.NewRegistry(), reaper: newReaper(s, "one")}
}

func newReaper(s *stack.Stack, owner string) *worker.Reaper {
	return &worker.Reaper{
		Tasks: s.Store, Owner: owner, Lease: time.Minute, Limit: 4, Now: s.Clock.Now, Log: slog.New(slog.DiscardHandler),
		Metrics: worker.NewMetrics(nil),
		Stores:  func(models.StoreName) (worker.ReapObjects, bool) { return s.Objects, true },
	}
}

// consume runs a consumer until the test ends, or stop is called.
func (d *dispatched) consume(t *testing.T, change func(*events.Config)) (stop func()) {
	t.Helper()
	conf := events.Config{Queue: d.queue.Client(), QueueURL: d.queue.QueueURL, Reaps: d.reaper, Wait: time.Second,
		Visibility: 2 * time.Second, BackOff: time.Second, Grace: 50 * time.Millisecond, Registry: d.registry}
	if change != nil {
		change(&conf)
	}
	c, err := events.NewConsumer(conf)
	if err != nil {
		t.Fatal(err)
	}
	return d.run(t, c.Run)
}

func (d *dispatched) run(t *testing.T, loop func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); loop(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// announce runs an announcer until the test ends.
func (d *dispatched) announce(t *testing.T) {
	t.Helper()
	a := &worker.Announcer{Tasks: d.Store, Queue: events.ReapQueue{Queue: d.queue.Client(), QueueURL: d.queue.QueueURL}, Again: time.Minute,
		Now: d.Clock.Now, Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
	l := worker.Loop{Name: "announce", Tick: 100 * time.Millisecond, Log: a.Log, Once: func(ctx context.Context) (int, error) {
		n, err := a.RunOnce(ctx)
		return n.Sent, err
	}}
	d.run(t, l.Run)
}

// doomed is a file whose deletion is due.
type doomed struct {
	file models.FileID
	task string
}

func (d *dispatched) doom(t *testing.T) doomed {
	t.Helper()
	content := stack.Bytes(1, 100)
	v, err := d.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "default", Name: "a.bin", Size: int64(len(content))})
	if err != nil {
		t.Fatal(err)
	}
	stack.MustSend(t, v.Parts[0], content)
	if v, err = d.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{}); err != nil {
		t.Fatal(err)
	}
	d.Clock.Advance(30 * time.Minute) // past its URL: one sweep is enough
	if _, err := d.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	return doomed{v.FileID, stack.Query[string](t, d.Stack, "SELECT id FROM tasks WHERE file_id = $1 AND state = 'pending'", string(v.FileID))}
}

func (x doomed) message() string {
	return fmt.Sprintf(`{"type":"FILE_DELETE","task_id":%q,"file_id":%q}`, x.task, x.file)
}

func (d *dispatched) deleted(t *testing.T, x doomed) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if s := stack.Query[string](t, d.Stack, "SELECT state FROM files WHERE id = $1", string(x.file)); s != "deleted" {
			return fmt.Errorf("the file is %s", s)
		}
		return nil
	})
}

func (d *dispatched) drained(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if n := count(t, d.queue, d.queue.QueueURL); n > 0 {
			return fmt.Errorf("%d messages are in the queue", n)
		}
		return nil
	})
}

func (d *dispatched) outcomes(t *testing.T, outcome string) (n float64) {
	t.Helper()
	families, err := d.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "berth_events_messages_total" && m.GetLabel()[0].GetValue() == outcome {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// The announced deletions are done from the queue; nothing of them stays there.
func TestDueReapsGoOverTheQueue(t *testing.T) {
	t.Parallel()
	d := newDispatched(t)
	var all []doomed
	for range 12 {
		all = append(all, d.doom(t))
	}
	d.announce(t)
	d.consume(t, nil)
	for _, x := range all {
		d.deleted(t, x)
	}
	d.drained(t)
	if n := stack.Query[int64](t, d.Stack, "SELECT max(attempts) FROM tasks WHERE kind = 'reap'"); n != 1 {
		t.Errorf("a task took %d attempts", n)
	}
	if n := count(t, d.queue, d.queue.DLQURL); n != 0 {
		t.Errorf("%d messages died", n)
	}
}

// The same message five times, and once more when all is done: one effect.
func TestFiveTimesTheSameMessage(t *testing.T) {
	t.Parallel()
	d := newDispatched(t)
	x := d.doom(t)
	m := x.message()
	send(t, d.queue, []string{m, m, m, m, m})
	stop := d.consume(t, func(c *events.Config) { c.Pollers = 3 })
	d.deleted(t, x)
	d.drained(t)
	send(t, d.queue, []string{m})
	d.drained(t)
	stop()
	for what, q := range map[string]string{
		"physical deletes": "SELECT count(*) FROM history WHERE what = 'object' AND to_state = 'deleted'",
		"attempts":         "SELECT sum(attempts) FROM tasks WHERE id = '" + x.task + "'",
		"file.deleted":     "SELECT count(*) FROM outbox WHERE type = 'file.deleted'",
	} {
		if n := stack.Query[int64](t, d.Stack, q); n != 1 {
			t.Errorf("%s: %d", what, n)
		}
	}
	if n := count(t, d.queue, d.queue.DLQURL); n != 0 {
		t.Errorf("%d messages died", n)
	}
}

// The acknowledgement is lost: the message comes again, and finds nothing to do.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	d := newDispatched(t)
	x := d.doom(t)
	send(t, d.queue, []string{x.message()})
	deaf := &undeleting{Queue: d.queue.Client()}
	stop := d.consume(t, func(c *events.Config) { c.Queue = deaf })
	testkit.Eventually(t, time.Minute, func() error {
		if deaf.refused.Load() == 0 {
			return errors.New("not acknowledged yet")
		}
		return nil
	})
	stop()
	d.deleted(t, x)
	if n := count(t, d.queue, d.queue.QueueURL); n != 1 {
		t.Errorf("%d messages, want the one that could not be deleted", n)
	}
	before := d.Snapshot(t)
	d.registry = prometheus.NewRegistry()
	d.consume(t, nil)
	d.drained(t)
	if after := d.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
}

// undeleting is a queue that lets no message be deleted.
type undeleting struct {
	events.Queue
	refused atomic.Int64
}

func (u *undeleting) DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	u.refused.Add(1)
	return nil, errors.New("connection reset")
}

// While another holds the lease, the message waits and nothing is removed; when that one
// has died, whoever gets the message takes over.
func TestAMessageWaitsForAnothersLease(t *testing.T) {
	t.Parallel()
	d := newDispatched(t)
	x := d.doom(t)
	now := d.Clock.Now()
	if got, err := d.Store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Owner: "another", Until: now.Add(2 * time.Second), Limit: 1, Now: now}); err != nil || len(got) != 1 {
		t.Fatalf("%v, error %v", got, err)
	}
	send(t, d.queue, []string{x.message()})
	d.announce(t)
	d.consume(t, nil)
	testkit.Eventually(t, time.Minute, func() error {
		if d.outcomes(t, "later") == 0 {
			return errors.New("not received yet")
		}
		return nil
	})
	if s := stack.Query[string](t, d.Stack, "SELECT state || ' ' || lease_owner FROM tasks WHERE id = '"+x.task+"'"); s != "running another" {
		t.Errorf("the task is %s", s)
	}
	if n := stack.Query[int64](t, d.Stack, "SELECT count(*) FROM history WHERE what = 'object'"); n != 0 {
		t.Errorf("%d deletes under another's lease", n)
	}
	d.Clock.Advance(5 * time.Second)
	d.deleted(t, x)
	d.drained(t)
	if n := count(t, d.queue, d.queue.DLQURL); n != 0 {
		t.Errorf("%d messages died", n)
	}
}

// A task that is put off oftener than the queue lets a message be received costs no dead
// letter: its message is replaced.
func TestAPatientTaskCostsNoDeadLetter(t *testing.T) {
	t.Parallel()
	d := newDispatched(t)
	x := d.doom(t)
	var fails atomic.Int64
	d.reaper.Stores = func(models.StoreName) (worker.ReapObjects, bool) {
		if fails.Add(1) <= 3 {
			return nil, false // pending again, seconds later
		}
		return d.Objects, true
	}
	d.announce(t)
	d.consume(t, nil)
	// The retries back off by the clock, which does not run by itself.
	d.run(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			if _, err := d.Pool().Exec(ctx, "UPDATE tasks SET run_at = $1 WHERE state = 'pending'", d.Clock.Now()); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	d.deleted(t, x)
	d.drained(t)
	if n := count(t, d.queue, d.queue.DLQURL); n != 0 {
		t.Errorf("%d messages died", n)
	}
	if n := fails.Load(); n != 4 {
		t.Errorf("%d attempts", n)
	}
}

// What cannot be understood goes to the dead-letter queue after as many receives as the
// policy allows, with a reason; nothing waits for it.
func TestPoisonOfTheReapQueue(t *testing.T) {
	t.Parallel()
	d := newDispatched(t)
	x, y := d.doom(t), d.doom(t)
	poison := map[string]string{
		"hello": "not JSON",
		strings.Replace(x.message(), "FILE_DELETE", "FILE_KEEP", 1):           "FILE_KEEP",
		strings.Replace(x.message(), string(x.file), string(y.file), 1):       "not of the file",
		strings.Replace(x.message(), x.task, "tsk_1", 1):                      "task_id",
		`{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","s3":{}}]}`: "the type",
	}
	var bodies []string
	for p := range poison {
		bodies = append(bodies, p)
	}
	unknown := strings.Replace(x.message(), x.task, string(models.NewTaskID()), 1)
	send(t, d.queue, append(bodies, x.message(), unknown))
	d.consume(t, nil)
	d.deleted(t, x)
	testkit.Eventually(t, time.Minute, func() error {
		if n := count(t, d.queue, d.queue.DLQURL); n != len(poison) {
			return fmt.Errorf("%d dead letters", n)
		}
		return nil
	})
	d.drained(t)
	if n := d.outcomes(t, "malformed"); n != float64(3*len(poison)) {
		t.Errorf("%v receives of what is malformed, the policy says 3 of each", n)
	}
	if s := stack.Query[string](t, d.Stack, "SELECT state FROM files WHERE id = $1", string(y.file)); s != "deleting" {
		t.Errorf("the other file is %s", s)
	}
	dlq, err := events.OpenDLQ(t.Context(), d.queue.Client(), d.queue.QueueURL)
	if err != nil {
		t.Fatal(err)
	}
	dlq.Reaps = true
	letters, err := dlq.List(t.Context(), 100)
	if err != nil || len(letters) != len(poison) {
		t.Fatalf("%d letters, error %v", len(letters), err)
	}
	for _, l := range letters {
		want, ok := poison[l.Body]
		if want == "not of the file" {
			want = "understood" // it is a worker who knows better
		}
		if !ok || !strings.Contains(l.Reason, want) {
			t.Errorf("%s: %q, want %q", l.Body, l.Reason, want)
		}
	}
}

// Messages hold what is needed to find the task, and no more.
func TestAnnouncementsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	d := newDispatched(t)
	x := d.doom(t)
	d.announce(t)
	var body string
	testkit.Eventually(t, time.Minute, func() error {
		out, err := d.queue.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &d.queue.QueueURL, WaitTimeSeconds: 1})
		if err != nil || len(out.Messages) == 0 {
			return fmt.Errorf("nothing yet, %v", err)
		}
		body = *out.Messages[0].Body
		return nil
	})
	var got map[string]string
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got) != 3 || got["type"] != "FILE_DELETE" || got["task_id"] != x.task || got["file_id"] != string(x.file) {
		t.Errorf("%s", body)
	}
}
