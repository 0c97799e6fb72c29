package models

import "time"

// MetaUpload is the user-metadata key (x-amz-meta-…) that ties an object to its
// upload. Only with it is an object ours: existence and size prove nothing.
const MetaUpload = "berth-upload"

// NullVersion is S3's version id of an object in a bucket without versions.
const NullVersion = "null"

// ObjectSpec says what an object is to become when it is written.
type ObjectSpec struct {
	Key          string
	UploadID     UploadID // goes into the object's metadata
	ContentType  string
	Algorithm    Algorithm // "" declares none
	Type         ChecksumType
	StorageClass string
	SSEKMSKeyID  string
}

// CompleteSpec is what CompleteMultipartUpload is told.
type CompleteSpec struct {
	Key        string
	S3UploadID string
	Parts      []Part
	Size       int64
	Checksum   Checksum // the whole object's, if known; Algorithm and Type always
}

// Object is what a store attests of one version.
type Object struct {
	Key       string
	VersionID string // NullVersion where the bucket has none
	ETag      string // opaque, no quotes
	Size      int64
	Checksums []Checksum // all that it attests
	UploadID  UploadID   // from the metadata, "" if none
	Modified  time.Time
}

// OpenMultipart is a multipart upload that a store lists as begun and not ended.
type OpenMultipart struct {
	Key        string
	S3UploadID string
	Initiated  time.Time
}

// ObjectVersion is one entry of a store's list of versions.
type ObjectVersion struct {
	Key       string
	VersionID string // NullVersion where the bucket has none
	Latest    bool
	Marker    bool // a delete marker: no bytes, no ETag
	Size      int64
	ETag      string // opaque, no quotes
	Modified  time.Time
}

// VersionRef names one version. Without a version id it names nothing: a delete
// would then only hide.
type VersionRef struct {
	Key       string
	VersionID string
}

// DeleteResult is what became of one VersionRef. Err is nil when the version is gone,
// also when it never was.
type DeleteResult struct {
	Key       string
	VersionID string
	Err       *ObjectError
}

// AnySize, as the size of a part to sign, leaves its length to the client.
const AnySize = -1

// PartToSign asks for the URL of one part of exactly Size bytes and, where Digest is
// given, of exactly those bytes.
type PartToSign struct {
	Number int
	Size   int64
	Digest []byte // raw; nil: not pinned
}

// SignedForm is a POST policy form: a client sends the fields, then the file.
type SignedForm struct {
	URL    string
	Fields map[string]string
}

// SignedPart is one request that a client may send, once, with exactly those bytes.
type SignedPart struct {
	Number  int
	Size    int64
	Method  string
	URL     string
	Headers Headers // those that the client must send; not host, not content-length
}

// Header is one header of a request, its name in lower case.
type Header struct{ Name, Value string }

// Headers are the headers of a request, ascending by name. They are a list and no map
// since ten thousand parts have them in one answer.
type Headers []Header

// Get returns a header's value, "" if there is none.
func (h Headers) Get(name string) string {
	for _, x := range h {
		if x.Name == name {
			return x.Value
		}
	}
	return ""
}

// ObjectEvent is a notification, whatever its format was. Its size and etag are
// left out: stores disagree about them, S3 is asked instead.
type ObjectEvent struct {
	Store     StoreName
	Bucket    string
	Key       string // decoded
	VersionID string // "" if the event has none
	Created   bool   // an ObjectCreated family event
	Name      string // e.g. ObjectCreated:Put
	Sequencer string
	At        time.Time
}
