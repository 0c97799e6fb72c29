package testkit

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/internal/parts"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// SQSInfo is a queue of an SQS server. It takes any credentials.
type SQSInfo struct {
	Endpoint, Region string
	QueueURL, DLQURL string
}

// SQS makes a queue for the test, with a dead-letter queue that takes a message
// after three receives. A message that is received and not deleted is hidden
// for two seconds.
func SQS(t testing.TB) SQSInfo {
	t.Helper()
	s := shared(t)
	i := SQSInfo{Endpoint: s.SQS, Region: parts.Region}
	q, err := parts.EnsureQueue(t.Context(), i.Client(), s.SQS, lowerText(t), parts.QueueOptions{
		Visibility: 2 * time.Second, ReceiveLimit: 3,
	})
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	i.QueueURL, i.DLQURL = q.URL, q.DeadLetterURL
	t.Cleanup(func() {
		for _, url := range []string{i.QueueURL, i.DLQURL} {
			if _, err := i.Client().DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				t.Errorf("testkit: delete queue: %v", err)
			}
		}
	})
	return i
}

// Client makes a client of the queue's server, which retries nothing.
func (i SQSInfo) Client() *sqs.Client { return parts.SQSClient(i.Endpoint) }

// Notifications makes a queue for the test that gets everything S3 has to say
// about the bucket, from now on.
func Notifications(t testing.TB, s3 S3Info) SQSInfo {
	t.Helper()
	i := SQS(t)
	route(t, http.MethodPut, s3.Bucket, i.QueueURL)
	// Before the queue goes.
	t.Cleanup(func() { route(t, http.MethodDelete, s3.Bucket, "") })
	return i
}

func route(t testing.TB, method, bucket, queue string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, shared(t).Bridge+"/routes/"+bucket, strings.NewReader(queue))
	if err != nil {
		t.Fatalf("testkit: route: %v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("testkit: route: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("testkit: route: status %d", resp.StatusCode)
	}
}
