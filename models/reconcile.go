package models

import (
	"slices"
	"strings"
	"time"
)

// MinReconcileAge is the youngest cut-off that reconcile takes. Below it, what a client
// or a server is just doing would be called an orphan; clocks may differ by a quarter of
// an hour (S3's own allowance). It may be raised, never lowered.
const MinReconcileAge = time.Hour

// DefaultReconcileAge is how old something must be before reconcile calls it an orphan.
const DefaultReconcileAge = 24 * time.Hour

// ReasonDetached is the reason of a replica that was forgotten on purpose: its row is
// deleted, its object stays and is no longer ours.
const ReasonDetached = "detached"

// FindingKind is what is wrong with one thing.
type FindingKind string

const (
	FindOrphanObject    FindingKind = "orphan_object"    // a version under a key of our shape that no row has
	FindOrphanMultipart FindingKind = "orphan_multipart" // a multipart upload that no session will complete
	FindMissingObject   FindingKind = "missing_object"   // a row has a version that S3 has not
	FindForeignVersion  FindingKind = "foreign_version"  // under a living key, and not the recorded version
	FindCorrupt         FindingKind = "corrupt"          // the recorded version, with another size or ETag
	FindLeftover        FindingKind = "leftover"         // of a replica that should be gone
	FindCounterDrift    FindingKind = "counter_drift"    // a counter that is not what the rows say
	FindUnknown         FindingKind = "unknown"          // under our prefix, not of our shape: never touched
)

// FindingKinds lists every kind, in the order of reports.
var FindingKinds = []FindingKind{FindMissingObject, FindCorrupt, FindOrphanObject, FindOrphanMultipart,
	FindForeignVersion, FindLeftover, FindCounterDrift, FindUnknown}

// Mend is what --repair does about a finding.
type Mend string

const (
	MendNone    Mend = ""        // reported only
	MendDelete  Mend = "delete"  // this version, by its id
	MendAbort   Mend = "abort"   // this multipart upload
	MendReap    Mend = "reap"    // a reap task of the replica is ensured
	MendForeign Mend = "foreign" // noted as foreign, and reaped
)

// Finding is one thing that rows and store do not agree about.
type Finding struct {
	Kind       FindingKind `json:"kind"`
	Key        string      `json:"key,omitempty"`
	VersionID  string      `json:"version_id,omitempty"`
	S3UploadID string      `json:"s3_upload_id,omitempty"`
	Marker     bool        `json:"delete_marker,omitempty"`
	Size       int64       `json:"size,omitempty"` // bytes
	At         time.Time   `json:"at,omitzero"`    // by the store's clock
	ReplicaID  ReplicaID   `json:"replica_id,omitempty"`
	FileID     FileID      `json:"file_id,omitempty"`
	FileState  FileState   `json:"file_state,omitempty"`
	Why        string      `json:"why,omitempty"`
	Failure    string      `json:"failure,omitempty"` // why mending did not succeed
	Mend       Mend        `json:"-"`
}

// KnownKey is what the rows say of one key: its replica, the file's state and, of a
// primary replica, the session that writes it.
type KnownKey struct {
	Replica
	Reason      string
	FileState   FileState
	UploadID    UploadID // "" if there is no upload
	UploadState UploadState
	S3UploadID  string
}

// sessionOpen tells whether an upload may still write at the key.
func (k *KnownKey) sessionOpen() bool {
	return k.UploadID != "" && len(Uploads.Next[k.UploadState]) > 0
}

// Judge decides about what lies in one store. Cutoff is the youngest time, by the
// store's own clock, at which a thing may be called left behind.
type Judge struct {
	Prefix string // that Berth owns in the bucket
	Cutoff time.Time
}

// old tells whether a time is before the cut-off. A time that the store does not tell
// is not: what has no age is left alone.
func (j Judge) old(t time.Time) bool { return !t.IsZero() && t.Before(j.Cutoff) }

// Version judges one version or delete marker under a key of which the rows say k; nil:
// nothing. ok is false where nothing is wrong, or it is too young to tell.
func (j Judge) Version(k *KnownKey, v ObjectVersion) (f Finding, ok bool) {
	f = Finding{Key: v.Key, VersionID: v.VersionID, Marker: v.Marker, Size: v.Size, At: v.Modified}
	if k == nil {
		if !j.old(v.Modified) {
			return f, false
		}
		return j.unclaimed(f, FindOrphanObject, MendDelete), true
	}
	f.of(k)
	if k.State == ReplicaReady && v.VersionID == k.VersionID {
		switch {
		case v.Marker:
			f.Why = "the recorded version is a delete marker"
		case v.Size != k.Size:
			f.Why = "the recorded version has another size"
		case v.ETag != "" && k.ETag != "" && v.ETag != k.ETag:
			f.Why = "the recorded version has another ETag"
		default:
			return f, false
		}
		f.Kind = FindCorrupt
		return f, true
	}
	if !j.old(v.Modified) {
		return f, false
	}
	switch k.State {
	case ReplicaReady:
		f.Kind, f.Mend, f.Why = FindForeignVersion, MendForeign, "not the version that the file has"
		return f, true
	case ReplicaPending, ReplicaWriting:
		return f, false // somebody is at it
	}
	return j.leaving(k, f, MendDelete)
}

// Multipart judges one open multipart upload.
func (j Judge) Multipart(k *KnownKey, m OpenMultipart) (f Finding, ok bool) {
	f = Finding{Key: m.Key, S3UploadID: m.S3UploadID, At: m.Initiated}
	if !j.old(m.Initiated) {
		return f, false
	}
	if k == nil {
		return j.unclaimed(f, FindOrphanMultipart, MendAbort), true
	}
	f.of(k)
	switch {
	case k.sessionOpen():
		if k.S3UploadID == "" || k.S3UploadID == m.S3UploadID {
			return f, false // in use, or about to be recorded
		}
		f.Kind, f.Mend, f.Why = FindOrphanMultipart, MendAbort, "the session uses another multipart upload"
		return f, true
	case k.State == ReplicaReady:
		f.Kind, f.Mend, f.Why = FindOrphanMultipart, MendAbort, "the object is complete"
		return f, true
	case k.State == ReplicaPending, k.State == ReplicaWriting:
		return f, false // a replication is at it
	}
	return j.leaving(k, f, MendAbort)
}

// Missing judges a key at which the store does not have the recorded version.
func (j Judge) Missing(k *KnownKey) (f Finding, ok bool) {
	f = Finding{Kind: FindMissingObject, Key: k.Key, VersionID: k.VersionID, Size: k.Size, At: k.UpdatedAt,
		Why: "the store does not have the recorded version"}
	f.of(k)
	return f, k.State == ReplicaReady
}

// unclaimed is what no row has. It is ours to remove only if it has our shape.
func (j Judge) unclaimed(f Finding, kind FindingKind, mend Mend) Finding {
	if !OurKey(j.Prefix, f.Key) {
		f.Kind, f.Why = FindUnknown, "not of the shape of our keys"
		return f
	}
	f.Kind, f.Mend, f.Why = kind, mend, "no row has the key"
	return f
}

// leaving is what lies under the key of a replica that should be gone. While its reap
// task has had no time yet, nothing is wrong.
func (j Judge) leaving(k *KnownKey, f Finding, byHand Mend) (Finding, bool) {
	if !j.old(k.UpdatedAt) || k.sessionOpen() {
		return f, false
	}
	f.Kind = FindLeftover
	switch {
	case k.State == ReplicaDeleted && k.Reason == ReasonDetached:
		f.Kind, f.Why = FindUnknown, "its replica was detached"
	case k.State == ReplicaDeleted:
		// No task can do it: the reaper leaves a deleted replica alone.
		f.Mend, f.Why = byHand, "its replica is deleted"
	case k.State == ReplicaDeleteFailed:
		f.Why = "its deletion failed; it is retried by hand only"
	case k.State == ReplicaWriteFailed:
		f.Why = "its write failed; repair sends it on its way out"
	default:
		f.Mend, f.Why = MendReap, "its replica is "+string(k.State)
	}
	return f, true
}

func (f *Finding) of(k *KnownKey) {
	f.ReplicaID, f.FileID, f.FileState = k.ID, k.FileID, k.FileState
}

// OurKey tells whether a key has the shape that NewKey gives:
// `<prefix><collection>/<32 hex>[.<ext>]`.
func OurKey(prefix, key string) bool {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return false
	}
	collection, name, ok := strings.Cut(rest, "/")
	if !ok || collection == "" || len(name) < 32 {
		return false
	}
	for i := range 32 {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	if name = name[32:]; name == "" {
		return true
	}
	return name[0] == '.' && Extension(name) == name[1:] && len(name) > 1
}

// ReconcileSource says where the list of versions is from.
type ReconcileSource string

const (
	SourceListing   ReconcileSource = "listing"
	SourceInventory ReconcileSource = "inventory"
)

// RunState is where a reconciliation stands.
type RunState string

const (
	RunRunning   RunState = "running"
	RunSucceeded RunState = "succeeded"
	RunFailed    RunState = "failed"
)

// Reconciliation is one run of reconcile over one store.
type Reconciliation struct {
	ID         RunID
	Store      StoreName
	Source     ReconcileSource
	Repair     bool
	State      RunState
	Cutoff     time.Time
	Report     ReconcileReport
	LastError  string
	StartedAt  time.Time
	FinishedAt time.Time
	LeaseUntil time.Time
}

// ReconcileReport is what a run found and did.
type ReconcileReport struct {
	Run         RunID           `json:"run"`
	Store       StoreName       `json:"store"`
	Source      ReconcileSource `json:"source"`
	Inventory   string          `json:"inventory,omitempty"`   // the manifest's key
	InventoryAt time.Time       `json:"inventory_at,omitzero"` // when it was made
	Repair      bool            `json:"repair"`
	Cutoff      time.Time       `json:"cutoff"`
	StartedAt   time.Time       `json:"started_at"`
	Seconds     float64         `json:"seconds"`

	Rows       int64 `json:"rows"`       // replicas looked at
	Versions   int64 `json:"versions"`   // versions and delete markers looked at
	Multiparts int64 `json:"multiparts"` // open multipart uploads looked at
	Bytes      int64 `json:"bytes"`      // of the versions

	// Disordered counts keys that came out of order: the run is right, but slower.
	Disordered int64 `json:"disordered,omitempty"`
	// Held counts what was left alone because the run had removed its most.
	Held int64 `json:"held,omitempty"`

	Findings map[FindingKind]*FindingCount `json:"findings"`
	Drift    []Drift                       `json:"drift,omitempty"` // examples
}

// FindingCount is how often a kind was found.
type FindingCount struct {
	Found    int64     `json:"found"`
	Mended   int64     `json:"mended"`
	Failed   int64     `json:"failed"` // mending was tried and refused
	Bytes    int64     `json:"bytes"`
	Examples []Finding `json:"examples,omitempty"`
}

// MaxExamples is how many findings of a kind a report names.
const MaxExamples = 20

// Count is the count of a kind, made if need be.
func (r *ReconcileReport) Count(k FindingKind) *FindingCount {
	if r.Findings == nil {
		r.Findings = map[FindingKind]*FindingCount{}
	}
	if r.Findings[k] == nil {
		r.Findings[k] = &FindingCount{}
	}
	return r.Findings[k]
}

// Found counts a finding and keeps it as an example while there is room.
func (r *ReconcileReport) Found(f Finding) {
	c := r.Count(f.Kind)
	c.Found++
	c.Bytes += f.Size
	if len(c.Examples) < MaxExamples {
		c.Examples = append(c.Examples, f)
	}
}

// Mended counts what was mended of a kind.
func (r *ReconcileReport) Mended(k FindingKind) { r.Count(k).Mended++ }

// Refused counts a mend that did not succeed, and says why at its example.
func (r *ReconcileReport) Refused(f Finding, why string) {
	c := r.Count(f.Kind)
	c.Failed++
	i := slices.IndexFunc(c.Examples, func(e Finding) bool {
		return e.Key == f.Key && e.VersionID == f.VersionID && e.S3UploadID == f.S3UploadID
	})
	if i >= 0 {
		c.Examples[i].Failure = why
	}
}

// Clean tells whether nothing was found that somebody should look at. What is unknown
// is not ours.
func (r *ReconcileReport) Clean() bool {
	for k, c := range r.Findings {
		if k != FindUnknown && c.Found > 0 {
			return false
		}
	}
	return true
}

// Drift is one counter beside what the rows say.
type Drift struct {
	Counter    string    `json:"counter"` // "quotas" or "store_usage"
	Tenant     Tenant    `json:"tenant,omitempty"`
	Owner      Owner     `json:"owner,omitempty"`
	Collection string    `json:"collection,omitempty"`
	Store      StoreName `json:"store,omitempty"`
	// Of quotas these are files, of store_usage replicas.
	Count     int64 `json:"count"`
	Bytes     int64 `json:"bytes"`
	RealCount int64 `json:"real_count"`
	RealBytes int64 `json:"real_bytes"`
	Open      int64 `json:"open,omitempty"` // sessions, of quotas only
	RealOpen  int64 `json:"real_open,omitempty"`
}
