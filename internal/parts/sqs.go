package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/sivchari/kumo"
)

// SQSOptions says how to run the SQS server.
type SQSOptions struct {
	Port int // 0: a free one
}

// SQS is a running kumo, in this process. Its queues are kept in memory, and
// also on disk if KUMO_DATA_DIR was set when the process began.
type SQS struct {
	Port     int
	Endpoint string

	server *kumo.Server
	front  *forwarder
}

// StartSQS starts kumo on loopback and waits until it answers. All that one
// process starts share their queues, as kumo does.
func StartSQS(ctx context.Context, o SQSOptions) (*SQS, error) {
	q := &SQS{}
	if o.Port != 0 {
		if err := CheckPort("kumo", o.Port); err != nil {
			return nil, err
		}
	}
	q.server = kumo.NewServer()
	q.Endpoint = q.server.URL
	inner := strings.TrimPrefix(q.server.URL, "http://")
	if o.Port != 0 {
		// kumo picks its own port; the only other way to a fixed one is a
		// command-line flag that makes it block and never close.
		var err error
		if q.front, err = forward(Addr(o.Port), inner); err != nil {
			q.server.Close()
			return nil, AsPortBusy("kumo", o.Port, fmt.Errorf("kumo: %w", err))
		}
		q.Endpoint = "http://" + Addr(o.Port)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(q.Endpoint, "http://"))
	if err == nil {
		q.Port, err = strconv.Atoi(port)
	}
	if err == nil {
		_, err = q.Client().ListQueues(ctx, &sqs.ListQueuesInput{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kumo: not ready: %w", err), q.Stop())
	}
	return q, nil
}

// Client makes a client of the server, which retries nothing.
func (q *SQS) Client() *sqs.Client { return SQSClient(q.Endpoint) }

// SQSClient makes a client for a kumo at the endpoint. It takes any keys.
func SQSClient(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &endpoint, Region: Region, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("berth", "berth", ""),
	})
}

// Queue is a queue and the one that takes what it gave up on.
type Queue struct {
	URL, DeadLetterURL string
}

// QueueOptions are what differs between the queues of tests and of the cloud.
type QueueOptions struct {
	Visibility   time.Duration // whole seconds; 0: 30 s, as SQS
	ReceiveLimit int           // receives after which a message moves to the DLQ; 0: 5
}

// EnsureQueue makes the queue `name` and its dead-letter queue `name-dlq`
// unless they are there, and sets the redrive policy between them.
func EnsureQueue(ctx context.Context, client *sqs.Client, endpoint, name string, o QueueOptions) (Queue, error) {
	if o.Visibility == 0 {
		o.Visibility = 30 * time.Second
	}
	if o.ReceiveLimit == 0 {
		o.ReceiveLimit = 5
	}
	dlq, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(name + "-dlq")})
	if err != nil {
		return Queue{}, fmt.Errorf("queue %s: dead letters: %w", name, err)
	}
	attrs, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: dlq.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return Queue{}, fmt.Errorf("queue %s: dead letters: %w", name, err)
	}
	redrive, err := json.Marshal(map[string]string{
		"deadLetterTargetArn": attrs.Attributes[string(types.QueueAttributeNameQueueArn)],
		"maxReceiveCount":     strconv.Itoa(o.ReceiveLimit),
	})
	if err != nil {
		return Queue{}, fmt.Errorf("queue %s: redrive policy: %w", name, err)
	}
	wanted := map[string]string{
		string(types.QueueAttributeNameVisibilityTimeout): strconv.Itoa(int(o.Visibility / time.Second)),
		string(types.QueueAttributeNameRedrivePolicy):     string(redrive),
	}
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: wanted})
	if err != nil {
		return Queue{}, fmt.Errorf("queue %s: create: %w", name, err)
	}
	// Again for a queue that was there, with other attributes perhaps.
	if _, err := client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: made.QueueUrl, Attributes: wanted}); err != nil {
		return Queue{}, fmt.Errorf("queue %s: attributes: %w", name, err)
	}
	return Queue{URL: queueURL(endpoint, *made.QueueUrl), DeadLetterURL: queueURL(endpoint, *dlq.QueueUrl)}, nil
}

// queueURL puts the real endpoint into the URL that kumo gives, which always
// names localhost:4566. kumo goes by the path alone.
func queueURL(endpoint, given string) string {
	if _, path, ok := strings.Cut(strings.TrimPrefix(given, "http://"), "/"); ok {
		return endpoint + "/" + path
	}
	return given
}

// Stop closes the server.
func (q *SQS) Stop() error {
	if q == nil {
		return nil
	}
	if q.front != nil {
		q.front.close()
	}
	q.server.Close()
	return nil
}
