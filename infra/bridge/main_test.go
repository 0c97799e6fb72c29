package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

func post(t *testing.T, b bridge, method, token, body string) int {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/", strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	b.ServeHTTP(w, r)
	if w.Body.Len() > 0 { // a store that never reads the answer would leak the connection
		t.Errorf("answers %q", w.Body.String())
	}
	return w.Code
}

func TestBridgeAnswersAfterTheQueueHasIt(t *testing.T) {
	t.Parallel()
	q := testkit.SQS(t)
	b := bridge{queue: q.Client(), queueURL: q.QueueURL, token: "of-the-store"}
	for _, c := range []struct {
		method, token, body string
		want                int
	}{
		{http.MethodPost, "", "{}", http.StatusUnauthorized},
		{http.MethodPost, "of-another", "{}", http.StatusUnauthorized},
		{http.MethodPut, "of-the-store", "{}", http.StatusMethodNotAllowed},
		{http.MethodPost, "of-the-store", "", http.StatusBadRequest},
		{http.MethodPost, "of-the-store", "\xff", http.StatusBadRequest},
		{http.MethodPost, "of-the-store", strings.Repeat("x", maxBody+1), http.StatusBadRequest},
		{http.MethodPost, "of-the-store", `{"Records":[]}`, http.StatusOK},
	} {
		if got := post(t, b, c.method, c.token, c.body); got != c.want {
			t.Errorf("%s %.20q as %q: %d, want %d", c.method, c.body, c.token, got, c.want)
		}
	}
	out, err := q.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &q.QueueURL, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
	if err != nil || len(out.Messages) != 1 || *out.Messages[0].Body != `{"Records":[]}` {
		t.Errorf("in the queue: %v, %v", out, err)
	}
}

type broken struct{}

func (broken) SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	return nil, errors.New("is away")
}

func TestBridgeSaysWhenTheQueueIsAway(t *testing.T) {
	t.Parallel()
	if got := post(t, bridge{queue: broken{}}, http.MethodPost, "", "{}"); got != http.StatusBadGateway {
		t.Errorf("%d", got)
	}
}
