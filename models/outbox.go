package models

import (
	"encoding/json"
	"time"
)

// Event is something that happened, to be told to others at least once. Its id is the
// same however often it is sent.
type Event struct {
	ID           EventID
	Type         EventType
	FileID       FileID
	Tenant       Tenant
	Payload      json.RawMessage
	State        OutboxState
	NotBefore    time.Time
	SentTo       []string // targets that have it
	Attempts     int
	LeaseOwner   string
	LeaseVersion int64
	LastError    string
	Traceparent  string // the span that caused it; "" where nothing is traced
	CreatedAt    time.Time
}

// MaxSends is after how many attempts an event is a dead letter, for a person to send
// again: about a day and a half with Backoff.
const MaxSends = 40

// SendResult is how an attempt to send an event ended.
type SendResult struct {
	To        OutboxState // sent, pending (again at NotBefore), or failed
	NotBefore time.Time
	SentTo    []string
	Err       string
}

// AfterSend decides what follows an attempt. sentTo are all targets that have the event
// by now, err what the rest said.
func AfterSend(e Event, sentTo []string, err string, now time.Time) SendResult {
	r := SendResult{To: OutboxSent, SentTo: sentTo, Err: err}
	switch {
	case err == "":
	case e.Attempts >= MaxSends:
		r.To = OutboxFailed
	default:
		r.To, r.NotBefore = OutboxPending, now.Add(Backoff(e.Attempts))
	}
	return r
}
