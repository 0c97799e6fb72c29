package models

import (
	"strings"
	"testing"
	"time"
)

var (
	cutoff = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	aged   = cutoff.Add(-time.Second)
	fresh  = cutoff
	judge  = Judge{Prefix: "b/", Cutoff: cutoff}
	shaped = "b/c/" + strings.Repeat("0", 32)
)

func TestOurKey(t *testing.T) {
	t.Parallel()
	hex := strings.Repeat("0123456789abcdef", 2)
	for key, want := range map[string]bool{
		"b/c/" + hex: true, "b/c/" + hex + ".pdf": true, "b/c/" + hex + "." + strings.Repeat("a", 16): true,
		"b/c/" + hex + "." + strings.Repeat("a", 17): false, "b/c/" + hex + ".": false, "b/c/" + hex + ".PDF": false,
		"b/c/" + hex + ".a.b": false, "b/c/" + hex + "0": false, "b/c/" + hex[1:]: false, "b/c/" + strings.ToUpper(hex): false,
		"b/c/d/" + hex: false, "b/" + hex: false, "b//" + hex: false, "x/c/" + hex: false, "c/" + hex: false, "": false, "b/c/": false,
		"b/c/" + hex + ".ä": false, "b/c/" + hex + "/x": false,
	} {
		if got := OurKey("b/", key); got != want {
			t.Errorf("%q: %v, want %v", key, got, want)
		}
	}
	if !OurKey("", "c/"+hex) {
		t.Error("without a prefix")
	}
}

// Every key that Berth makes is known as Berth's; what is changed by a byte in its
// random part is not taken for another shape.
func FuzzOurKey(f *testing.F) {
	f.Add("b/", "default", "a.pdf")
	f.Add("", "x", "tar.gz")
	f.Add("a/b/", "c.d", "none")
	f.Fuzz(func(t *testing.T, prefix, collection, name string) {
		if collection == "" || strings.Contains(collection, "/") {
			t.Skip("no collection's name")
		}
		key := NewKey(prefix, collection, Extension(name))
		if !OurKey(prefix, key) {
			t.Errorf("%q is not known", key)
		}
		if OurKey(prefix, name) && !strings.HasPrefix(name, prefix) {
			t.Errorf("%q is outside %q", name, prefix)
		}
	})
}

func TestJudgeVersion(t *testing.T) {
	t.Parallel()
	ready := KnownKey{Replica: Replica{State: ReplicaReady, VersionID: "v", Size: 5, ETag: "e", UpdatedAt: aged}}
	in := func(s ReplicaState, at time.Time) *KnownKey {
		return &KnownKey{Replica: Replica{State: s, UpdatedAt: at}}
	}
	detached := in(ReplicaDeleted, aged)
	detached.Reason = ReasonDetached
	open := in(ReplicaDeletePending, aged) // cannot be, and is not to be acted on
	open.UploadID, open.UploadState = "upl_", UploadUploading
	v := func(id string, at time.Time) ObjectVersion {
		return ObjectVersion{Key: shaped, VersionID: id, Size: 5, ETag: "e", Modified: at}
	}
	with := func(o ObjectVersion, change func(*ObjectVersion)) ObjectVersion { change(&o); return o }
	for name, c := range map[string]struct {
		k    *KnownKey
		v    ObjectVersion
		kind FindingKind
		mend Mend
	}{
		"no row":                    {nil, v("v", aged), FindOrphanObject, MendDelete},
		"no row, at the cut-off":    {nil, v("v", fresh), "", ""},
		"no row, no age":            {nil, v("v", time.Time{}), "", ""},
		"no row, a marker":          {nil, with(v("v", aged), func(o *ObjectVersion) { o.Marker = true }), FindOrphanObject, MendDelete},
		"no row, another shape":     {nil, with(v("v", aged), func(o *ObjectVersion) { o.Key = "b/x" }), FindUnknown, MendNone},
		"no row, outside":           {nil, with(v("v", aged), func(o *ObjectVersion) { o.Key = "c" + shaped[1:] }), FindUnknown, MendNone},
		"recorded":                  {&ready, v("v", aged), "", ""},
		"recorded, another size":    {&ready, with(v("v", fresh), func(o *ObjectVersion) { o.Size = 6 }), FindCorrupt, MendNone},
		"recorded, another etag":    {&ready, with(v("v", fresh), func(o *ObjectVersion) { o.ETag = "f" }), FindCorrupt, MendNone},
		"recorded, no etag":         {&ready, with(v("v", fresh), func(o *ObjectVersion) { o.ETag = "" }), "", ""},
		"foreign":                   {&ready, v("w", aged), FindForeignVersion, MendForeign},
		"foreign, fresh":            {&ready, v("w", fresh), "", ""},
		"being written":             {in(ReplicaWriting, aged), v("w", aged), "", ""},
		"to be written":             {in(ReplicaPending, aged), v("w", aged), "", ""},
		"leaving":                   {in(ReplicaDeletePending, aged), v("w", aged), FindLeftover, MendReap},
		"leaving since now":         {in(ReplicaDeletePending, fresh), v("w", aged), "", ""},
		"leaving, landed now":       {in(ReplicaDeletePending, aged), v("w", fresh), "", ""},
		"being deleted":             {in(ReplicaDeleting, aged), v("w", aged), FindLeftover, MendReap},
		"deletion failed":           {in(ReplicaDeleteFailed, aged), v("w", aged), FindLeftover, MendNone},
		"write failed":              {in(ReplicaWriteFailed, aged), v("w", aged), FindLeftover, MendNone},
		"deleted":                   {in(ReplicaDeleted, aged), v("w", aged), FindLeftover, MendDelete},
		"deleted now":               {in(ReplicaDeleted, fresh), v("w", aged), "", ""},
		"detached":                  {detached, v("w", aged), FindUnknown, MendNone},
		"leaving, its session open": {open, v("w", aged), "", ""},
	} {
		f, bad := judge.Version(c.k, c.v)
		if bad != (c.kind != "") || bad && (f.Kind != c.kind || f.Mend != c.mend || f.Why == "") {
			t.Errorf("%s: %+v, %v; want %q by %q", name, f, bad, c.kind, c.mend)
		}
	}
}

func TestJudgeMultipart(t *testing.T) {
	t.Parallel()
	k := func(r ReplicaState, u UploadState, s3 string) *KnownKey {
		k := &KnownKey{Replica: Replica{State: r, UpdatedAt: aged}, UploadState: u, S3UploadID: s3}
		if u != "" {
			k.UploadID = "upl_"
		}
		return k
	}
	for name, c := range map[string]struct {
		k    *KnownKey
		at   time.Time
		kind FindingKind
		mend Mend
	}{
		"no row":                         {nil, aged, FindOrphanMultipart, MendAbort},
		"no row, fresh":                  {nil, fresh, "", ""},
		"no row, no age":                 {nil, time.Time{}, "", ""},
		"in use":                         {k(ReplicaWriting, UploadUploading, "m"), aged, "", ""},
		"about to be recorded":           {k(ReplicaWriting, UploadInit, ""), aged, "", ""},
		"completing":                     {k(ReplicaWriting, UploadCompleting, "m"), aged, "", ""},
		"another of an open session":     {k(ReplicaWriting, UploadUploading, "n"), aged, FindOrphanMultipart, MendAbort},
		"another, fresh":                 {k(ReplicaWriting, UploadUploading, "n"), fresh, "", ""},
		"of a complete object":           {k(ReplicaReady, UploadCommitted, "m"), aged, FindOrphanMultipart, MendAbort},
		"of an import":                   {k(ReplicaReady, "", ""), aged, FindOrphanMultipart, MendAbort},
		"a replication":                  {k(ReplicaWriting, "", ""), aged, "", ""},
		"of a session that was closed":   {k(ReplicaDeletePending, UploadAborted, "m"), aged, FindLeftover, MendReap},
		"of a replica that is deleted":   {k(ReplicaDeleted, UploadExpired, "m"), aged, FindLeftover, MendAbort},
		"of one whose deletion failed":   {k(ReplicaDeleteFailed, UploadExpired, "m"), aged, FindLeftover, MendNone},
		"deferred, waits for its commit": {k(ReplicaReady, UploadCompleted, "m"), aged, "", ""},
	} {
		f, bad := judge.Multipart(c.k, OpenMultipart{Key: shaped, S3UploadID: "m", Initiated: c.at})
		if bad != (c.kind != "") || bad && (f.Kind != c.kind || f.Mend != c.mend || f.Why == "") {
			t.Errorf("%s: %+v, %v; want %q by %q", name, f, bad, c.kind, c.mend)
		}
	}
}

func TestReportCounts(t *testing.T) {
	t.Parallel()
	var r ReconcileReport
	if !r.Clean() {
		t.Error("an empty report is not clean")
	}
	r.Found(Finding{Kind: FindUnknown})
	if !r.Clean() {
		t.Error("what is not ours makes it unclean")
	}
	for i := range MaxExamples + 5 {
		r.Found(Finding{Kind: FindOrphanObject, Key: strings.Repeat("k", i+1), Size: 2})
	}
	r.Mended(FindOrphanObject)
	r.Refused(Finding{Kind: FindOrphanObject, Key: "kk"}, "locked")
	r.Refused(Finding{Kind: FindOrphanObject, Key: "not an example"}, "locked")
	c := r.Count(FindOrphanObject)
	if r.Clean() || c.Found != MaxExamples+5 || c.Bytes != 2*(MaxExamples+5) || len(c.Examples) != MaxExamples || c.Mended != 1 || c.Failed != 2 ||
		c.Examples[1].Failure != "locked" || c.Examples[0].Failure != "" {
		t.Errorf("%+v", c)
	}
}
