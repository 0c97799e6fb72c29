package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/controlplane/worker"
	"berth/events"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// told is an event as its receivers see it.
type told struct {
	ID   models.EventID   `json:"id"`
	Type models.EventType `json:"type"`
	Data struct {
		FileID models.FileID `json:"file_id"`
	} `json:"data"`
}

// receiver is a webhook of somebody else's. It refuses as long as it is down.
type receiver struct {
	t      *testing.T
	secret string
	mu     sync.Mutex
	down   bool
	asked  int
	got    []told
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if err := events.VerifySignature(req.Header, r.secret, body, time.Now()); err != nil {
		r.t.Errorf("signature: %v", err)
	}
	var e told
	if err := json.Unmarshal(body, &e); err != nil || string(e.ID) != req.Header.Get("webhook-id") {
		r.t.Errorf("%s, with the id %q, %v", body, req.Header.Get("webhook-id"), err)
	}
	r.got = append(r.got, e)
}

// inQueue takes n messages out of a queue, each as unwrap reads it.
func inQueue(t *testing.T, q testkit.SQSInfo, url string, n int, unwrap func(body string) string) (out []told) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		// Hidden for so short a time that an answer that is lost comes again: the SDK closes a
		// request's body as soon as the answer begins, and where net/http had not yet seen that
		// body's end it closes the connection, with the rest of a long answer.
		got, err := q.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, VisibilityTimeout: 5})
		if err != nil {
			return err
		}
		for _, m := range got.Messages {
			var e told
			if err := json.Unmarshal([]byte(unwrap(*m.Body)), &e); err != nil {
				t.Errorf("%s: %v", *m.Body, err)
			}
			out = append(out, e)
			if _, err := q.Client().DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return err
			}
		}
		if len(out) < n {
			return fmt.Errorf("%d of %d messages", len(out), n)
		}
		return nil
	})
	return out
}

func asIs(body string) string { return body }

// topic makes a topic whose messages come to the queue.
func topic(t *testing.T, q testkit.SQSInfo) (*sns.Client, string) {
	t.Helper()
	client := sns.New(sns.Options{BaseEndpoint: &q.Endpoint, Region: q.Region, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")})
	name := q.QueueURL[strings.LastIndexByte(q.QueueURL, '/')+1:]
	made, err := client.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: &name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteTopic(context.Background(), &sns.DeleteTopicInput{TopicArn: made.TopicArn}); err != nil {
			t.Error(err)
		}
	})
	arn := strings.Replace(*made.TopicArn, ":sns:", ":sqs:", 1) // of the same name
	if _, err := client.Subscribe(t.Context(), &sns.SubscribeInput{TopicArn: made.TopicArn, Protocol: aws.String("sqs"), Endpoint: &arn}); err != nil {
		t.Fatal(err)
	}
	return client, *made.TopicArn
}

// All targets on their real protocols hear of each event, under one id, in each file's
// order. One that is down for a minute holds up its own copies only.
func TestEveryTargetIsTold(t *testing.T) {
	t.Parallel()
	s, q, subscribed := stack.New(t), testkit.SQS(t), testkit.SQS(t)
	hook := &receiver{t: t, secret: events.NewSecret(), down: true}
	server := httptest.NewServer(hook)
	defer server.Close()
	client, arn := topic(t, subscribed)
	p := &worker.Publisher{
		Outbox: s.Store, Owner: "one", Lease: time.Minute, Limit: 10, Now: s.Clock.Now, Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil),
		Targets: []worker.Target{
			events.SQSTarget{Queue: q.Client(), QueueURL: q.QueueURL},
			events.SNSTarget{Topic: client, TopicARN: arn},
			events.WebhookTarget{Caller: events.NewCaller(true, nil), URL: server.URL, Secret: hook.secret},
		},
	}
	publish := func() {
		t.Helper()
		for {
			c, err := p.RunOnce(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.Claimed == 0 {
				return
			}
		}
	}
	sent(t, s, 2)
	for _, err := range s.Service.Settle(t.Context(), settled(t, s)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []models.EventType{models.EventFileActive, models.EventFileBlocked, models.EventFileUnblocked}
	for _, id := range fileIDs(t, s) {
		if _, err := s.Service.Block(t.Context(), stack.Caller("admin"), id, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Service.Unblock(t.Context(), stack.Caller("admin"), id); err != nil {
			t.Fatal(err)
		}
	}
	// A minute in which the webhook is down: the first event of each file waits for it, and
	// what came after it with it. The others have their copies of the first, once.
	for range 12 {
		publish()
		s.Clock.Advance(5 * time.Second)
	}
	first := inQueue(t, q, q.QueueURL, 2, asIs)
	for _, e := range first {
		if e.Type != models.EventFileActive {
			t.Errorf("%s was told before what came before it", e.Type)
		}
	}
	if len(first) != 2 || count(t, q, q.QueueURL) != 0 {
		t.Errorf("%d copies, and %d more in the queue: what is sent is sent once", len(first), count(t, q, q.QueueURL))
	}
	hook.mu.Lock()
	if hook.asked < 4 || hook.asked > 2*13 {
		t.Errorf("the one that is down was asked %d times in a minute", hook.asked)
	}
	hook.down = false
	hook.mu.Unlock()
	for range 5 {
		s.Clock.Advance(10 * time.Minute)
		publish()
	}
	all := map[string][]told{
		"webhook": hook.got,
		"sqs":     append(first, inQueue(t, q, q.QueueURL, 4, asIs)...),
		"sns": inQueue(t, subscribed, subscribed.QueueURL, 6, func(body string) string {
			var envelope struct{ Type, Message string }
			if err := json.Unmarshal([]byte(body), &envelope); err != nil || envelope.Type != "Notification" {
				t.Errorf("%s: %v", body, err)
			}
			return envelope.Message
		}),
	}
	ids := map[models.EventID]bool{}
	for _, e := range hook.got {
		ids[e.ID] = true
	}
	if len(ids) != 6 {
		t.Errorf("the webhook got %d different events", len(ids))
	}
	for name, got := range all {
		if len(got) != 6 {
			t.Errorf("%s got %d events, want 6", name, len(got))
		}
		of := map[models.FileID][]models.EventType{}
		for _, e := range got {
			of[e.Data.FileID] = append(of[e.Data.FileID], e.Type)
			if !ids[e.ID] {
				t.Errorf("%s knows %s by another id", name, e.Type)
			}
		}
		for file, types := range of {
			if name == "webhook" && !slices.Equal(types, want) { // queues promise no order
				t.Errorf("%s was told of %s: %q", name, file, types)
			}
		}
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM outbox WHERE state = 'sent'"); n != 6 {
		t.Errorf("%d events are sent", n)
	}
}

// An event is not told before its time, and the publisher knows when that is.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	s, q := stack.New(t), testkit.SQS(t)
	sent(t, s, 1)
	for _, err := range s.Service.Settle(t.Context(), settled(t, s)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	at := s.Clock.Now().Add(time.Hour)
	if _, err := s.Pool().Exec(t.Context(), "UPDATE outbox SET not_before = $1", at); err != nil {
		t.Fatal(err)
	}
	p := &worker.Publisher{Outbox: s.Store, Owner: "one", Lease: time.Minute, Limit: 10, Now: s.Clock.Now, Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil),
		Targets: []worker.Target{events.SQSTarget{Queue: q.Client(), QueueURL: q.QueueURL}}}
	s.Clock.Advance(time.Hour - time.Second)
	if c, err := p.RunOnce(t.Context()); err != nil || c.Claimed != 0 {
		t.Errorf("%+v, error %v", c, err)
	}
	if next, ok, err := s.Store.NextEvent(t.Context()); err != nil || !ok || !next.Equal(at) {
		t.Errorf("the next is at %s, %v, error %v, want %s", next, ok, err, at)
	}
	s.Clock.Advance(time.Second)
	if c, err := p.RunOnce(t.Context()); err != nil || c.Sent != 1 {
		t.Errorf("%+v, error %v", c, err)
	}
	inQueue(t, q, q.QueueURL, 1, asIs)
}

// settled are the events of all that was sent.
func settled(t *testing.T, s *stack.Stack) (out []models.ObjectEvent) {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), "SELECT key FROM uploads")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		out = append(out, models.ObjectEvent{Store: stack.Main, Key: key, Created: true})
	}
	return out
}

func fileIDs(t *testing.T, s *stack.Stack) (out []models.FileID) {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), "SELECT id FROM files")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id models.FileID
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		out = append(out, id)
	}
	return out
}
