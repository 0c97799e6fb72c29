package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// DLQ is the care of the dead-letter queue: what is in it and why, back with it, or
// away with it.
type DLQ struct {
	client *sqs.Client
	main   string // URL of the queue
	dead   string // URL of its dead-letter queue
	arn    string // of the dead-letter queue

	// Reaps says that the messages announce due reap tasks; else they are notifications.
	Reaps bool
}

// Letter is a message that the queue gave up on.
type Letter struct {
	ID       string
	Sent     time.Time // to the queue in the first place
	Receives int       // in the dead-letter queue, this look included
	Reason   string    // why it came here, found by reading it again
	Objects  []string  // bucket/key of its first events, or the task and the file
	Body     string
}

const (
	// peekVisibility hides letters from a second look while all are looked at.
	peekVisibility = 5 * time.Minute
	peekWait       = 1 // seconds; long polls ask all of SQS's servers
	letterObjects  = 5
	notSettled     = "understood, but not settled in as many receives as the queue allows; the log says why"
)

// OpenDLQ finds the dead-letter queue of a queue, of whichever kind its messages are.
func OpenDLQ(ctx context.Context, client *sqs.Client, queueURL string) (*DLQ, error) {
	attrs, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &queueURL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameRedrivePolicy},
	})
	if err != nil {
		return nil, fmt.Errorf("events: dlq: %w", err)
	}
	policy := attrs.Attributes[string(types.QueueAttributeNameRedrivePolicy)]
	if policy == "" {
		return nil, errors.New("events: dlq: the queue has no redrive policy: what cannot be read is received for ever")
	}
	var p struct {
		Target string `json:"deadLetterTargetArn"`
	}
	if err := json.Unmarshal([]byte(policy), &p); err != nil || strings.Count(p.Target, ":") != 5 {
		return nil, errors.New("events: dlq: the redrive policy names no queue")
	}
	// arn:aws:sqs:region:account:name
	part := strings.Split(p.Target, ":")
	in := &sqs.GetQueueUrlInput{QueueName: &part[5]}
	if part[4] != "" {
		in.QueueOwnerAWSAccountId = &part[4]
	}
	dead, err := client.GetQueueUrl(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("events: dlq: %w", err)
	}
	return &DLQ{client: client, main: queueURL, dead: aws.ToString(dead.QueueUrl), arn: p.Target}, nil
}

// List looks at up to limit letters, and leaves them. A look counts as a receive, and
// hides them until all are seen.
func (d *DLQ) List(ctx context.Context, limit int) ([]Letter, error) {
	var out []Letter
	var seen []types.Message
	for len(out) < limit {
		msgs, err := d.receive(ctx, min(batchSize, limit-len(out)))
		if err != nil {
			return out, errors.Join(err, d.unhide(ctx, seen))
		}
		if len(msgs) == 0 {
			break
		}
		for _, m := range msgs {
			out = append(out, d.letter(m))
		}
		seen = append(seen, msgs...)
	}
	return out, d.unhide(ctx, seen)
}

// Redrive sends letters back to their queue: those with the ids, or all that are there.
// It returns how many; -1 if SQS moves them by itself from now on and does not say.
func (d *DLQ) Redrive(ctx context.Context, ids ...string) (int, error) {
	if len(ids) == 0 {
		_, err := d.client.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &d.arn})
		if err == nil {
			return -1, nil
		}
		if !unsupported(err) {
			return 0, fmt.Errorf("events: dlq: redrive: %w", err)
		}
	}
	return d.each(ctx, ids, d.sendBack)
}

// Drop deletes letters for good: those with the ids, or all that are there.
func (d *DLQ) Drop(ctx context.Context, ids ...string) (int, error) {
	return d.each(ctx, ids, func(_ context.Context, msgs []types.Message) ([]types.Message, error) { return msgs, nil })
}

// each takes letters out of the dead-letter queue once act has agreed to. What was sent
// to the queue after its start, such as what it sends back itself, is left, so that it
// ends.
func (d *DLQ) each(ctx context.Context, ids []string, act func(context.Context, []types.Message) (done []types.Message, err error)) (n int, err error) {
	start := time.Now()
	var others []types.Message
	defer func() { err = errors.Join(err, d.unhide(ctx, others)) }()
	for {
		msgs, err := d.receive(ctx, batchSize)
		if err != nil || len(msgs) == 0 {
			return n, err
		}
		var ours []types.Message
		for _, m := range msgs {
			named := len(ids) == 0 || slices.Contains(ids, aws.ToString(m.MessageId))
			if named && !d.letter(m).Sent.After(start) {
				ours = append(ours, m)
			} else {
				others = append(others, m)
			}
		}
		if len(ours) == 0 {
			continue
		}
		done, err := act(ctx, ours)
		for _, m := range ours {
			if !slices.ContainsFunc(done, func(o types.Message) bool { return o.MessageId == m.MessageId }) {
				others = append(others, m)
			}
		}
		gone, deleteErr := d.delete(ctx, done)
		n += gone
		if err = errors.Join(err, deleteErr); err != nil {
			return n, err
		}
	}
}

// sendBack copies messages to their queue. One that cannot be deleted afterwards is
// there twice, which is harmless.
func (d *DLQ) sendBack(ctx context.Context, msgs []types.Message) ([]types.Message, error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(msgs))
	for i, m := range msgs {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: m.Body, MessageAttributes: m.MessageAttributes}
	}
	out, err := d.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &d.main, Entries: entries})
	if err != nil {
		return nil, fmt.Errorf("events: dlq: redrive: %w", err)
	}
	var sent []types.Message
	for _, s := range out.Successful {
		if i, err := strconv.Atoi(aws.ToString(s.Id)); err == nil && i >= 0 && i < len(msgs) {
			sent = append(sent, msgs[i])
		}
	}
	if len(out.Failed) > 0 {
		return sent, fmt.Errorf("events: dlq: redrive: %d not sent: %s", len(out.Failed), aws.ToString(out.Failed[0].Code))
	}
	return sent, nil
}

func (d *DLQ) delete(ctx context.Context, msgs []types.Message) (int, error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(msgs))
	for i, m := range msgs {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
	}
	out, err := d.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &d.dead, Entries: entries})
	if err != nil {
		return 0, fmt.Errorf("events: dlq: delete: %w", err)
	}
	if len(out.Failed) > 0 {
		return len(out.Successful), fmt.Errorf("events: dlq: delete: %d failed: %s", len(out.Failed), aws.ToString(out.Failed[0].Code))
	}
	return len(out.Successful), nil
}

func (d *DLQ) receive(ctx context.Context, most int) ([]types.Message, error) {
	out, err := d.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &d.dead, MaxNumberOfMessages: int32(most), // #nosec G115 -- at most 10
		WaitTimeSeconds: peekWait, VisibilityTimeout: seconds(peekVisibility), MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameSentTimestamp,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("events: dlq: receive: %w", err)
	}
	return out.Messages, nil
}

// unhide makes letters visible again, also when ctx has ended.
func (d *DLQ) unhide(ctx context.Context, msgs []types.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var errs []error
	for batch := range slices.Chunk(msgs, batchSize) {
		entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(batch))
		for i, m := range batch {
			entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
		}
		if _, err := d.client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &d.dead, Entries: entries}); err != nil {
			errs = append(errs, fmt.Errorf("events: dlq: letters stay hidden for %s: %w", peekVisibility, err))
		}
	}
	return errors.Join(errs...)
}

// letter reads a message again: SQS does not keep why it was given up on.
func (d *DLQ) letter(m types.Message) Letter {
	msg := messages([]types.Message{m}, time.Now())[0]
	l := Letter{ID: msg.id, Sent: msg.sent, Receives: msg.receives, Body: msg.body, Reason: notSettled}
	if d.Reaps {
		if r, err := ParseReap([]byte(msg.body)); err != nil {
			l.Reason = reason(err)
		} else {
			l.Objects = []string{string(r.TaskID), string(r.FileID)}
		}
		return l
	}
	b, err := Parse([]byte(msg.body))
	switch {
	case err != nil:
		l.Reason = reason(err)
	case len(b.Bad) > 0:
		l.Reason = reason(errors.Join(b.Bad...))
	}
	for _, e := range b.Events[:min(len(b.Events), letterObjects)] {
		l.Objects = append(l.Objects, e.Bucket+"/"+e.Key)
	}
	return l
}

// unsupported tells whether a server does not know the action, as against refusing it.
func unsupported(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "InvalidAction", "NotImplemented", "UnknownOperationException", "UnknownOperation",
		"UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation":
		return true
	}
	return false
}
