package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"berth/models"
	"berth/tracing"
)

// outgoing is how an outbox event travels, the same to every target. Its id is that of the
// event, however often it is sent: receivers tell repeats by it.
type outgoing struct {
	ID        models.EventID   `json:"id"`
	Type      models.EventType `json:"type"`
	Timestamp time.Time        `json:"timestamp"`
	Data      json.RawMessage  `json:"data"`
}

func encode(e models.Event) ([]byte, error) {
	return json.Marshal(outgoing{ID: e.ID, Type: e.Type, Timestamp: e.CreatedAt, Data: e.Payload})
}

// SQSTarget sends events to a queue. To a FIFO queue each file is a group, and the event's
// id the deduplication id.
type SQSTarget struct {
	Queue    *sqs.Client
	QueueURL string
	FIFO     bool
}

// Name of the target.
func (t SQSTarget) Name() string { return "sqs" }

// Send sends one event.
func (t SQSTarget) Send(ctx context.Context, e models.Event) error {
	body, err := encode(e)
	if err != nil {
		return err
	}
	in := &sqs.SendMessageInput{QueueUrl: &t.QueueURL, MessageBody: aws.String(string(body)),
		MessageAttributes: map[string]sqstypes.MessageAttributeValue{
			"type": {DataType: aws.String("String"), StringValue: aws.String(string(e.Type))},
		}}
	if p := tracing.Traceparent(ctx); p != "" {
		in.MessageAttributes["traceparent"] = sqstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: &p}
	}
	if t.FIFO {
		in.MessageGroupId, in.MessageDeduplicationId = aws.String(string(e.FileID)), aws.String(string(e.ID))
	}
	if _, err := t.Queue.SendMessage(ctx, in); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// SNSTarget publishes events to a topic.
type SNSTarget struct {
	Topic    *sns.Client
	TopicARN string
	FIFO     bool
}

// Name of the target.
func (t SNSTarget) Name() string { return "sns" }

// Send publishes one event.
func (t SNSTarget) Send(ctx context.Context, e models.Event) error {
	body, err := encode(e)
	if err != nil {
		return err
	}
	in := &sns.PublishInput{TopicArn: &t.TopicARN, Message: aws.String(string(body)),
		MessageAttributes: map[string]snstypes.MessageAttributeValue{
			"type": {DataType: aws.String("String"), StringValue: aws.String(string(e.Type))},
		}}
	if p := tracing.Traceparent(ctx); p != "" {
		in.MessageAttributes["traceparent"] = snstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: &p}
	}
	if t.FIFO {
		in.MessageGroupId, in.MessageDeduplicationId = aws.String(string(e.FileID)), aws.String(string(e.ID))
	}
	if _, err := t.Topic.Publish(ctx, in); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// WebhookTarget posts events as Standard Webhooks: any 2xx says that it has them, 410 that
// it wants no more of them is treated as a failure like any other: a person decides.
type WebhookTarget struct {
	Caller *Caller
	URL    string
	Secret string
}

// Name of the target.
func (t WebhookTarget) Name() string { return "webhook" }

// Send posts one event.
func (t WebhookTarget) Send(ctx context.Context, e models.Event) error {
	body, err := encode(e)
	if err != nil {
		return err
	}
	status, _, err := t.Caller.post(ctx, t.URL, t.Secret, string(e.ID), body, 0)
	if err != nil {
		return err
	}
	if status < 200 || status > 299 {
		return errors.New("webhook: answered " + fmt.Sprint(status))
	}
	return nil
}
