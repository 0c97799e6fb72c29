// Command bridge takes the webhooks of a store and puts each body, as it came, into an
// SQS queue, for stores that can call but know no queue (versitygw, MinIO, Ceph) where a
// queue is wanted. It answers 200 only after the queue has the message.
//
// Configured by its environment: BRIDGE_LISTEN (default :8081), BRIDGE_TOKEN (the bearer
// token that callers must show; empty: any caller), BERTH_SQS_QUEUE_URL, and where it is
// not AWS's, BERTH_SQS_ENDPOINT. Credentials and region come from the AWS chain.
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

const (
	maxBody     = 1 << 20 // SQS takes no more in a message
	sendTimeout = 2500 * time.Millisecond
	stopTimeout = 10 * time.Second
)

// sender is what is needed of SQS.
type sender interface {
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// bridge answers the store.
type bridge struct {
	queue    sender
	queueURL string
	token    string
}

func (b bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/healthz":
		w.WriteHeader(http.StatusOK)
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case b.token != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(b.token)) != 1:
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	text := string(body)
	if err != nil || text == "" || !utf8.ValidString(text) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	// versitygw waits three seconds and never repeats.
	ctx, cancel := context.WithTimeout(r.Context(), sendTimeout)
	defer cancel()
	if _, err := b.queue.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &b.queueURL, MessageBody: &text}); err != nil {
		slog.WarnContext(ctx, "the queue did not take a notification", "error", err)
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("bridge", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	b := bridge{queueURL: os.Getenv("BERTH_SQS_QUEUE_URL"), token: os.Getenv("BRIDGE_TOKEN")}
	if b.queueURL == "" {
		return errors.New("BERTH_SQS_QUEUE_URL is missing")
	}
	conf, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	b.queue = sqs.NewFromConfig(conf, func(o *sqs.Options) {
		if e := os.Getenv("BERTH_SQS_ENDPOINT"); e != "" {
			o.BaseEndpoint = &e
		}
	})
	listen := os.Getenv("BRIDGE_LISTEN")
	if listen == "" {
		listen = ":8081"
	}
	server := &http.Server{Addr: listen, Handler: b, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return server.Shutdown(last)
}
