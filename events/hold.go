package events

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// hold keeps messages hidden for as long as they are in hand: it prolongs their
// visibility whenever a third of it has gone. release returns when nothing of it is
// in flight any more, so that it cannot undo a visibility that is set later.
func (c *Consumer) hold(msgs []*message) (release func()) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(c.Visibility / 3)
		defer ticker.Stop()
		until := time.Now().Add(maxHold - c.Visibility)
		for {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				if now.After(until) {
					return // SQS refuses more
				}
				delays := make([]time.Duration, len(msgs))
				for i := range delays {
					delays[i] = c.Visibility
				}
				// Never cut off: a call that is given up may still arrive, late.
				c.setVisibility(context.Background(), msgs, delays)
			}
		}
	})
	return func() { close(stop); done.Wait() }
}

// inBatches runs do for each batch that SQS takes, side by side.
func inBatches(n int, do func(from, to int)) {
	var wg sync.WaitGroup
	for from := 0; from < n; from += batchSize {
		wg.Go(func() { do(from, min(from+batchSize, n)) })
	}
	wg.Wait()
}

// setVisibility hides each message for a time from now on. What fails is logged: the
// visibility that it has ends by itself.
func (c *Consumer) setVisibility(ctx context.Context, msgs []*message, delays []time.Duration) {
	inBatches(len(msgs), func(from, to int) { c.setVisibilityOnce(ctx, msgs[from:to], delays[from:to]) })
}

func (c *Consumer) setVisibilityOnce(ctx context.Context, msgs []*message, delays []time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(msgs))
	for i, m := range msgs {
		entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &m.handle, VisibilityTimeout: seconds(delays[i]),
		}
	}
	out, err := c.Queue.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &c.QueueURL, Entries: entries})
	switch {
	case err != nil:
		c.Log.WarnContext(ctx, "events: visibility not changed", "messages", len(msgs), "error", reason(err))
	case len(out.Failed) > 0:
		c.Log.WarnContext(ctx, "events: visibility not changed", "messages", len(out.Failed), "error", aws.ToString(out.Failed[0].Code))
	}
}

// delete takes settled messages out of the queue. A batch may be done in part: what
// failed is tried again, but what is our own mistake (a receipt that is none any more).
// What is left comes again, which is harmless.
func (c *Consumer) delete(ctx context.Context, msgs []*message) {
	inBatches(len(msgs), func(from, to int) { c.deleteBatch(ctx, msgs[from:to]) })
}

func (c *Consumer) deleteBatch(ctx context.Context, left []*message) {
	why := ""
	for try := 0; len(left) > 0 && try < deleteTries; try++ {
		if try > 0 {
			pause(ctx, jitter(50*time.Millisecond<<try))
		}
		left, why = c.deleteOnce(ctx, left)
	}
	if len(left) > 0 {
		c.metrics.deleteFailed.Add(float64(len(left)))
		c.Log.WarnContext(ctx, "events: settled messages not deleted; they will come again", "messages", len(left), "error", why)
	}
}

func (c *Consumer) deleteOnce(ctx context.Context, msgs []*message) (left []*message, why string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	entries := make([]types.DeleteMessageBatchRequestEntry, len(msgs))
	for i, m := range msgs {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &m.handle}
	}
	out, err := c.Queue.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &c.QueueURL, Entries: entries})
	if err != nil {
		return msgs, reason(err)
	}
	// Only what is said to be gone is gone.
	gone := map[string]bool{}
	for _, s := range out.Successful {
		gone[aws.ToString(s.Id)] = true
	}
	for _, f := range out.Failed {
		why = aws.ToString(f.Code)
		if f.SenderFault {
			gone[aws.ToString(f.Id)] = true
			c.metrics.deleteFailed.Inc()
			c.Log.WarnContext(ctx, "events: a settled message is not deleted; it will come again", "error", why)
		}
	}
	for i, m := range msgs {
		if !gone[strconv.Itoa(i)] {
			left = append(left, m)
		}
	}
	return left, why
}
