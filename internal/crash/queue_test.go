package crash_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"berth/events"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// notified makes a queue that holds the event of the run's object.
func (r *run) notified() string {
	r.t.Helper()
	q := testkit.SQS(r.t)
	text := notification(r.s.Key, "")
	_, err := q.Client().SendMessage(r.t.Context(), &sqs.SendMessageInput{QueueUrl: &q.QueueURL, MessageBody: &text})
	r.ok(err)
	return q.QueueURL
}

// notification is what S3 sends.
func notification(key, version string) string {
	text, err := json.Marshal(map[string]any{"Records": []any{map[string]any{
		"eventVersion": "2.1", "eventSource": "aws:s3", "eventName": "ObjectCreated:Put",
		"s3": map[string]any{"bucket": map[string]any{"name": "bucket"}, "object": map[string]any{"key": key, "versionId": version}},
	}}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// consumes runs the consumer until it has deleted a message: receive, settle, delete.
func consumes(ctx context.Context, s *state, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	p.cut.passed = func(name string) {
		if name == "SQS DeleteMessageBatch" {
			p.cut.count(false)
			cancel()
		}
	}
	endpoint := s.Queue[:strings.Index(s.Queue[len("http://"):], "/")+len("http://")]
	c, err := events.NewConsumer(events.Config{
		Queue: sqs.New(sqs.Options{BaseEndpoint: &endpoint, Region: "us-east-1", Retryer: aws.NopRetryer{},
			HTTPClient: &http.Client{Transport: p.cut}, Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}),
		QueueURL: s.Queue, Settler: p.service, Pollers: 1, Wait: time.Second, Visibility: 30 * time.Second, Grace: time.Second,
		StoreOf: func(string, string) (models.StoreName, bool) { return stack.Main, true },
	})
	if err != nil {
		return err
	}
	c.Run(ctx)
	return nil
}
