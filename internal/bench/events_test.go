// Package bench measures what the contract promises as ratios of one run: each benchmark
// prints both sides. `make bench` runs it; nothing here is part of the tests.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"berth/controlplane"
	"berth/events"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// atOnce is how many calls either side has in flight.
const atOnce = 64

// BenchmarkEventsToActive compares the rate of events to active files with that of the
// HeadObject calls alone, on the same objects: the contract wants 0.8. Store, database,
// queue and consumer share the machine; the processor time of each is logged.
func BenchmarkEventsToActive(b *testing.B) {
	const files, rounds = 2000, 5
	var ratios, heads, actives []float64
	for range rounds {
		s := stack.New(b)
		keys := sent(b, s, files)
		q := testkit.SQS(b)
		before := testkit.Processor()
		head := perSecond(files, func() { headAll(b, s, keys) })
		b.Logf("HeadObject alone: %.0f/s, processor a file: %s", head, testkit.ProcessorSince(before, files))
		queue(b, q, s.S3.Bucket, keys)
		before = testkit.Processor()
		active := perSecond(files, func() { consume(b, s, q, files) })
		b.Logf("events to active: %.0f/s, processor a file: %s", active, testkit.ProcessorSince(before, files))
		heads, actives, ratios = append(heads, head), append(actives, active), append(ratios, active/head)
	}
	b.ReportMetric(median(heads), "heads/s")
	b.ReportMetric(median(actives), "active/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}

// sent opens and sends small files that nobody has completed.
func sent(b *testing.B, s *stack.Stack, n int) []string {
	b.Helper()
	keys := make([]string, n)
	each(n, func(i int) {
		v, err := s.Service.Open(b.Context(), stack.Caller(fmt.Sprint("owner-", i%50)), controlplane.OpenRequest{Collection: "default", Name: "a.bin", Size: 16})
		if err != nil {
			b.Error(err)
			return
		}
		if status, err := stack.Send(b.Context(), v.Parts[0], stack.Bytes(byte(i), 16)); err != nil || status != 200 {
			b.Errorf("put: %d, %v", status, err)
		}
		keys[i] = v.Key
	})
	if b.Failed() {
		b.FailNow()
	}
	return keys
}

func headAll(b *testing.B, s *stack.Stack, keys []string) {
	each(len(keys), func(i int) {
		if _, err := s.Objects.Head(b.Context(), keys[i], ""); err != nil {
			b.Error(err)
		}
	})
}

// queue sends one event a message, as S3 does.
func queue(b *testing.B, q testkit.SQSInfo, bucket string, keys []string) {
	b.Helper()
	client := q.Client()
	for batch := range slices.Chunk(keys, 10) {
		in := &sqs.SendMessageBatchInput{QueueUrl: &q.QueueURL}
		for i, k := range batch {
			body, err := json.Marshal(map[string]any{"Records": []any{map[string]any{
				"eventVersion": "2.1", "eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventTime": time.Now().UTC(),
				"s3": map[string]any{"bucket": map[string]any{"name": bucket}, "object": map[string]any{"key": k, "size": 16}},
			}}})
			if err != nil {
				b.Fatal(err)
			}
			in.Entries = append(in.Entries, sqstypes.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(string(body))})
		}
		if _, err := client.SendMessageBatch(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}

// consume runs the consumer until every file is active.
func consume(b *testing.B, s *stack.Stack, q testkit.SQSInfo, files int) {
	c, err := events.NewConsumer(events.Config{
		Queue: q.Client(), QueueURL: q.QueueURL, Settler: s.Service, Ready: s.Service.Ready, Pollers: 8, Visibility: time.Minute,
		StoreOf: func(string, string) (models.StoreName, bool) { return stack.Main, true },
		Grace:   10 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() { c.Run(ctx) })
	defer done.Wait()
	defer cancel()
	testkit.Eventually(b, 2*time.Minute, func() error {
		if n := stack.Query[int64](b, s, "SELECT count(*) FROM outbox"); n < int64(files) {
			return fmt.Errorf("%d of %d files are active", n, files)
		}
		return nil
	})
}

// each runs do for 0..n-1, atOnce at a time.
func each(n int, do func(int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func perSecond(n int, do func()) float64 {
	begun := time.Now()
	do()
	return float64(n) / time.Since(begun).Seconds()
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
