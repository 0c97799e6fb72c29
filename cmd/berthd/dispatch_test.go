package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/parts"
	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
)

// dispatching is a configuration whose reaps go over a queue, with short times.
func dispatching(t *testing.T) (config.Config, testkit.SQSInfo) {
	t.Helper()
	c, q := realConfig(t), testkit.SQS(t)
	c.Worker = config.Worker{Interval: config.Duration(200 * time.Millisecond), Lease: config.Duration(10 * time.Second)}
	c.Reap = config.Reap{Dispatch: config.DispatchSQS, QueueURL: q.QueueURL, Visibility: config.Duration(2 * time.Second), Net: config.Duration(10 * time.Minute)}
	// In one part: no URL outlives a deletion, so that one sweep is enough.
	c.Collections = map[string]config.Collection{"default": {SingleMax: 1, Algorithm: "crc64nvme"}}
	return c, q
}

// gone waits until a file is deleted.
func gone(t *testing.T, p *process, tok, id string) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() error {
		if s := fileState(t, p, tok, id); s != "deleted" && s != "" {
			return fmt.Errorf("is %s", s)
		}
		return nil
	})
}

// deleteOne uploads a file, waits until it is active, and has it deleted.
func deleteOne(t *testing.T, p *process, tok string) (id string) {
	t.Helper()
	u := put(t, p, tok, "a.txt", "hello")
	if code := call(t, http.MethodPost, p.url+"/v1/uploads/"+u.ID+"/complete", tok, map[string]any{}, nil); code != http.StatusOK {
		t.Fatalf("complete: %d", code)
	}
	if code := call(t, http.MethodDelete, p.url+"/v1/files/"+u.FileID, tok, nil, nil); code != http.StatusAccepted {
		t.Fatalf("delete: %d", code)
	}
	return u.FileID
}

func ask[T any](t *testing.T, c config.Config, q string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.Database.URL.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), q).Scan(&v); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return v
}

func messagesIn(t *testing.T, endpoint, queue string) (n int) {
	t.Helper()
	out, err := parts.SQSClient(endpoint).GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"} {
		v, err := strconv.Atoi(out.Attributes[a])
		if err != nil {
			t.Fatal(err)
		}
		n += v
	}
	return n
}

// killer is the way to S3: at the first batch of deletes that S3 has done, it kills.
type killer struct {
	mu   sync.Mutex
	kill func()
}

func (k *killer) front(t *testing.T, endpoint string) string {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host // as it was signed
		},
		ModifyResponse: func(r *http.Response) error {
			if _, ok := r.Request.URL.Query()["delete"]; !ok || r.StatusCode != http.StatusOK {
				return nil
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.kill != nil {
				k.kill()
				k.kill = nil
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// A worker is killed, with SIGKILL, after S3 has deleted and before the message is
// acknowledged: it comes again, another does what is left, and the queue is empty.
func TestKilledBetweenTheDeleteAndTheAcknowledgement(t *testing.T) {
	t.Parallel()
	c, q := dispatching(t)
	k := &killer{}
	s := c.Stores["main"]
	s.Endpoint = k.front(t, s.Endpoint)
	c.Stores["main"] = s
	api := start(t, c, "--role", "api,events")
	tok := token(t)
	worker := start(t, c, "--role", "worker") // before anything is due: its net finds nothing
	killed := make(chan struct{})
	k.mu.Lock()
	k.kill = func() { _ = worker.cmd.Process.Kill(); <-worker.done; close(killed) }
	k.mu.Unlock()
	id := deleteOne(t, api, tok)
	select {
	case <-killed:
	case <-time.After(2 * time.Minute):
		t.Fatal("no delete reached S3")
	}
	if got := ask[string](t, c, "SELECT state FROM tasks WHERE kind = 'reap' AND state <> 'cancelled'"); got != "running" {
		t.Errorf("the dead worker's task is %s", got)
	}
	if n := messagesIn(t, q.Endpoint, q.QueueURL); n < 1 {
		t.Error("the message is gone before its task is done")
	}
	start(t, c, "--role", "worker")
	gone(t, api, tok, id)
	testkit.Eventually(t, time.Minute, func() error {
		if n := messagesIn(t, q.Endpoint, q.QueueURL); n != 0 {
			return fmt.Errorf("%d messages are in the queue", n)
		}
		return nil
	})
	if n := messagesIn(t, q.Endpoint, q.DLQURL); n != 0 {
		t.Errorf("%d messages died", n)
	}
	if n := ask[int64](t, c, "SELECT count(*) FROM outbox WHERE type = 'file.deleted'"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// The queue cannot be reached: the net does the work.
func TestReapQueueAway(t *testing.T) {
	t.Parallel()
	c, _ := dispatching(t)
	port, err := parts.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	c.Events = config.Events{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", port), Region: "us-east-1", AccessKeyID: "x", SecretAccessKey: "x"}
	c.Reap.QueueURL = c.Events.Endpoint + "/000000000000/none"
	c.Reap.Net = config.Duration(time.Second)
	p := start(t, c)
	tok := token(t)
	gone(t, p, tok, deleteOne(t, p, tok))
	testkit.Eventually(t, time.Minute, func() error {
		if !strings.Contains(p.output(), `"loop":"announce"`) {
			return errors.New("the log does not say that nothing can be announced")
		}
		return nil
	})
}

// With reap.dispatch: poll nothing is announced, whatever else is configured.
func TestNothingIsAnnouncedByPolling(t *testing.T) {
	t.Parallel()
	c, q := dispatching(t)
	c.Reap.Dispatch = config.DispatchPoll
	p := start(t, c)
	tok := token(t)
	gone(t, p, tok, deleteOne(t, p, tok))
	if n := messagesIn(t, q.Endpoint, q.QueueURL); n != 0 {
		t.Errorf("%d messages", n)
	}
	if n := ask[int64](t, c, "SELECT count(*) FROM tasks WHERE announced_at IS NOT NULL"); n != 0 {
		t.Errorf("%d tasks are marked as announced", n)
	}
}

// With reap.dispatch: sqs the loop is a net that is far away: what is done was announced.
func TestReapsAreDispatched(t *testing.T) {
	t.Parallel()
	c, q := dispatching(t)
	p := start(t, c)
	tok := token(t)
	gone(t, p, tok, deleteOne(t, p, tok))
	if n := ask[int64](t, c, "SELECT count(*) FROM tasks WHERE announced_at IS NOT NULL"); n == 0 {
		t.Error("the task was never announced")
	}
	if err := p.stop(t); err != nil {
		t.Errorf("stop: %v", err)
	}
	if n := messagesIn(t, q.Endpoint, q.DLQURL); n != 0 {
		t.Errorf("%d messages died", n)
	}
}
