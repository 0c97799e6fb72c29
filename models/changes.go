package models

import (
	"encoding/json"
	"time"
)

// Whose says whose rows must be. The zero value is the system itself, which
// acts on a row by its id alone; a caller always has both.
type Whose struct {
	Tenant Tenant
	Owner  Owner
	All    bool // of the tenant, whoever's: an admin looks
}

// Whose returns the rows that a caller may touch.
func (c Caller) Whose() Whose { return Whose{Tenant: c.Tenant, Owner: c.Owner} }

// Actor names a caller in the history.
func (c Caller) Actor() string { return "owner:" + string(c.Owner) }

// Actors of the system in the history.
const (
	ActorEvent     = "event"
	ActorRepair    = "repair"
	ActorReaper    = "reaper"
	ActorReconcile = "reconcile"
	ActorStep      = "step"
)

// Opening is what one transaction stores for a new upload: the intent, the owner's
// reservation and the task that will clean up, before anything exists at S3.
type Opening struct {
	Upload  Upload
	File    File
	Replica Replica
	Reap    Task

	Collection *Collection
	Continue   bool // continue an open upload of the same identity where nothing dedupes

	IdempotencyKey    string // "" is none
	RequestHash       []byte
	IdempotencyExpiry time.Time

	Derive *Derivation // of a file that a step sends; nil for all others

	GrantID    string // counted if GrantFiles > 0
	GrantFiles int64
	GrantEnds  time.Time

	Grace time.Duration
	Actor string
	Now   time.Time
}

// OpenOutcome is what the transaction of open found.
type OpenOutcome string

const (
	OpenedNew               OpenOutcome = "new"
	OpenedContinued         OpenOutcome = "continued"          // an open upload of the same identity
	OpenedDuplicate         OpenOutcome = "duplicate"          // a living file of the same identity
	OpenedInstant           OpenOutcome = "instant"            // the same, where the collection reuses it and the key stands for it
	OpenedReplayed          OpenOutcome = "replayed"           // the same idempotency key and body
	OpenedReplayedContinued OpenOutcome = "replayed_continued" // and the first answer was a continued one
	OpenedReplayedInstant   OpenOutcome = "replayed_instant"   // and the first answer was the file itself
	OpenedConflict          OpenOutcome = "conflict"           // the same key, another body
	OpenedOverQuota         OpenOutcome = "over_quota"
	OpenedOverGrant         OpenOutcome = "over_grant"
	OpenedTooMany           OpenOutcome = "too_many" // open uploads
)

// Importing registers an object that a store holds already: its file and replica, as they
// are to stand, and the policy that it is held against.
type Importing struct {
	File       File
	Replica    Replica
	Collection *Collection
	Identity   string // see IdentityOf; empty: the collection does not dedupe, or S3 attests nothing
	Actor      string
	Now        time.Time
}

// ImportOutcome is what became of an import.
type ImportOutcome string

const (
	Imported        ImportOutcome = "imported"
	ImportedBefore  ImportOutcome = "before"    // the same version, for the same owner and collection
	ImportKnown     ImportOutcome = "known"     // the key is another file's of the tenant
	ImportForeign   ImportOutcome = "foreign"   // the key is another tenant's
	ImportDuplicate ImportOutcome = "duplicate" // a living file of the same identity
	ImportOverQuota ImportOutcome = "over_quota"
	ImportCondemned ImportOutcome = "condemned" // the version is being deleted as an orphan
)

// KeyTaking takes an idempotency key for one request of its owner.
type KeyTaking struct {
	Tenant Tenant
	Owner  Owner
	Key    string
	Hash   []byte // of what is asked for
	// Lease is until when the request is believed to run. It is what tells this taking from
	// a later one, whose lease ends later.
	Lease   time.Time
	Expires time.Time // the end of the key
	Now     time.Time
}

// KeyOutcome is what became of taking a key.
type KeyOutcome string

const (
	KeyTaken    KeyOutcome = "taken"
	KeyAnswered KeyOutcome = "answered" // the same request has its answer
	KeyRunning  KeyOutcome = "running"  // the same request has none yet
	KeyConflict KeyOutcome = "conflict" // the key stands for another request
)

// KeptAnswer is an answer as it went out, without URLs that let anybody do anything.
type KeptAnswer struct {
	Status   int
	Location string // "" is none
	Body     []byte // JSON
	// RunsUntil is the end of the lease where there is no answer yet.
	RunsUntil time.Time
}

// Signing is what is stored before URLs leave the house: the pins, and how long the
// last URL can be used.
type Signing struct {
	ID          UploadID
	Whose       Whose
	Pins        []Pin
	SignedUntil time.Time
	ExpiresAt   time.Time // where the session's end slides to, if that is later
	Now         time.Time
}

// Attestation is S3's word for one version, to be recorded.
type Attestation struct {
	UploadID UploadID
	Seen     Upload // as it was verified: what was expected of it must still stand in the row
	Object   Object
	Checksum Checksum // what is recorded: one of Object.Checksums, or none
	Declared bool     // the client stated it, whole or by parts
	Steps    bool     // the collection has a processing chain
	// Collection is the policy that is settled now where it could not be at open: the size
	// that nobody declared, the identity that only S3's checksum tells.
	Collection *Collection
	Actor      string
	// Traceparent is the span that verified it: what is told of the file is of its trace.
	Traceparent string
	Now         time.Time
}

// AttestOutcome is what became of an attestation.
type AttestOutcome string

const (
	Attested AttestOutcome = "attested"
	// AttestStale: what is declared or pinned is not what was looked at any more. Look again.
	AttestStale      AttestOutcome = "stale"
	AttestLost       AttestOutcome = "lost"    // the upload was not waiting for it any more
	AttestRefused    AttestOutcome = "refused" // rejected, with the code in the row
	AttestHandedOver AttestOutcome = "reused"  // the older file of the same identity stands in
)

// Rejection closes an upload whose bytes are not those that were declared.
type Rejection struct {
	UploadID  UploadID
	Code      Code
	Reason    string
	VersionID string // what was looked at
	Reused    FileID // the older file that is handed over instead; "" for none
	Actor     string
	Now       time.Time
}

// Closing ends an upload that will not become a file.
type Closing struct {
	ID      UploadID
	Whose   Whose
	To      UploadState // aborted or expired
	Code    Code
	Reason  string
	Attempt int // of Complete, that the row must still have; 0: any
	// PastDeadline demands that the session is past its end, as the row stands now.
	PastDeadline bool
	// From demands the state that the caller saw; "" takes any that may end so.
	From  UploadState
	Actor string
	Now   time.Time
}

// Committing attaches a completed upload to what the user keeps.
type Committing struct {
	ID          UploadID
	Whose       Whose
	Name        string
	ContentType string // "" keeps it
	Metadata    json.RawMessage
	Steps       bool
	Actor       string
	Now         time.Time
}

// FilePatch changes what may change of a file; nil stays.
type FilePatch struct {
	Name     *string
	Metadata json.RawMessage
	Now      time.Time
}

// FileFilter selects a page of files, newest first.
type FileFilter struct {
	Whose      Whose
	Collection string
	State      FileState
	Before     FileID // exclusive; "" begins at the newest
	Limit      int
}

// ForeignVersion is a version under a known key that is not ours.
type ForeignVersion struct {
	Store     StoreName
	Key       string
	VersionID string
	ReplicaID ReplicaID
	FileID    FileID
	Actor     string // who saw it; "": ActorEvent
}
