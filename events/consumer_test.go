package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/prometheus/client_golang/prometheus"
)

const testBucket = "bucket"

func body(key string) string {
	return `{"Records":[` + record(key) + `]}`
}

func record(key string) string {
	return fmt.Sprintf(`{"eventVersion":"2.1","eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":%q},"object":{"key":%q,"versionId":"v"}}}`, testBucket, key)
}

// settler notes what it is given; do decides by event.
type settler struct {
	mu    sync.Mutex
	seen  map[string]int // by key
	calls [][]string
	do    func(ctx context.Context, e models.ObjectEvent, times int) error
}

func (s *settler) Settle(ctx context.Context, events []models.ObjectEvent) []error {
	errs := make([]error, len(events))
	var keys []string
	for i, e := range events {
		s.mu.Lock()
		if s.seen == nil {
			s.seen = map[string]int{}
		}
		s.seen[e.Key]++
		times := s.seen[e.Key]
		s.mu.Unlock()
		keys = append(keys, e.Key)
		if s.do != nil {
			errs[i] = s.do(ctx, e, times)
		}
	}
	s.mu.Lock()
	s.calls = append(s.calls, keys)
	s.mu.Unlock()
	return errs
}

func (s *settler) times(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[key]
}

// wire is the way to SQS, with faults. It counts the receives of each message.
type wire struct {
	mu       sync.Mutex
	receives map[string]int // by body
	fault    func(action string, request []byte) (answer []byte, status int, err error)
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	action := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if w.fault != nil {
		answer, status, err := w.fault(action, request)
		if err != nil {
			return nil, err
		}
		if answer != nil {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
				Body: io.NopCloser(bytes.NewReader(answer)), Request: r}, nil
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(request))
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || action != "ReceiveMessage" {
		return resp, err
	}
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	var out struct{ Messages []struct{ Body string } }
	if json.Unmarshal(answer, &out) == nil {
		w.mu.Lock()
		for _, m := range out.Messages {
			if w.receives == nil {
				w.receives = map[string]int{}
			}
			w.receives[m.Body]++
		}
		w.mu.Unlock()
	}
	return resp, nil
}

func (w *wire) received(body string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.receives[body]
}

func (w *wire) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.receives {
		n += r
	}
	return n
}

func (w *wire) client(q testkit.SQSInfo) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &q.Endpoint, Region: q.Region, HTTPClient: &http.Client{Transport: w}, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("x", "x", ""),
	})
}

// bench is a queue of the test's own and a consumer of it.
type bench struct {
	testkit.SQSInfo
	wire     *wire
	settler  *settler
	consumer *Consumer
	registry *prometheus.Registry
	log      *lockedBuffer
	cancel   func() // asks the consumer to stop
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{SQSInfo: testkit.SQS(t), wire: &wire{}, settler: &settler{}, registry: prometheus.NewRegistry(), log: &lockedBuffer{}}
	c := Config{
		Queue: b.wire.client(b.SQSInfo), QueueURL: b.QueueURL, Settler: b.settler, Registry: b.registry,
		StoreOf:    func(bucket, _ string) (models.StoreName, bool) { return "main", bucket == testBucket },
		Wait:       time.Second, // kumo does not wake a long poll when a visibility ends
		Visibility: 30 * time.Second, BackOff: time.Second,
		Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	if change != nil {
		change(&c)
	}
	var err error
	if b.consumer, err = NewConsumer(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.log.String())
		}
	})
	return b
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run starts the consumer; stop ends it and waits.
func (b *bench) run(t *testing.T) (stop func()) {
	t.Helper()
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.consumer.Run(ctx); close(done) }()
	stop = sync.OnceFunc(func() {
		b.cancel()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("the consumer does not stop")
		}
	})
	t.Cleanup(stop)
	return stop
}

func (b *bench) send(t *testing.T, bodies ...string) {
	t.Helper()
	for batch := range slices.Chunk(bodies, 10) {
		var entries []types.SendMessageBatchRequestEntry
		for i, m := range batch {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &m})
		}
		out, err := b.Client().SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &b.QueueURL, Entries: entries})
		if err != nil || len(out.Failed) > 0 {
			t.Fatalf("send: %v, %v", out, err)
		}
	}
}

// count is how many messages a queue has, visible and hidden.
func (b *bench) count(t *testing.T, url string) (visible, hidden int) {
	t.Helper()
	out, err := b.Client().GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	visible, _ = strconv.Atoi(out.Attributes["ApproximateNumberOfMessages"])
	hidden, _ = strconv.Atoi(out.Attributes["ApproximateNumberOfMessagesNotVisible"])
	return visible, hidden
}

// empty waits until nothing is in the queue.
func (b *bench) empty(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 60*time.Second, func() error {
		if v, h := b.count(t, b.QueueURL); v+h > 0 {
			return fmt.Errorf("%d visible, %d hidden", v, h)
		}
		return nil
	})
}

// metric is the sum of a metric's values with the label's value; a histogram's count.
func (b *bench) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == label {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func keys(n int) (keys, bodies []string) {
	for i := range n {
		k := fmt.Sprintf("k/%04d", i)
		keys, bodies = append(keys, k), append(bodies, body(k))
	}
	return keys, bodies
}

// One poison message among good ones goes to the dead-letter queue after exactly as many
// receives as the policy allows, and nothing waits for it.
func TestPoisonGoesToTheDLQ(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	names, bodies := keys(40)
	poison := []string{`{"Records":[{"eventVersion":"3.0"}]}`, `not JSON`}
	mixed := `{"Records":[` + record("k/beside") + `,{"eventVersion":"9"}]}`
	b.send(t, append(slices.Concat(bodies[:20], poison, []string{mixed}), bodies[20:]...)...)
	began := time.Now()
	b.run(t)
	testkit.Eventually(t, 30*time.Second, func() error {
		for _, k := range names {
			if b.settler.times(k) != 1 {
				return fmt.Errorf("%s: %d times", k, b.settler.times(k))
			}
		}
		return nil
	})
	if v, _ := b.count(t, b.DLQURL); v != 0 && time.Since(began) > 5*time.Second {
		t.Errorf("good ones waited until %d of the poison were gone", v)
	}
	testkit.Eventually(t, 40*time.Second, func() error {
		if v, _ := b.count(t, b.DLQURL); v != 3 {
			return fmt.Errorf("%d dead letters", v)
		}
		return nil
	})
	b.empty(t)
	for _, p := range append(poison, mixed) {
		if n := b.wire.received(p); n != 3 {
			t.Errorf("%s: received %d times, the policy says 3", p, n)
		}
	}
	if n := b.settler.times("k/beside"); n != 3 {
		t.Errorf("the good record beside a bad one was settled %d times", n)
	}
	if n := b.metric(t, "berth_events_messages_total", outcomeMalformed); n != 9 {
		t.Errorf("%v malformed counted", n)
	}
	if log := b.log.String(); !strings.Contains(log, "only major version 2 is known") {
		t.Error("the log does not say why")
	}
}

// A batch that is deleted in part is deleted in full.
func TestPartialDeleteFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var mu sync.Mutex
	tries := map[string]int{} // by receipt; what is tried together has been so from its first time
	b.wire.fault = func(action string, request []byte) ([]byte, int, error) {
		if action != "DeleteMessageBatch" {
			return nil, 0, nil
		}
		var in struct {
			QueueURL string `json:"QueueUrl"`
			Entries  []struct{ ID, ReceiptHandle string }
		}
		if err := json.Unmarshal(request, &in); err != nil {
			return nil, 0, err
		}
		mu.Lock()
		for _, e := range in.Entries {
			tries[e.ReceiptHandle]++
		}
		n := tries[in.Entries[0].ReceiptHandle]
		mu.Unlock()
		switch n {
		case 1: // the call itself fails
			return []byte(`{"__type":"InternalFailure"}`), 500, nil
		case 2: // the connection fails
			return nil, 0, errors.New("connection reset")
		case 3: // half of it
			var out struct {
				Successful []map[string]string
				Failed     []map[string]any
			}
			for i, e := range in.Entries {
				if i%2 == 0 {
					if _, err := b.Client().DeleteMessage(context.Background(), &sqs.DeleteMessageInput{QueueUrl: &b.QueueURL, ReceiptHandle: &e.ReceiptHandle}); err != nil {
						return nil, 0, err
					}
					out.Successful = append(out.Successful, map[string]string{"Id": e.ID})
				} else {
					out.Failed = append(out.Failed, map[string]any{"Id": e.ID, "Code": "InternalError", "SenderFault": false})
				}
			}
			answer, err := json.Marshal(out)
			return answer, 200, err
		}
		return nil, 0, nil
	}
	names, bodies := keys(60)
	b.send(t, bodies...)
	b.run(t)
	b.empty(t)
	for i, k := range names {
		if b.settler.times(k) != 1 || b.wire.received(bodies[i]) != 1 {
			t.Errorf("%s: settled %d times, received %d times", k, b.settler.times(k), b.wire.received(bodies[i]))
		}
	}
	if n := b.metric(t, "berth_events_delete_failed_total", ""); n != 0 {
		t.Errorf("%v deletes failed for good", n)
	}
}

// What cannot be deleted is counted, not tried for ever, and does no harm when it comes
// again.
func TestDeleteThatNeverWorks(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Visibility = 2 * time.Second })
	var mu sync.Mutex
	broken := true
	b.wire.fault = func(action string, _ []byte) ([]byte, int, error) {
		mu.Lock()
		defer mu.Unlock()
		if action == "DeleteMessageBatch" && broken {
			return []byte(`{"Successful":[],"Failed":[{"Id":"0","Code":"ReceiptHandleIsInvalid","SenderFault":true}]}`), 200, nil
		}
		return nil, 0, nil
	}
	b.send(t, body("k"))
	b.run(t)
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := b.metric(t, "berth_events_delete_failed_total", ""); n < 1 {
			return errors.New("not counted")
		}
		return nil
	})
	mu.Lock()
	broken = false
	mu.Unlock()
	b.empty(t)
	if n := b.settler.times("k"); n < 2 {
		t.Errorf("settled %d times", n)
	}
}

// A fault of one file delays that file only, for longer each time.
func TestPassingFault(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.settler.do = func(_ context.Context, e models.ObjectEvent, times int) error {
		if e.Key == "k/0003" && times <= 2 {
			return models.Errorf(models.CodeStoreUnavailable, "slow down")
		}
		return nil
	}
	names, bodies := keys(10)
	began := time.Now()
	b.send(t, bodies...)
	b.run(t)
	testkit.Eventually(t, 30*time.Second, func() error {
		for _, k := range names {
			if b.settler.times(k) == 0 {
				return errors.New(k)
			}
		}
		return nil
	})
	b.empty(t)
	for i, k := range names {
		want := 1
		if k == "k/0003" {
			want = 3
		}
		if b.settler.times(k) != want || b.wire.received(bodies[i]) != want {
			t.Errorf("%s: settled %d times, received %d times", k, b.settler.times(k), b.wire.received(bodies[i]))
		}
	}
	// One second, then two; less an eighth each, and SQS rounds up.
	if took := time.Since(began); took < 2600*time.Millisecond {
		t.Errorf("came again within %v", took)
	}
	if n := b.metric(t, "berth_events_messages_total", outcomePassing); n != 2 {
		t.Errorf("%v passing faults counted", n)
	}
	if n := b.metric(t, "berth_events_age_seconds", outcomeSettled); n != 10 {
		t.Errorf("%v ages observed", n)
	}
}

// outage runs a consumer through a time in which nothing can be settled, which ends when
// wait returns, and returns how many messages died of it.
func outage(t *testing.T, b *bench, wait func()) int {
	t.Helper()
	until := make(chan struct{})
	isDown := func() bool {
		select {
		case <-until:
			return false
		default:
			return true
		}
	}
	b.settler.do = func(context.Context, models.ObjectEvent, int) error {
		if isDown() {
			return errors.New("dial tcp: connection refused")
		}
		return nil
	}
	if b.consumer.Ready != nil {
		b.consumer.Ready = func(context.Context) error {
			if isDown() {
				return errors.New("down")
			}
			return nil
		}
	}
	_, bodies := keys(30)
	b.send(t, bodies...)
	b.run(t)
	wait()
	close(until)
	b.empty(t)
	dead, _ := b.count(t, b.DLQURL)
	return dead
}

// The database is away for longer than a message's receives would last: the last of three
// comes some 6 s after the first without the breaker, and 24 s with it.
func TestOutageKillsNoMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t, patient)
	if dead := outage(t, b, func() { pause(t.Context(), 12*time.Second) }); dead != 0 {
		t.Errorf("%d messages died", dead)
	}
}

// Where the health can be asked for, not even one receive is spent on the outage but
// those in hand when it begins.
func TestOutageSpendsNoReceives(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Ready = func(context.Context) error { return nil } })
	if dead := outage(t, b, func() { pause(t.Context(), 5*time.Second) }); dead != 0 {
		t.Errorf("%d messages died", dead)
	}
	_, bodies := keys(30)
	for _, m := range bodies {
		if n := b.wire.received(m); n > 2 {
			t.Errorf("%s: received %d times", m, n)
		}
	}
}

func patient(c *Config) { c.BackOff = 2 * time.Second }

// The negative control: without the breaker they die.
func TestOutageWithoutBreaker(t *testing.T) {
	t.Parallel()
	b := newBench(t, patient)
	b.consumer.breaker = newBreaker(0, 0) // never opens
	wait := func() {
		testkit.Eventually(t, time.Minute, func() error {
			if dead, _ := b.count(t, b.DLQURL); dead == 0 {
				return errors.New("no message died: the breaker's test proves nothing")
			}
			return nil
		})
	}
	began := time.Now()
	outage(t, b, wait)
	t.Logf("some had died after %v", time.Since(began))
}

// A stop finishes what is in hand.
func TestStopFinishes(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	inHand, goOn := make(chan struct{}, 10), make(chan struct{})
	b.settler.do = func(ctx context.Context, _ models.ObjectEvent, _ int) error {
		inHand <- struct{}{}
		<-goOn
		return ctx.Err() // the work's own context goes on
	}
	b.send(t, body("k"))
	stop := b.run(t)
	<-inHand
	b.cancel()
	close(goOn)
	stop()
	if v, h := b.count(t, b.QueueURL); v+h != 0 {
		t.Errorf("%d visible, %d hidden", v, h)
	}
}

// While settling is slow, what waits stays in the queue: the consumer holds a bounded
// number of messages, however many there are. What it holds is then settled together.
func TestBacklogStaysInTheQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	const most = settlers*together + together/batchSize*batchSize + 2*batchSize // in batches, between, and one haul a poller
	goOn := make(chan struct{})
	b.settler.do = func(_ context.Context, e models.ObjectEvent, times int) error {
		<-goOn
		return nil
	}
	names, bodies := keys(2 * most)
	b.send(t, bodies...)
	b.run(t)
	// Held at the least: one haul a settler, the full channel, and one haul a poller.
	testkit.Eventually(t, 30*time.Second, func() error {
		if n := b.wire.total(); n < (settlers+together/batchSize+2)*batchSize {
			return fmt.Errorf("%d received", n)
		}
		return nil
	})
	if n := b.wire.total(); n > most {
		t.Errorf("%d messages in hand, at most %d may be", n, most)
	}
	close(goOn)
	b.empty(t)
	for _, k := range names {
		if n := b.settler.times(k); n != 1 {
			t.Errorf("%s: settled %d times", k, n)
		}
	}
	largest := 0
	for _, c := range b.settler.calls {
		largest = max(largest, len(c))
	}
	if largest <= batchSize || largest > together {
		t.Errorf("the largest batch had %d events", largest)
	}
}

// What a stop cannot finish in its time is visible to others at once.
func TestStopReleases(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Grace = 100 * time.Millisecond })
	inHand := make(chan struct{}, 10)
	b.settler.do = func(ctx context.Context, _ models.ObjectEvent, _ int) error {
		inHand <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	b.send(t, body("a"), body("b"))
	stop := b.run(t)
	<-inHand
	stop()
	out, err := b.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &b.QueueURL, MaxNumberOfMessages: 10})
	if err != nil || len(out.Messages) != 2 {
		t.Errorf("%d messages are visible, %v", len(out.Messages), err)
	}
	if n := b.metric(t, "berth_events_messages_total", outcomeReleased); n < 1 {
		t.Errorf("%v released counted", n)
	}
}

// Work that takes longer than the visibility is not handed to a second poller.
func TestLongWorkStaysHidden(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Visibility = 6 * time.Second })
	b.settler.do = func(ctx context.Context, _ models.ObjectEvent, _ int) error {
		pause(ctx, 14*time.Second)
		return nil
	}
	b.send(t, body("k"))
	b.run(t)
	b.empty(t)
	if n := b.settler.times("k"); n != 1 {
		t.Errorf("settled %d times", n)
	}
}

// Events come more than once and in any order: each is settled, and no batch holds one
// twice.
func TestDuplicatesAndShuffles(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Pollers = 4 })
	names, bodies := keys(400)
	all := slices.Concat(bodies, bodies, bodies)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	// Some messages hold many records.
	for i := 0; i < len(names); i += 40 {
		var records []string
		for _, k := range names[i : i+40] {
			records = append(records, record(k), record(k))
		}
		all = append(all, `{"Records":[`+strings.Join(records, ",")+`]}`)
	}
	b.send(t, all...)
	b.run(t)
	b.empty(t)
	for _, k := range names {
		if b.settler.times(k) == 0 {
			t.Errorf("%s is lost", k)
		}
	}
	for _, call := range b.settler.calls {
		slices.Sort(call)
		if len(slices.Compact(slices.Clone(call))) != len(call) {
			t.Errorf("twice in one batch: %v", call)
		}
	}
	if dead, _ := b.count(t, b.DLQURL); dead != 0 {
		t.Errorf("%d died", dead)
	}
	if n := b.metric(t, "berth_events_messages_total", outcomeSettled); n != float64(len(all)) {
		t.Errorf("%v settled, of %d", n, len(all))
	}
}

// What is not ours is acknowledged and counted, and reaches no settler.
func TestForeignAndTest(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.send(t, strings.Replace(body("k"), `"name":"bucket"`, `"name":"another"`, 1), `{"Service":"Amazon S3","Event":"s3:TestEvent"}`, `{"Records":[]}`)
	b.run(t)
	b.empty(t)
	if len(b.settler.calls) != 0 {
		t.Errorf("settled %v", b.settler.calls)
	}
	for outcome, want := range map[string]float64{outcomeForeign: 2, outcomeTest: 1} {
		if n := b.metric(t, "berth_events_messages_total", outcome); n != want {
			t.Errorf("%s: %v", outcome, n)
		}
	}
	if n := b.metric(t, "berth_events_unknown_bucket_total", ""); n != 1 {
		t.Errorf("%v unknown buckets", n)
	}
}

// A settler that panics, or answers too little, loses nothing.
func TestSettlerBreaksItsWord(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.settler.do = func(_ context.Context, e models.ObjectEvent, times int) error {
		if times == 1 {
			panic("no")
		}
		return nil
	}
	b.send(t, body("k"))
	b.run(t)
	b.empty(t)
	if n := b.settler.times("k"); n != 2 {
		t.Errorf("settled %d times", n)
	}
	short := settlerFunc(func([]models.ObjectEvent) []error { return nil })
	b.consumer.Settler = short
	for _, err := range b.consumer.call(t.Context(), make([]models.ObjectEvent, 3)) {
		if err == nil {
			t.Error("a missing answer is taken for success")
		}
	}
}

type settlerFunc func([]models.ObjectEvent) []error

func (f settlerFunc) Settle(_ context.Context, e []models.ObjectEvent) []error { return f(e) }

// A queue that does not answer is asked again.
func TestReceiveFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var mu sync.Mutex
	faults := 3
	b.wire.fault = func(action string, _ []byte) ([]byte, int, error) {
		mu.Lock()
		defer mu.Unlock()
		if action == "ReceiveMessage" && faults > 0 {
			faults--
			return []byte(`{"__type":"com.amazonaws.sqs#OverLimit"}`), 400, nil
		}
		return nil, 0, nil
	}
	b.send(t, body("k"))
	b.run(t)
	b.empty(t)
	if n := b.metric(t, "berth_events_receive_failed_total", ""); n != 3 {
		t.Errorf("%v failures counted", n)
	}
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	c, err := NewConsumer(Config{Queue: (&wire{}).client(testkit.SQSInfo{}), QueueURL: "q", Settler: &settler{}, StoreOf: func(string, string) (models.StoreName, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	for receives, want := range map[int]time.Duration{0: 10, 1: 10, 2: 20, 3: 40, 6: 320, 7: 640, 8: 900, 50: 900, 1 << 40: 900} {
		if got := c.backOff(receives, false); got < want*time.Second*7/8 || got > want*time.Second*9/8 {
			t.Errorf("after %d receives: %v", receives, got)
		}
		if got := hasten(receives); got < time.Second || got > 5*time.Minute {
			t.Errorf("after %d receives: hastened to %v", receives, got)
		}
	}
	if got := c.backOff(1, true); got < 35*time.Second || got > 45*time.Second {
		t.Errorf("in an outage: %v", got)
	}
	if seconds(1) != 1 || seconds(0) != 0 || seconds(1500*time.Millisecond) != 2 || seconds(1000*time.Hour) != 43200 {
		t.Error("seconds")
	}
}
