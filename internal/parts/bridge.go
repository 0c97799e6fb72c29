package parts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// BridgeOptions says where notifications go.
type BridgeOptions struct {
	Port int         // 0: a free one
	SQS  *sqs.Client // of the server with the queues

	// Queue takes everything that has no route. Empty: what has no route is
	// dropped.
	Queue string
}

// Bridge listens for versitygw's webhook and puts each body, as it came, into a
// queue. It is what S3 itself does on AWS.
//
// It answers 200 only after the queue has the message, and with an empty body:
// versitygw never reads or closes the answer, and would leak a connection for
// each event otherwise.
type Bridge struct {
	Port int
	URL  string // for versitygw

	sqs   *sqs.Client
	queue string
	http  *http.Server

	mu     sync.RWMutex
	routes map[string]string // bucket to queue URL
}

const bridgeBody = 1 << 20 // SQS takes no more in a message

// StartBridge listens when it returns.
func StartBridge(o BridgeOptions) (*Bridge, error) {
	l, err := net.Listen("tcp", Addr(o.Port))
	if err != nil {
		return nil, fmt.Errorf("bridge: port %d: %w (%w)", o.Port, ErrPortBusy, err)
	}
	b := &Bridge{Port: l.Addr().(*net.TCPAddr).Port, sqs: o.SQS, queue: o.Queue, routes: map[string]string{}}
	b.URL = "http://" + Addr(b.Port) + "/notify"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /notify", b.notify)
	mux.HandleFunc("PUT /routes/{bucket}", b.putRoute)
	mux.HandleFunc("DELETE /routes/{bucket}", b.deleteRoute)
	b.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	go func() { _ = b.http.Serve(l) }()
	return b, nil
}

func (b *Bridge) notify(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bridgeBody))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	queue := b.route(body)
	if queue == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	// versitygw waits three seconds and never repeats.
	ctx, cancel := context.WithTimeout(r.Context(), 2500*time.Millisecond)
	defer cancel()
	text := string(body)
	if _, err := b.sqs.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &text}); err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// route finds the queue of the bucket that the notification is about.
func (b *Bridge) route(body []byte) string {
	var n struct {
		Records []struct {
			S3 struct {
				Bucket struct {
					Name string `json:"name"`
				} `json:"bucket"`
			} `json:"s3"`
		}
	}
	// What cannot be read goes to the common queue too: judging it is the
	// receiver's work.
	if json.Unmarshal(body, &n) == nil && len(n.Records) > 0 {
		b.mu.RLock()
		defer b.mu.RUnlock()
		if queue, ok := b.routes[n.Records[0].S3.Bucket.Name]; ok {
			return queue
		}
	}
	return b.queue
}

// Route sends a bucket's notifications to a queue of their own.
func (b *Bridge) Route(bucket, queueURL string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.routes[bucket] = queueURL
}

// Unroute ends that.
func (b *Bridge) Unroute(bucket string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.routes, bucket)
}

// putRoute is Route for other processes: test binaries that share the parts.
func (b *Bridge) putRoute(w http.ResponseWriter, r *http.Request) {
	queue, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<10))
	if err != nil || len(queue) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.Route(r.PathValue("bucket"), string(queue))
	w.WriteHeader(http.StatusNoContent)
}

func (b *Bridge) deleteRoute(w http.ResponseWriter, r *http.Request) {
	b.Unroute(r.PathValue("bucket"))
	w.WriteHeader(http.StatusNoContent)
}

// Stop finishes what is in flight and closes.
func (b *Bridge) Stop() error {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := b.http.Shutdown(ctx); err != nil {
		return fmt.Errorf("bridge: stop: %w", err)
	}
	return nil
}
