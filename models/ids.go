package models

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Ids are prefixed UUIDv7 text (RFC 9562): time-ordered, so that inserts land at
// the right edge of their index, and named by type, so that one kind cannot be
// passed for another. Of the ids that one process makes each is greater than all before.
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
	at := tick()
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], at<<4)
	copy(b[:6], head[:6])
	binary.BigEndian.PutUint16(b[6:8], 0x7000|uint16(at&0x0fff)) // #nosec G115 -- twelve bits
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return prefix + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// lastTick is of the newest id that this process made.
var lastTick atomic.Uint64

// tick returns the time in 4096ths of a millisecond since 1970, which is UUIDv7's 48 bits
// of milliseconds and, as the fraction of one (RFC 9562, section 6.2, method 3), the 12
// bits that follow its version. No two calls get the same, and a clock that is set back
// does not go back here.
func tick() uint64 {
	for {
		now := time.Now()
		at := uint64(now.UnixMilli())<<12 | uint64(now.Nanosecond()%1e6)<<12/1e6 // #nosec G115 -- after 1970
		last := lastTick.Load()
		if at <= last {
			at = last + 1
		}
		if lastTick.CompareAndSwap(last, at) {
			return at
		}
	}
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
