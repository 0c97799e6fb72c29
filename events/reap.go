package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// reapMessage is how the announcement of a due reap task travels.
type reapMessage struct {
	Type   string        `json:"type"`
	TaskID models.TaskID `json:"task_id"`
	FileID models.FileID `json:"file_id"`
}

// maxReapMessage bounds what is read of a message, in bytes; ours have a hundred.
const maxReapMessage = 4 << 10

// ParseReap reads a message about a due reap task.
func ParseReap(body []byte) (models.ReapMessage, error) {
	if len(body) > maxReapMessage {
		return models.ReapMessage{}, fmt.Errorf("longer than %d bytes", maxReapMessage)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	var m reapMessage
	if err := d.Decode(&m); err != nil {
		return models.ReapMessage{}, errors.New("not JSON, or not of our form")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return models.ReapMessage{}, errors.New("something follows the JSON")
	}
	if m.Type != models.ReapMessageType {
		return models.ReapMessage{}, fmt.Errorf("the type %.40q is not %s", m.Type, models.ReapMessageType)
	}
	if _, err := models.ParseTaskID(string(m.TaskID)); err != nil {
		return models.ReapMessage{}, errors.New("task_id is no task's id")
	}
	if _, err := models.ParseFileID(string(m.FileID)); err != nil {
		return models.ReapMessage{}, errors.New("file_id is no file's id")
	}
	return models.ReapMessage{TaskID: m.TaskID, FileID: m.FileID}, nil
}

const (
	// patientReceives is how often a message may be received before one that is to come later
	// is given up instead, and its task announced anew: each receive counts towards the
	// redrive policy, and nothing is wrong with the message.
	patientReceives = 3
	// holdMargin is kept free of SQS's longest visibility, which counts from the receive.
	holdMargin = time.Hour
)

// reap does the tasks that messages announce, side by side, each distinct one once.
func (c *Consumer) reap(ctx context.Context, msgs []*message) (tried, passing int) {
	from := map[models.ReapMessage][]*message{}
	for _, m := range msgs {
		r, err := ParseReap([]byte(m.body))
		if err != nil {
			m.malformed = err
			continue
		}
		from[r] = append(from[r], m)
	}
	c.metrics.events.Add(float64(len(from)))
	var mu sync.Mutex
	var all sync.WaitGroup
	for r, same := range from {
		all.Go(func() {
			a, err := c.told(ctx, r, patience(same))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				passing++
			}
			for i, m := range same {
				m.outcome, m.failed = outcomeSettled, err
				if a.Poison != "" {
					m.malformed = errors.New(a.Poison)
				}
				if i == 0 { // one message is enough to come again for a task
					m.later = a.After
				}
			}
		})
	}
	all.Wait()
	return len(from), passing
}

// patience is for how long the first of the messages can stay hidden.
func patience(same []*message) time.Duration {
	if same[0].receives >= patientReceives {
		return 0
	}
	return maxHold - holdMargin - time.Since(same[0].received)
}

// told is Told, with an error if it panics.
func (c *Consumer) told(ctx context.Context, m models.ReapMessage, patience time.Duration) (a models.ReapAnswer, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.Log.ErrorContext(ctx, "events: reaping panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a, err = models.ReapAnswer{}, errors.New("reaping panicked")
		}
	}()
	if err := ctx.Err(); err != nil {
		return a, err
	}
	return c.Reaps.Told(ctx, m, patience)
}

// Sender is what announcing needs of SQS. *sqs.Client has it.
type Sender interface {
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
}

// ReapQueue announces due reap tasks.
type ReapQueue struct {
	Queue    Sender
	QueueURL string
}

// Send sends the messages, in SQS's batches. The errors stand at their places.
func (q ReapQueue) Send(ctx context.Context, messages []models.ReapMessage) []error {
	errs := make([]error, len(messages))
	for start := 0; start < len(messages); start += batchSize {
		end := min(start+batchSize, len(messages))
		q.batch(ctx, messages[start:end], errs[start:end])
	}
	return errs
}

// batch sends at most ten messages. Only what is said to be sent is.
func (q ReapQueue) batch(ctx context.Context, messages []models.ReapMessage, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	entries := make([]types.SendMessageBatchRequestEntry, len(messages))
	for i, m := range messages {
		errs[i] = errors.New("send: no answer about the message")
		body, err := json.Marshal(reapMessage{Type: models.ReapMessageType, TaskID: m.TaskID, FileID: m.FileID})
		if err != nil {
			errs[i] = err
		}
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(body))}
	}
	out, err := q.Queue.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &q.QueueURL, Entries: entries})
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("send: %w", err)
		}
		return
	}
	at := func(id *string) int {
		i, err := strconv.Atoi(aws.ToString(id))
		if err != nil || i < 0 || i >= len(errs) {
			return -1
		}
		return i
	}
	for _, s := range out.Successful {
		if i := at(s.Id); i >= 0 {
			errs[i] = nil
		}
	}
	for _, f := range out.Failed {
		if i := at(f.Id); i >= 0 {
			errs[i] = fmt.Errorf("send: %s", aws.ToString(f.Code))
		}
	}
}
