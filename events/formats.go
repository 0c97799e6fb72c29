package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"berth/models"
)

// Bounds of one notification. SQS takes no more than 1 MiB, SNS and EventBridge less.
const (
	MaxBody    = 1 << 20 // bytes
	maxDepth   = 32      // of JSON; S3's records have 5
	maxRecords = 10_000
	maxKey     = 1024 // bytes; S3's limit
)

// Batch is what one notification says.
type Batch struct {
	Events  []models.ObjectEvent // their Store is for the caller to fill in
	Test    bool                 // the store tried whether the queue works
	Skipped int                  // records of keys that cannot be any of ours
	Bad     []error              // records that were not understood, beside those that were
}

// Parse reads a notification: S3 records of major version 2, alone, in an SNS envelope
// or as EventBridge's event, R2's and B2's own forms, and test events. The error is for
// a body of which nothing is understood.
//
// Sizes and etags are not read: stores disagree about them (numbers, strings, 0,
// quotes), so S3 is asked instead, and no form of them can break a record.
func Parse(body []byte) (Batch, error) {
	var b Batch
	if len(body) > MaxBody {
		return b, fmt.Errorf("events: parse: has %d bytes, more than %d", len(body), MaxBody)
	}
	if depth(body) > maxDepth {
		return b, fmt.Errorf("events: parse: is nested deeper than %d", maxDepth)
	}
	if err := b.parse(body, 0); err != nil {
		return Batch{}, fmt.Errorf("events: parse: %w", err)
	}
	return b, nil
}

// envelope holds what tells the forms apart. Nothing in it has a type yet, so that a
// member of a strange type breaks its own form only.
type envelope struct {
	Records json.RawMessage `json:"Records"` // S3

	Event text `json:"Event"` // S3's test event

	Type    text            `json:"Type"` // SNS
	Message json.RawMessage `json:"Message"`

	DetailType text            `json:"detail-type"` // EventBridge
	Source     text            `json:"source"`
	Time       text            `json:"time"`
	Detail     json.RawMessage `json:"detail"`

	Action    text            `json:"action"` // R2
	Bucket    text            `json:"bucket"`
	Object    json.RawMessage `json:"object"`
	EventTime text            `json:"eventTime"`

	Events json.RawMessage `json:"events"` // B2
}

func (b *Batch) parse(body []byte, wrapped int) error {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return errors.New("is not a JSON object")
	}
	switch {
	case e.Records != nil:
		return b.list(e.Records, s3Record)
	case strings.HasSuffix(string(e.Event), "TestEvent"):
		b.Test = true
		return nil
	case e.Type == "Notification" && e.Message != nil:
		// SNS without raw delivery. EventBridge may stand behind it, so twice.
		if wrapped == 2 {
			return errors.New("is an envelope in an envelope in an envelope")
		}
		var inner string
		if err := json.Unmarshal(e.Message, &inner); err != nil {
			return errors.New("is an SNS notification whose message is not text")
		}
		return b.parse([]byte(inner), wrapped+1)
	case e.Type != "" && e.Message != nil:
		return fmt.Errorf("is an SNS message of type %.40q; confirm the subscription by hand", string(e.Type))
	case e.DetailType != "" && e.Detail != nil:
		return b.one(eventBridge(e))
	case e.Action != "" && e.Object != nil:
		return b.one(r2(e))
	case e.Events != nil:
		return b.list(e.Events, b2Event)
	}
	return errors.New("is no notification that is known")
}

// one takes the only record of a notification: if it is bad, the whole is.
func (b *Batch) one(e models.ObjectEvent, err error) error {
	if err != nil {
		return err
	}
	b.add(e)
	return nil
}

// list takes each record by itself: a bad one takes no other with it.
func (b *Batch) list(raw json.RawMessage, read func(json.RawMessage) (models.ObjectEvent, error)) error {
	var records []json.RawMessage
	if err := json.Unmarshal(raw, &records); err != nil {
		return errors.New("has records that are not a list")
	}
	if len(records) > maxRecords {
		return fmt.Errorf("has more than %d records", maxRecords)
	}
	for i, r := range records {
		e, err := read(r)
		switch {
		case errors.Is(err, errTest):
			b.Test = true
		case err != nil:
			b.Bad = append(b.Bad, fmt.Errorf("record %d: %w", i, err))
		default:
			b.add(e)
		}
	}
	return nil
}

// add leaves out keys that no database text can hold; Berth makes none.
func (b *Batch) add(e models.ObjectEvent) {
	if strings.IndexByte(e.Key, 0) >= 0 || !utf8.ValidString(e.Key) || len(e.Key) > maxKey {
		b.Skipped++
		return
	}
	b.Events = append(b.Events, e)
}

// errTest marks a record that only tries the way.
var errTest = errors.New("test event")

// s3Record reads one member of Records. Unknown members are ignored.
func s3Record(raw json.RawMessage) (models.ObjectEvent, error) {
	var r struct {
		EventVersion text `json:"eventVersion"`
		EventSource  text `json:"eventSource"`
		EventName    text `json:"eventName"`
		EventTime    text `json:"eventTime"`
		S3           struct {
			Bucket struct {
				Name text `json:"name"`
			} `json:"bucket"`
			Object struct {
				Key       text `json:"key"`
				VersionID text `json:"versionId"`
				Sequencer text `json:"sequencer"`
			} `json:"object"`
		} `json:"s3"`
	}
	var e models.ObjectEvent
	if err := json.Unmarshal(raw, &r); err != nil {
		return e, errors.New("is not a record of S3")
	}
	if major, _, _ := strings.Cut(string(r.EventVersion), "."); major != "2" {
		return e, fmt.Errorf("has version %.20q; only major version 2 is known", string(r.EventVersion))
	}
	name, prefixed := strings.CutPrefix(string(r.EventName), "s3:")
	if name == "TestEvent" {
		return e, errTest
	}
	key := string(r.S3.Object.Key)
	if formEncoded(string(r.EventSource), prefixed) {
		key = decodeKey(key)
	}
	e = models.ObjectEvent{
		Bucket: string(r.S3.Bucket.Name), Key: key, VersionID: version(r.S3.Object.VersionID),
		Created: strings.HasPrefix(name, "ObjectCreated:"), Name: name,
		Sequencer: string(r.S3.Object.Sequencer), At: when(r.EventTime),
	}
	return e, complete(e)
}

// formEncoded tells whether a source encodes keys as forms do. AWS and MinIO do; Ceph
// names itself and does not; versitygw calls itself AWS, but only it has "s3:" before
// the names of events. A wrong guess loses nothing of Berth's: its own keys are made of
// letters, digits and . _ - /, which read the same either way (MinIO's %2F needs
// decoding, and MinIO names itself).
func formEncoded(source string, prefixed bool) bool {
	switch source {
	case "minio:s3":
		return true
	case "ceph:s3":
		return false
	}
	return !prefixed
}

// decodeKey leaves what is not encoded as it is.
func decodeKey(key string) string {
	if d, err := url.QueryUnescape(key); err == nil {
		return d
	}
	return key
}

// reasons are EventBridge's words for what S3's event names say.
var reasons = map[string]string{
	"PutObject": "Put", "POST Object": "Post", "CopyObject": "Copy", "CompleteMultipartUpload": "CompleteMultipartUpload",
	"DeleteObject": "Delete", "Lifecycle Expiration": "LifecycleExpiration",
}

// eventBridge reads S3's event as EventBridge tells it. Its keys are not encoded.
func eventBridge(env envelope) (models.ObjectEvent, error) {
	var d struct {
		Bucket struct {
			Name text `json:"name"`
		} `json:"bucket"`
		Object struct {
			Key       text `json:"key"`
			VersionID text `json:"version-id"`
			Sequencer text `json:"sequencer"`
		} `json:"object"`
		Reason text `json:"reason"`
	}
	var e models.ObjectEvent
	if env.Source != "aws.s3" {
		return e, fmt.Errorf("is an EventBridge event of %.40q, not of aws.s3", string(env.Source))
	}
	if err := json.Unmarshal(env.Detail, &d); err != nil {
		return e, errors.New("has a detail that is not S3's")
	}
	reason := string(d.Reason)
	if short, ok := reasons[reason]; ok {
		reason = short
	}
	e = models.ObjectEvent{
		Bucket: string(d.Bucket.Name), Key: string(d.Object.Key), VersionID: version(d.Object.VersionID),
		Sequencer: string(d.Object.Sequencer), At: when(env.Time),
	}
	switch env.DetailType {
	case "Object Created":
		e.Created, e.Name = true, "ObjectCreated:"+reason
	case "Object Deleted":
		e.Name = "ObjectRemoved:" + reason
	default:
		e.Name = strings.ReplaceAll(string(env.DetailType), " ", "")
	}
	return e, complete(e)
}

// r2 reads Cloudflare's form. It has no versions and no encoding.
func r2(env envelope) (models.ObjectEvent, error) {
	var o struct {
		Key text `json:"key"`
	}
	if err := json.Unmarshal(env.Object, &o); err != nil {
		return models.ObjectEvent{}, errors.New("has an object that is not R2's")
	}
	e := models.ObjectEvent{Bucket: string(env.Bucket), Key: string(o.Key), At: when(env.EventTime)}
	switch env.Action {
	case "PutObject", "CopyObject", "CompleteMultipartUpload":
		e.Created = true
		e.Name = "ObjectCreated:" + reasons[string(env.Action)]
	case "DeleteObject":
		e.Name = "ObjectRemoved:Delete"
	default:
		e.Name = string(env.Action)
	}
	return e, complete(e)
}

// b2Event reads Backblaze's form. Its object version id is the one of its S3 API.
func b2Event(raw json.RawMessage) (models.ObjectEvent, error) {
	var r struct {
		EventType       text        `json:"eventType"`
		EventTimestamp  json.Number `json:"eventTimestamp"` // milliseconds
		BucketName      text        `json:"bucketName"`
		ObjectName      text        `json:"objectName"`
		ObjectVersionID text        `json:"objectVersionId"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return models.ObjectEvent{}, errors.New("is not an event of B2")
	}
	name := strings.TrimPrefix(string(r.EventType), "b2:")
	if strings.HasPrefix(name, "TestEvent") {
		return models.ObjectEvent{}, errTest
	}
	e := models.ObjectEvent{
		Bucket: string(r.BucketName), Key: string(r.ObjectName), VersionID: version(r.ObjectVersionID),
		Created: strings.HasPrefix(name, "ObjectCreated:"), Name: name,
	}
	if ms, err := r.EventTimestamp.Int64(); err == nil {
		e.At = time.UnixMilli(ms).UTC()
	}
	return e, complete(e)
}

// complete tells what an event lacks.
func complete(e models.ObjectEvent) error {
	switch {
	case e.Name == "":
		return errors.New("has no event name")
	case e.Bucket == "":
		return errors.New("has no bucket")
	case e.Key == "":
		return errors.New("has no key")
	}
	return nil
}

// version takes "" and "null" for none: stores give both in buckets that have versions,
// too. Whoever settles asks S3 for the newest then, and learns the right one.
func version(t text) string {
	if t == models.NullVersion {
		return ""
	}
	return string(t)
}

// when is the zero time for what is no RFC 3339 time.
func when(t text) time.Time {
	at, err := time.Parse(time.RFC3339Nano, string(t))
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

// text is a JSON string, or a number as it stands; "" for anything else.
type text string

// UnmarshalJSON never fails.
func (t *text) UnmarshalJSON(raw []byte) error {
	*t = ""
	switch c := raw[0]; {
	case c == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err == nil {
			*t = text(s)
		}
	case c == '-' || c >= '0' && c <= '9':
		*t = text(raw)
	}
	return nil
}

// depth is how deep brackets nest outside of strings.
func depth(body []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return deepest
}

// reason is why a message is not understood, for logs: one line, bounded.
func reason(err error) string {
	s := string(bytes.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, []byte(err.Error())))
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
