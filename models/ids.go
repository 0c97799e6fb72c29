package models

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Ids are prefixed UUIDv7 text (RFC 9562): time-ordered, so that inserts land at
// the right edge of their index, and named by type, so that one kind cannot be
// passed for another.
type (
	// UploadID names one session of sending one file: upl_….
	UploadID string
	// FileID names the record that the user keeps: fil_….
	FileID string
	// ReplicaID names a file's object in one store: rep_….
	ReplicaID string
	// TaskID names one piece of background work: tsk_….
	TaskID string
	// EventID names one outbox event: evt_….
	EventID string
	// RunID names one reconciliation run: run_….
	RunID string
)

// StoreName is the configured name of a store: one bucket on one endpoint.
type StoreName string

// Tenant and Owner say who a file belongs to; both come from the caller's token.
type (
	Tenant string
	Owner  string
)

// NewUploadID, NewFileID and the rest make a fresh id.
func NewUploadID() UploadID   { return UploadID(newID("upl_")) }
func NewFileID() FileID       { return FileID(newID("fil_")) }
func NewReplicaID() ReplicaID { return ReplicaID(newID("rep_")) }
func NewTaskID() TaskID       { return TaskID(newID("tsk_")) }
func NewEventID() EventID     { return EventID(newID("evt_")) }
func NewRunID() RunID         { return RunID(newID("run_")) }

// ParseUploadID returns the id, or NOT_FOUND: an id that cannot exist is answered
// as one that does not, so that nothing is learnt from the difference.
func ParseUploadID(s string) (UploadID, error) { return parseID[UploadID]("upl_", "upload", s) }

// ParseFileID is ParseUploadID for files.
func ParseFileID(s string) (FileID, error) { return parseID[FileID]("fil_", "file", s) }

// ParseReplicaID is ParseUploadID for replicas.
func ParseReplicaID(s string) (ReplicaID, error) { return parseID[ReplicaID]("rep_", "replica", s) }

// ParseTaskID is ParseUploadID for tasks.
func ParseTaskID(s string) (TaskID, error) { return parseID[TaskID]("tsk_", "task", s) }

// ParseEventID is ParseUploadID for outbox events.
func ParseEventID(s string) (EventID, error) { return parseID[EventID]("evt_", "event", s) }

func parseID[T ~string](prefix, what, s string) (T, error) {
	if !validID(prefix, s) {
		return "", NotFound(what)
	}
	return T(s), nil
}

func validID(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != 36 {
		return false
	}
	for i := range len(rest) {
		c := rest[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

func newID(prefix string) string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(fmt.Sprintf("models: no randomness: %v", err)) // crypto/rand never fails on supported systems
	}
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli())) // #nosec G115 -- after 1970
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return prefix + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// NewKey makes the object key of one upload: `<prefix><collection>/<32 hex
// random>[.<ext>]`. It never holds anything of the client's file name but a short
// extension of letters and digits, and it is unique per upload.
func NewKey(prefix, collection, ext string) string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(fmt.Sprintf("models: no randomness: %v", err))
	}
	key := prefix + collection + "/" + hex.EncodeToString(b[:])
	if ext != "" {
		key += "." + ext
	}
	return key
}
