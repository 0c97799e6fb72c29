package events

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// letters puts bodies into the dead-letter queue.
func letters(t *testing.T, b *bench, bodies ...string) *DLQ {
	t.Helper()
	for _, m := range bodies {
		if _, err := b.Client().SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &b.DLQURL, MessageBody: &m}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := OpenDLQ(t.Context(), b.Client(), b.QueueURL)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDLQListSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	d := letters(t, b, body("a"), `{"Records":[`+record("b")+`,{"eventVersion":"3.1"}]}`, "hello")
	for range 2 { // a look changes nothing
		got, err := d.List(t.Context(), 100)
		if err != nil || len(got) != 3 {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, want := range []string{"as many receives as the queue allows", `"3.1"; only major version 2`, "is not a JSON object"} {
			if !slices.ContainsFunc(got, func(l Letter) bool {
				return strings.Contains(l.Reason, want) && l.ID != "" && !l.Sent.IsZero() && time.Since(l.Sent) < time.Minute && (len(l.Objects) == 1) == (i < 2)
			}) {
				t.Errorf("no letter with %q: %+v", want, got)
			}
		}
	}
	if got, err := d.List(t.Context(), 2); err != nil || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// All of it, and by id; what is redriven is settled then.
func TestDLQRedriveAndDrop(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	names, bodies := keys(25)
	d := letters(t, b, append(bodies, "hello", "goodbye")...)
	list, err := d.List(t.Context(), 100)
	if err != nil || len(list) != 27 {
		t.Fatalf("%d letters, %v", len(list), err)
	}
	one := list[slices.IndexFunc(list, func(l Letter) bool { return l.Body == "hello" })].ID
	if n, err := d.Drop(t.Context(), one); n != 1 || err != nil {
		t.Fatalf("drop one: %d, %v", n, err)
	}
	first := list[slices.IndexFunc(list, func(l Letter) bool { return l.Body == bodies[7] })].ID
	if n, err := d.Redrive(t.Context(), first); n != 1 || err != nil {
		t.Fatalf("redrive one: %d, %v", n, err)
	}
	stop := b.run(t)
	testkit.Eventually(t, 10*time.Second, func() error { b.empty(t); return nil })
	if b.settler.times(names[7]) != 1 || len(b.settler.seen) != 1 {
		t.Errorf("settled %v", b.settler.seen)
	}
	stop()
	if n, err := d.Redrive(t.Context()); n != 25 || err != nil {
		t.Errorf("redrive: %d, %v", n, err)
	}
	if list, err := d.List(t.Context(), 100); err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
	if v, _ := b.count(t, b.QueueURL); v != 25 {
		t.Errorf("%d are back in the queue", v)
	}
	d2 := letters(t, b, "x", "y")
	if n, err := d2.Drop(t.Context()); n != 2 || err != nil {
		t.Errorf("drop: %d, %v", n, err)
	}
}

func TestDLQOfAQueueWithoutOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if _, err := OpenDLQ(t.Context(), b.Client(), b.DLQURL); err == nil || !strings.Contains(err.Error(), "no redrive policy") {
		t.Errorf("%v", err)
	}
}
