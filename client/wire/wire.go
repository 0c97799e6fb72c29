// Package wire is the JSON that clients and the server exchange: plain structs, no
// behaviour. It imports the standard library only, so that a program which links
// the Go client links nothing of the server.
//
// The files under testdata are golden: the server's tests, the Go client's and the
// browser client's all read them.
package wire

import (
	"encoding/json"
	"time"
)

// Checksum is a value with its algorithm ("sha256", "crc64nvme", "crc32c") and type
// ("full_object", "composite"). Value is standard base64; a composite value ends in
// "-" and the number of parts.
type Checksum struct {
	Algorithm string `json:"algorithm"`
	Type      string `json:"type,omitempty"`
	Value     string `json:"value,omitempty"`
	// Declared is set in answers: the client stated the value, whole or by its parts.
	Declared *bool `json:"declared,omitempty"`
}

// OpenRequest is the body of POST /v1/uploads.
type OpenRequest struct {
	Collection  string          `json:"collection"`
	Name        string          `json:"name"`
	Size        int64           `json:"size"`
	ContentType string          `json:"content_type,omitempty"`
	Checksum    *Checksum       `json:"checksum,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Commit      string          `json:"commit,omitempty"`   // "auto", "deferred"; the collection's if empty
	Continue    bool            `json:"continue,omitempty"` // continue an open upload of the same identity
	Parent      string          `json:"parent,omitempty"`   // the file this one is derived from
}

// Upload is one session of sending one file. Sizes are bytes.
type Upload struct {
	ID            string    `json:"id"`
	FileID        string    `json:"file_id"`
	Collection    string    `json:"collection"`
	State         string    `json:"state"`
	Method        string    `json:"method"` // "single", "multipart"
	Size          int64     `json:"size"`
	PartSize      int64     `json:"part_size"`
	PartCount     int       `json:"part_count"`
	Checksum      Checksum  `json:"checksum"`
	UploadedParts *int      `json:"uploaded_parts,omitempty"`
	UploadedBytes *int64    `json:"uploaded_bytes,omitempty"`
	ExpiresAt     time.Time `json:"expires_at"`
	Reason        *Reason   `json:"reason,omitempty"`
	File          *File     `json:"file,omitempty"`

	Instant       bool         `json:"instant,omitempty"` // nothing to send: the file exists
	Resumed       bool         `json:"resumed,omitempty"` // an open upload is continued
	Parts         []SignedPart `json:"parts,omitempty"`   // opening only: the first URLs
	PartsExpireAt *time.Time   `json:"parts_expire_at,omitempty"`
}

// Reason says why a session or a file ended as it did.
type Reason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// SignedPart is one request to send as it is: URL, method and all of the headers,
// with a body of exactly Size bytes.
type SignedPart struct {
	Number  int               `json:"number"`
	Size    int64             `json:"size"`
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// SignRequest is the body of POST /v1/uploads/{id}/parts: a list, or a range.
type SignRequest struct {
	Parts []PartToSign `json:"parts,omitempty"`
	From  int          `json:"from,omitempty"`
	To    int          `json:"to,omitempty"`
}

// PartToSign names a part; Checksum is the base64 digest of its bytes in the
// upload's algorithm, and pins them.
type PartToSign struct {
	Number   int    `json:"number"`
	Checksum string `json:"checksum,omitempty"`
}

// SignResponse carries the URLs; none of them is good after ExpiresAt.
type SignResponse struct {
	Parts     []SignedPart `json:"parts"`
	ExpiresAt time.Time    `json:"expires_at"`
}

// Part is a part as S3 holds it.
type Part struct {
	Number   int    `json:"number"`
	Size     int64  `json:"size"`
	ETag     string `json:"etag"`
	Checksum string `json:"checksum,omitempty"`
}

// PartsResponse is what S3 holds, and what it lacks as ranges of part numbers.
type PartsResponse struct {
	Parts   []Part   `json:"parts"`
	Missing [][2]int `json:"missing"`
}

// CompletePart is a part as a client believes it sent it; compared, never trusted.
type CompletePart struct {
	Number   int    `json:"number"`
	ETag     string `json:"etag,omitempty"`
	Checksum string `json:"checksum,omitempty"`
}

// CompleteRequest is the optional body of POST /v1/uploads/{id}/complete.
type CompleteRequest struct {
	Parts    []CompletePart `json:"parts,omitempty"`
	Checksum *Checksum      `json:"checksum,omitempty"`
}

// CommitRequest is the body of POST /v1/uploads/{id}/commit.
type CommitRequest struct {
	Name        string          `json:"name"`
	ContentType string          `json:"content_type,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// File is the record that the user keeps.
type File struct {
	ID          string          `json:"id"`
	Collection  string          `json:"collection"`
	Name        string          `json:"name"`
	Size        int64           `json:"size"`
	ContentType string          `json:"content_type"`
	Checksum    Checksum        `json:"checksum"`
	PartSize    int64           `json:"part_size,omitempty"` // bytes; the boundaries that a composite checksum is over
	State       string          `json:"state"`
	Parent      string          `json:"parent,omitempty"` // the file that this one is derived from
	Metadata    json.RawMessage `json:"metadata"`
	VersionID   string          `json:"version_id,omitempty"`
	CreatedAt   time.Time       `json:"created_at"`
	ActivatedAt *time.Time      `json:"activated_at,omitempty"`
	Reason      *Reason         `json:"reason,omitempty"`
}

// PatchRequest is the body of PATCH /v1/files/{id}; an absent field stays.
type PatchRequest struct {
	Name     *string         `json:"name,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// FileList is a page of files.
type FileList struct {
	Files      []File `json:"files"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// ContentURL is a presigned GET of exactly one version.
type ContentURL struct {
	URL       string    `json:"url"`
	Method    string    `json:"method"`
	ExpiresAt time.Time `json:"expires_at"`
	Size      int64     `json:"size"`
	Checksum  Checksum  `json:"checksum"`
	PartSize  int64     `json:"part_size,omitempty"` // bytes; the boundaries that a composite checksum is over
	VersionID string    `json:"version_id"`
}

// HistoryEntry is one line of a file's timeline.
type HistoryEntry struct {
	At        time.Time `json:"at"`
	What      string    `json:"what"`
	ID        string    `json:"id"`
	From      string    `json:"from,omitempty"`
	To        string    `json:"to"`
	Actor     string    `json:"actor"`
	Why       string    `json:"why,omitempty"`
	VersionID string    `json:"version_id,omitempty"`
}

// History is a page of a file's timeline, oldest first.
type History struct {
	History    []HistoryEntry `json:"history"`
	NextCursor string         `json:"next_cursor,omitempty"`
}

// Problem is an RFC 9457 problem document. Details of a code (part numbers, limits)
// are extension members beside these.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code"`
	RequestID string `json:"request_id,omitempty"`
}

// Task is one piece of work in the background. Target is a replica's id for reap and
// replicate, a file's for process.
type Task struct {
	ID          string     `json:"id"`
	Kind        string     `json:"kind"`
	Target      string     `json:"target"`
	FileID      string     `json:"file_id"`
	State       string     `json:"state"`
	RunAt       time.Time  `json:"run_at"`
	Attempts    int        `json:"attempts"`
	MaxAttempts int        `json:"max_attempts"`
	Manual      bool       `json:"manual,omitempty"`
	LeaseOwner  string     `json:"lease_owner,omitempty"`
	LeaseUntil  *time.Time `json:"lease_until,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
}

// TaskList is a page of tasks.
type TaskList struct {
	Tasks      []Task `json:"tasks"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// Event is something that happened to a file, as it is told to others.
type Event struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	FileID    string          `json:"file_id"`
	State     string          `json:"state"`
	NotBefore time.Time       `json:"not_before"`
	SentTo    []string        `json:"sent_to"`
	Attempts  int             `json:"attempts"`
	LastError string          `json:"last_error,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	Data      json.RawMessage `json:"data"`
}

// EventList is a page of events.
type EventList struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"next_cursor,omitempty"`
}

// StepResult is the body of POST /v1/tasks/{id}/result: what a processing step says of a
// file, "pass", "block" or "delete".
type StepResult struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}
