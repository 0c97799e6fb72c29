package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"

	"berth/client/wire"
	"berth/models"
)

// Error is what the server answered in place of a result. Code is one of the codes
// of the public contract (models.Code…); Details are the extension members of the
// problem document.
type Error struct {
	Op        string
	Status    int
	Code      models.Code
	Message   string
	RequestID string
	Details   map[string]json.RawMessage
}

func (e *Error) Error() string {
	s := e.Op + ": "
	if e.Code != "" {
		s += string(e.Code) + ": "
	}
	if e.Message != "" {
		s += e.Message
	} else {
		s += fmt.Sprintf("HTTP status %d", e.Status)
	}
	if e.RequestID != "" {
		s += " (request " + e.RequestID + ")"
	}
	return s
}

// Code returns the code that an error of the server carries, "" for any other.
func Code(err error) models.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Faults that the client itself finds.
var (
	// ErrChanged: the file is not, or is no longer, the one whose upload was begun.
	ErrChanged = errors.New("the file has changed")
	// ErrCorrupt: what was read is not what the record says; nothing was put in place.
	ErrCorrupt = errors.New("the content does not match its checksum")
	// ErrExists: the target of Get exists, and overwriting was not asked for.
	ErrExists = errors.New("the file exists")
	// ErrBusy: another process is writing the same target.
	ErrBusy = errors.New("another process is at it")
	// ErrNotActive: the bytes arrived, and the file is not active in time.
	ErrNotActive = errors.New("the file is not active yet")
)

// StateError: a file or an upload ended otherwise than it should.
type StateError struct {
	ID     string
	State  string
	Reason *wire.Reason
}

func (e *StateError) Error() string {
	s := e.ID + " is " + e.State
	if e.Reason != nil {
		s += ": " + e.Reason.Code
		if e.Reason.Message != "" {
			s += ": " + e.Reason.Message
		}
	}
	return s
}

// Code is the reason's code.
func (e *StateError) Code() models.Code {
	if e.Reason == nil {
		return ""
	}
	return models.Code(e.Reason.Code)
}

// problemMembers are the members of a problem document that are no details.
var problemMembers = []string{"type", "title", "status", "detail", "code", "request_id", "instance"}

// maxProblem bounds how much of an error answer is read, in bytes: a problem that names
// 10,000 parts fits.
const maxProblem = 1 << 20

// problem makes the Error of an answer that is none of 2xx. It takes whatever a
// proxy in between may answer, too.
func problem(op string, r *http.Response) *Error {
	e := &Error{Op: op, Status: r.StatusCode, RequestID: r.Header.Get("X-Request-Id")}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxProblem))
	if err != nil {
		return e
	}
	switch t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); t {
	case "application/problem+json", "application/json":
	default:
		return e
	}
	var p wire.Problem
	if json.Unmarshal(raw, &p) != nil {
		return e
	}
	e.Code, e.Message = models.Code(p.Code), p.Detail
	if e.Message == "" {
		e.Message = p.Title
	}
	if p.RequestID != "" {
		e.RequestID = p.RequestID
	}
	if json.Unmarshal(raw, &e.Details) == nil {
		for _, m := range problemMembers {
			delete(e.Details, m)
		}
	}
	return e
}

// partNumbers reads the parts that a problem names, as numbers, as ranges
// [from,to] or as objects with a number, under any of the names. Numbers outside
// 1..count are left out.
func (e *Error) partNumbers(count int, names ...string) []int {
	var out []int
	add := func(from, to int) {
		for n := max(from, 1); n <= min(to, count); n++ {
			out = append(out, n)
		}
	}
	for _, name := range names {
		raw, ok := e.Details[name]
		if !ok {
			continue
		}
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			list = []json.RawMessage{raw} // one part by itself
		}
		for _, item := range list {
			var n int
			var pair [2]int
			var object struct {
				Number int `json:"number"`
			}
			switch {
			case json.Unmarshal(item, &n) == nil:
				add(n, n)
			case json.Unmarshal(item, &pair) == nil:
				add(pair[0], pair[1])
			case json.Unmarshal(item, &object) == nil:
				add(object.Number, object.Number)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
