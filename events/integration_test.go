package events_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"berth/controlplane"
	"berth/events"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// FilesEnv is how many files the load test sends; 10,000 takes minutes.
const FilesEnv = "BERTH_TEST_FILES"

// Every file has three events, in any order, and is completed by them alone: it becomes
// active once, with one event of its own. The rate is held against that of the
// HeadObject calls alone.
func TestEveryFileOnceThoughToldThrice(t *testing.T) {
	t.Parallel()
	n := 300
	if s := os.Getenv(FilesEnv); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	s, q := stack.New(t), testkit.SQS(t)
	keys := sent(t, s, n)
	var bodies []string
	for _, key := range keys {
		b := fmt.Sprintf(`{"Records":[{"eventVersion":"2.2","eventSource":"aws:s3","eventName":"s3:ObjectCreated:Put","s3":{"bucket":{"name":%q},"object":{"key":%q,"versionId":""}}}]}`, s.S3.Bucket, key)
		bodies = append(bodies, b, b, b)
	}
	rand.Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	send(t, q, bodies)

	const pollers = 8
	began := time.Now()
	each(keys, pollers, func(key string) {
		if _, err := s.Objects.Head(t.Context(), key, ""); err != nil {
			t.Error(err)
		}
	})
	heads := float64(n) / time.Since(began).Seconds()

	c, err := events.NewConsumer(events.Config{
		Queue: q.Client(), QueueURL: q.QueueURL, Settler: s.Service, Wait: time.Second, Visibility: time.Minute, Pollers: pollers,
		StoreOf: func(bucket, _ string) (models.StoreName, bool) { return stack.Main, bucket == s.S3.Bucket },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	began = time.Now()
	done.Go(func() { c.Run(ctx) })
	defer done.Wait()
	defer cancel()
	testkit.Eventually(t, 10*time.Minute, func() error {
		if active := stack.Query[int](t, s, "SELECT count(*) FROM files WHERE state = 'active'"); active != n {
			return fmt.Errorf("%d of %d are active", active, n)
		}
		return nil
	})
	rate := float64(n) / time.Since(began).Seconds()
	t.Logf("%d files: %.0f active/s, HeadObject alone %.0f/s, ratio %.2f", n, rate, heads, rate/heads)
	testkit.Eventually(t, 5*time.Minute, func() error {
		if left := count(t, q, q.QueueURL); left > 0 {
			return fmt.Errorf("%d messages left", left)
		}
		return nil
	})
	if dead := count(t, q, q.DLQURL); dead != 0 {
		t.Errorf("%d messages died", dead)
	}
	if told := stack.Query[int](t, s, "SELECT count(*) FROM outbox WHERE type = 'file.active'"); told != n {
		t.Errorf("%d files were told of as active, of %d", told, n)
	}
	if twice := stack.Query[int](t, s, "SELECT count(*) FROM (SELECT subject FROM history WHERE what = 'file' AND to_state = 'active' GROUP BY subject HAVING count(*) > 1) x"); twice != 0 {
		t.Errorf("%d files became active more than once", twice)
	}
}

// sent opens n uploads, sends their bytes, and returns their keys.
func sent(t *testing.T, s *stack.Stack, n int) []string {
	t.Helper()
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	each(numbers, 8, func(i int) {
		content := stack.Bytes(byte(i), 100)
		v, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{
			Collection: "default", Name: fmt.Sprintf("%d.bin", i), Size: int64(len(content)),
		})
		if err != nil {
			t.Error(err)
			return
		}
		if status, err := stack.Send(t.Context(), v.Parts[0], content); status != 200 {
			t.Errorf("S3 answered %d, %v", status, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	rows, err := s.Pool().Query(t.Context(), "SELECT key FROM uploads")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

func send(t *testing.T, q testkit.SQSInfo, bodies []string) {
	t.Helper()
	client := q.Client()
	each(slices.Collect(slices.Chunk(bodies, 10)), 4, func(batch []string) {
		var entries []types.SendMessageBatchRequestEntry
		for i := range batch {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &batch[i]})
		}
		if _, err := client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &q.QueueURL, Entries: entries}); err != nil {
			t.Error(err)
		}
	})
}

func count(t *testing.T, q testkit.SQSInfo, url string) int {
	t.Helper()
	out, err := q.Client().GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	visible, _ := strconv.Atoi(out.Attributes["ApproximateNumberOfMessages"])
	hidden, _ := strconv.Atoi(out.Attributes["ApproximateNumberOfMessagesNotVisible"])
	return visible + hidden
}

// each calls f for every item, some at a time.
func each[T any](items []T, workers int, f func(T)) {
	next := make(chan T)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for item := range next {
				f(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	all.Wait()
}
