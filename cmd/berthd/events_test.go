package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.yaml.in/yaml/v3"
)

func TestDLQCommands(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	q := testkit.SQS(t)
	c.Events.QueueURL = q.QueueURL
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"hello", `{"Records":[{"eventVersion":"3.0"}]}`, `{"Records":[]}`} {
		if _, err := q.Client().SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &q.DLQURL, MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
	}
	dlq := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, msgs bytes.Buffer
		if code := run(t.Context(), append([]string{"events", "dlq", args[0], "--config", file}, args[1:]...), streams{&out, &msgs}); code != want {
			t.Fatalf("%v: exit %d: %s", args, code, msgs.String())
		}
		return out.String(), msgs.String()
	}
	if out, _ := dlq(0, "list"); !strings.Contains(out, "only major version 2 is known") || strings.Count(out, "\n") != 4 {
		t.Errorf("list: %s", out)
	}
	out, _ := dlq(0, "list", "--json")
	var hello string
	for line := range strings.Lines(out) {
		var l struct{ ID, Body string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Body == "hello" {
			hello = l.ID
		}
	}
	dlq(exitUsage, "list", "--queue", "reap") // none is configured
	dlq(exitUsage, "drop")
	dlq(exitUsage, "drop", "--all", hello)
	dlq(exitFailed, "drop", "nobody")
	if _, msgs := dlq(0, "drop", hello); !strings.Contains(msgs, "1 messages deleted") {
		t.Errorf("drop: %s", msgs)
	}
	if _, msgs := dlq(0, "redrive"); !strings.Contains(msgs, "2 messages sent back") {
		t.Errorf("redrive: %s", msgs)
	}
	if _, msgs := dlq(0, "drop", "--all"); !strings.Contains(msgs, "0 messages deleted") {
		t.Errorf("drop: %s", msgs)
	}
}
