package models

import (
	"encoding/json"
	"time"
)

// Upload is one session of sending one file. Times are UTC; the zero time is
// "never". Sizes are bytes.
type Upload struct {
	ID         UploadID
	Tenant     Tenant
	Owner      Owner
	Collection string
	FileID     FileID
	ReplicaID  ReplicaID
	State      UploadState
	Geometry
	Size int64
	// Undeclared says that the opener did not tell the size: Size is 0 until S3 attests it,
	// PartSize is 0, PartCount the most there can be.
	Undeclared bool
	Checksum   Checksum // planned algorithm and type; Value only if declared
	Commit     CommitMode
	Identity   string // see IdentityOf; empty: nothing declared

	Store       StoreName
	Key         string
	S3UploadID  string // of the multipart upload; empty before it is begun, and for a single PUT
	ContentType string

	Attempt     int       // of Complete; fences its outcome
	LeaseUntil  time.Time // of the Complete in flight
	SignedUntil time.Time // latest expiry of any write URL ever signed
	ExpiresAt   time.Time
	HardExpires time.Time // no progress prolongs the session beyond it

	VersionID string   // what S3 attested, from completed on
	ETag      string   // opaque, no quotes
	Attested  Checksum // what S3 attested, from completed on

	ReasonCode Code
	Reason     string
	Contested  bool   // a second multipart may have been begun: the reap task looks for it
	ReusedFile FileID // the older file of the same identity, handed over instead of its own
	// Traceparent is the span that opened it, as W3C Trace Context writes it; "" where nothing
	// is traced.
	Traceparent string

	CreatedAt   time.Time
	UpdatedAt   time.Time
	CompletedAt time.Time
	ClosedAt    time.Time
}

// Open tells whether the session still takes bytes or waits for a commit.
func (u *Upload) Open() bool { return len(Uploads.Next[u.State]) > 0 }

// EmptyBody tells whether the object has no byte: its checksum is then known.
func (u *Upload) EmptyBody() bool { return u.Size == 0 && !u.Undeclared }

// File is the record that the user keeps.
type File struct {
	ID          FileID
	Tenant      Tenant
	Owner       Owner
	Collection  string
	Name        string
	Size        int64
	PartSize    int64 // the boundaries that a composite checksum is over
	ContentType string
	Checksum    Checksum // as attested once active; as planned or declared before
	Declared    bool     // the checksum was stated by the client, whole or by parts
	State       FileState
	Metadata    json.RawMessage // a JSON object
	VersionID   string
	ETag        string
	UploadID    UploadID // empty for an import
	Parent      FileID   // the file that this one is derived from; empty for most
	Guarded     bool     // counted in quotas
	ReasonCode  Code
	Reason      string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	ActivatedAt time.Time
	DeletedAt   time.Time
}

// Replica is a file's object in one store.
type Replica struct {
	ID        ReplicaID
	FileID    FileID
	Store     StoreName
	Key       string
	Primary   bool
	State     ReplicaState
	Size      int64
	VersionID string
	ETag      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Task is one piece of background work, leased and fenced.
type Task struct {
	ID           TaskID
	Kind         TaskKind
	Target       string // replica id for reap and replicate, file id for process
	FileID       FileID
	State        TaskState
	RunAt        time.Time
	Attempts     int
	MaxAttempts  int
	Manual       bool
	LeaseOwner   string
	LeaseUntil   time.Time
	LeaseVersion int64 // the fencing token
	TakenOver    bool  // by this claim, from a lease that had died
	LastError    string
	Traceparent  string // of the file's upload; told by the claim only
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// HistoryEntry is one transition or one physical delete.
type HistoryEntry struct {
	At        time.Time
	What      string // "upload", "file", "replica", "task", "object"
	ID        string
	From      string
	To        string
	Actor     string // "owner:…", "event", "complete", "repair", "reaper", …
	Why       string
	VersionID string
}

// Pin is a part's checksum as it was signed into its URL.
type Pin struct {
	Number int
	Digest []byte // raw
}

// Part is a part as S3 lists it.
type Part struct {
	Number   int
	Size     int64
	ETag     string // opaque, no quotes
	Checksum string // base64, of the upload's algorithm; empty where the store lists none
}
