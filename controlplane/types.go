package controlplane

import (
	"encoding/json"
	"time"

	"berth/models"
)

// OpenRequest asks for a session to send one file. Size is in bytes.
type OpenRequest struct {
	Collection string
	Name       string
	Size       int64
	// SizeUnknown opens an upload whose size is settled when S3 attests it; Size and
	// Checksum are then nothing.
	SizeUnknown bool
	Method      models.Method // with SizeUnknown only: how the bytes will come
	ContentType string
	Checksum    *models.Checksum // declared; Type "" is the one S3 attests for the method
	Metadata    json.RawMessage  // a JSON object, or nil
	Commit      models.CommitMode
	Continue    bool
	// Parent is the file that this one is derived from; only a processing step may say so.
	Parent models.FileID
	// IdempotencyKey and RequestHash are of the raw request; an empty key is none.
	IdempotencyKey string
	RequestHash    []byte
}

// UploadView is an upload as its owner sees it.
type UploadView struct {
	models.Upload
	File     *models.File // once there is something to show: committed, or instant
	Progress *Progress    // of an open multipart upload
	// Parts are the first URLs, in the answer to open only.
	Parts         []models.SignedPart
	PartsExpireAt time.Time
	Instant       bool // nothing to send: the file exists already
	Resumed       bool // an open upload is continued
	Replayed      bool // the answer to a repeated Idempotency-Key
}

// Progress is what S3 holds of a multipart upload.
type Progress struct {
	Parts int
	Bytes int64
}

// SignRequest asks for part URLs: a list, or the range From..To, both included.
type SignRequest struct {
	Parts    []PartRequest
	From, To int
}

// PartRequest names a part to sign; Checksum pins its bytes: base64, of the upload's
// algorithm, or empty.
type PartRequest struct {
	Number   int
	Checksum string
}

// Signed are part URLs, none of them good after ExpiresAt.
type Signed struct {
	Parts     []models.SignedPart
	ExpiresAt time.Time
}

// PartList is what S3 holds of an upload, and the ranges of numbers it lacks.
type PartList struct {
	Parts   []models.Part
	Missing [][2]int
}

// CompleteRequest is what a client believes it sent; compared with what S3 lists,
// never trusted. Both fields are optional.
type CompleteRequest struct {
	Parts    []models.Part
	Checksum *models.Checksum
}

// CommitRequest attaches a completed upload.
type CommitRequest struct {
	Name        string
	ContentType string // "" keeps the type
	Metadata    json.RawMessage
}

// ImportRequest registers an object that lies in a store already. Owner is of the
// caller's tenant.
type ImportRequest struct {
	Store       models.StoreName // "" is the collection's
	Key         string
	VersionID   string // "" is the current one
	Owner       models.Owner
	Collection  string
	Name        string
	ContentType string
	Metadata    json.RawMessage  // a JSON object, or nil
	Size        *int64           // bytes; nil: as the store says
	Checksum    *models.Checksum // that the store must attest; nil: none
}

// PatchRequest changes what may change of a file; nil stays.
type PatchRequest struct {
	Name     *string
	Metadata json.RawMessage
}

// FileQuery selects a page of the caller's files, newest first.
type FileQuery struct {
	Collection string
	State      models.FileState
	All        bool   // whoever's of the tenant, of those that are blocked; for admins
	Cursor     string // opaque, from the page before
	Limit      int    // 1 to 1000; 0 is 100
}

// FilePage is one page of files.
type FilePage struct {
	Files      []models.File
	NextCursor string
}

// HistoryPage is one page of a file's timeline, oldest first.
type HistoryPage struct {
	Entries    []models.HistoryEntry
	NextCursor string
}

// ReadURL is a presigned GET of exactly one version.
type ReadURL struct {
	URL       string
	ExpiresAt time.Time
	File      models.File
	PartSize  int64 // bytes; the boundaries that a composite checksum is over
}
