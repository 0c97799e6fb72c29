package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/models"
)

// StepRequest is what a webhook step is told of a file. URL is a presigned GET of exactly
// the version that was verified; ResultURL and LeaseToken are for an answer that comes later.
type StepRequest struct {
	Step       models.Step
	Task       models.Task
	File       models.File
	URL        string
	URLExpires time.Time
	ResultURL  string
	LeaseToken string
}

type stepBody struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      stepData  `json:"data"`
}

type stepData struct {
	Step       string          `json:"step"`
	TaskID     models.TaskID   `json:"task_id"`
	Attempt    int             `json:"attempt"`
	LeaseToken string          `json:"lease_token"`
	ResultURL  string          `json:"result_url"`
	FileID     models.FileID   `json:"file_id"`
	Tenant     models.Tenant   `json:"tenant"`
	Owner      models.Owner    `json:"owner"`
	Collection string          `json:"collection"`
	Name       string          `json:"name"`
	Size       int64           `json:"size"`
	Type       string          `json:"content_type"`
	Checksum   stepChecksum    `json:"checksum"`
	VersionID  string          `json:"version_id"`
	Metadata   json.RawMessage `json:"metadata"`
	URL        string          `json:"url"`
	Expires    time.Time       `json:"url_expires_at"`
}

type stepChecksum struct {
	Algorithm models.Algorithm    `json:"algorithm"`
	Type      models.ChecksumType `json:"type"`
	Value     string              `json:"value"`
}

// Step calls a webhook step. 200 with a verdict is the answer; 202 says that it comes
// later, within the seconds that it names; everything else is a failed attempt.
func (c *Caller) Step(ctx context.Context, r StepRequest) (models.StepAnswer, error) {
	f := r.File
	body, err := json.Marshal(stepBody{Type: "file.process", Timestamp: c.now().UTC(), Data: stepData{
		Step: r.Step.Name, TaskID: r.Task.ID, Attempt: r.Task.Attempts, LeaseToken: r.LeaseToken, ResultURL: r.ResultURL,
		FileID: f.ID, Tenant: f.Tenant, Owner: f.Owner, Collection: f.Collection, Name: f.Name, Size: f.Size, Type: f.ContentType,
		Checksum:  stepChecksum{f.Checksum.Algorithm, f.Checksum.Type, f.Checksum.Value},
		VersionID: f.VersionID, Metadata: f.Metadata, URL: r.URL, Expires: r.URLExpires,
	}})
	if err != nil {
		return models.StepAnswer{}, fmt.Errorf("step %s: %w", r.Step.Name, err)
	}
	// The id is the same for each attempt at this step, as the specification wants for retries.
	status, answer, err := c.post(ctx, r.Step.URL, r.Step.Secret, string(r.Task.ID)+"."+r.Step.Name, body, r.Step.Timeout)
	switch {
	case err != nil:
		return models.StepAnswer{}, err
	case status == 202:
		var later struct {
			Seconds int `json:"within_seconds"`
		}
		if len(answer) > 0 {
			if err := json.Unmarshal(answer, &later); err != nil || later.Seconds < 0 {
				return models.StepAnswer{}, errors.New("the answer 202 is not understood")
			}
		}
		return models.StepAnswer{Later: true, Within: time.Duration(later.Seconds) * time.Second}, nil
	case status != 200:
		return models.StepAnswer{}, fmt.Errorf("answered %d", status)
	}
	return ParseVerdict(answer)
}

// ParseVerdict reads what a step says, whether at once or later. An unknown verdict, and two
// in one answer, are errors, never a pass.
func ParseVerdict(body []byte) (models.StepAnswer, error) {
	var v struct {
		Verdict models.StepVerdict `json:"verdict"`
		Reason  string             `json:"reason"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return models.StepAnswer{}, errors.New("the answer is not JSON")
	}
	if !once(body, "verdict") {
		return models.StepAnswer{}, errors.New("the answer has more than one verdict")
	}
	switch v.Verdict {
	case models.StepPass, models.StepBlock, models.StepDelete:
	default:
		return models.StepAnswer{}, errors.New("the answer has no verdict of pass, block or delete")
	}
	return models.StepAnswer{Verdict: v.Verdict, Reason: models.CleanReason(v.Reason)}, nil
}

// once tells whether a JSON object, known to be well formed, has a member at most once. Of
// repeated ones the decoder takes the last, whatever their case.
func once(object []byte, member string) bool {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return true // null, which has none
	}
	n := 0
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false
		}
		if name, ok := key.(string); ok && strings.EqualFold(name, member) {
			n++
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return false
		}
	}
	return n <= 1
}
