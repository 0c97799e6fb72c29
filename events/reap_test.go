package events

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"berth/models"

	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func TestParseReap(t *testing.T) {
	t.Parallel()
	task, file := models.NewTaskID(), models.NewFileID()
	good := `{"type":"FILE_DELETE","task_id":"` + string(task) + `","file_id":"` + string(file) + `"}`
	if m, err := ParseReap([]byte(good)); err != nil || m != (models.ReapMessage{TaskID: task, FileID: file}) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, c := range []struct{ body, why string }{
		{"", "not JSON"}, {"null", "the type"}, {"[]", "not JSON"}, {"hello", "not JSON"}, {good + good, "something follows"},
		{strings.Replace(good, "FILE_DELETE", "FILE_KEEP", 1), `"FILE_KEEP" is not FILE_DELETE`},
		{strings.Replace(good, string(task), string(file), 1), "task_id"}, {strings.Replace(good, string(file), "fil_../x", 1), "file_id"},
		{`{"type":"FILE_DELETE","task_id":7}`, "not JSON"}, {`{"type":"` + strings.Repeat("x", 5000) + `"}`, "longer than"},
	} {
		if m, err := ParseReap([]byte(c.body)); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%.60s: %+v, %v, want %q", c.body, m, err, c.why)
		}
	}
}

type sender func(*sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error)

func (f sender) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	return f(in)
}

// A batch that is sent in part is sent in part: each message has its own answer, and one
// that nothing is said of was not sent.
func TestSendingInPart(t *testing.T) {
	t.Parallel()
	calls := 0
	q := ReapQueue{QueueURL: "q", Queue: sender(func(in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
		if calls++; calls == 2 {
			return nil, errors.New("connection reset")
		}
		if len(in.Entries) > 10 {
			t.Errorf("%d in one batch", len(in.Entries))
		}
		out := &sqs.SendMessageBatchOutput{Failed: []types.BatchResultErrorEntry{{Id: aws.String("1"), Code: aws.String("Throttled")}, {Id: aws.String("99")}}}
		for _, i := range []string{"0", "3", "x"} {
			out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: &i})
		}
		return out, nil
	})}
	errs := q.Send(t.Context(), make([]models.ReapMessage, 24))
	var sent []int
	for i, err := range errs {
		if err == nil {
			sent = append(sent, i)
		}
	}
	if want := []int{0, 3, 20, 23}; len(errs) != 24 || !slices.Equal(sent, want) {
		t.Errorf("sent are %v of %d, want %v", sent, len(errs), want)
	}
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "Throttled") || !strings.Contains(errs[15].Error(), "reset") {
		t.Errorf("%v, %v", errs[1], errs[15])
	}
}
