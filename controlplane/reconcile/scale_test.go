package reconcile_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"berth/controlplane/reconcile"
	"berth/internal/stack"
	"berth/models"
)

// manyKeys is how many keys the test of memory walks: BERTH_RECONCILE_KEYS, or enough to
// tell flat from growing.
func manyKeys(t *testing.T) int {
	if s := os.Getenv("BERTH_RECONCILE_KEYS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("BERTH_RECONCILE_KEYS: %v", err)
		}
		return n
	}
	return 50_000
}

const (
	missingEach = 1000 // every so many rows have no version
	orphanEach  = 50   // every so many keys have an orphan beside them
)

// synthetic is a store of n keys that hold nothing: a version under each, an orphan
// beside some, and a multipart upload that nobody wants beside each.
type synthetic struct {
	reconcile.Objects
	n     int
	touch func()
}

func (s synthetic) ListVersions(context.Context, string) iter.Seq2[models.ObjectVersion, error] {
	return func(yield func(models.ObjectVersion, error) bool) {
		at := time.Now().Add(-30 * 24 * time.Hour)
		for i := range s.n {
			s.touch()
			key := fmt.Sprintf("b/default/%032x", i)
			if i%missingEach != 0 && !yield(models.ObjectVersion{Key: key, VersionID: "v" + strconv.Itoa(i), Latest: true, Size: 10, ETag: "e", Modified: at}, nil) {
				return
			}
			if i%orphanEach == 0 && !yield(models.ObjectVersion{Key: key + ".x", VersionID: "o", Latest: true, Size: 3, ETag: "e", Modified: at}, nil) {
				return
			}
		}
	}
}

func (s synthetic) ListMultiparts(context.Context, string) iter.Seq2[models.OpenMultipart, error] {
	return func(yield func(models.OpenMultipart, error) bool) {
		at := time.Now().Add(-30 * 24 * time.Hour)
		for i := range s.n {
			if !yield(models.OpenMultipart{Key: fmt.Sprintf("b/default/%032x.m", i), S3UploadID: "u", Initiated: at}, nil) {
				return
			}
		}
	}
}

func (s synthetic) Head(_ context.Context, key, _ string) (models.Object, error) {
	return models.Object{}, &models.ObjectError{Kind: models.ObjectAbsent, Op: "HeadObject", Code: "NoSuchKey", Err: fmt.Errorf("no %s", key)}
}

// However many rows, versions and multiparts there are, and however much is wrong, the
// memory that a run takes is the same.
func TestMemoryIsFlat(t *testing.T) {
	s := stack.New(t)
	n := manyKeys(t)
	exec(t, s, "ALTER TABLE replicas DISABLE TRIGGER USER")
	exec(t, s, `WITH f AS (INSERT INTO files (id, tenant, owner, collection, name, size, part_size, content_type, state, version_id, created_at, updated_at, activated_at)
			SELECT 'fil_' || lpad(to_hex(i), 36, '0'), 'default', 'ann', 'default', 'a', 10, 10, 'a/b', 'active', 'v' || i, now(), now(), now()
			  FROM generate_series(0, $1::int - 1) i)
		INSERT INTO store_usage_slots VALUES ('main', 0, $1, 10 * $1::bigint)`, n)
	exec(t, s, `INSERT INTO replicas (id, file_id, store, key, is_primary, state, size, version_id, etag, created_at, updated_at)
		SELECT 'rep_' || lpad(to_hex(i), 36, '0'), 'fil_' || lpad(to_hex(i), 36, '0'), 'main', 'b/default/' || lpad(to_hex(i), 32, '0'),
		       true, 'ready', 10, 'v' || i, 'e', now(), now() FROM generate_series(0, $1::int - 1) i`, n)
	exec(t, s, "ANALYZE replicas; ANALYZE files")

	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var peak, live uint64
	walked := 0
	r := runner(s)
	r.Objects = synthetic{n: n, touch: func() {
		walked++
		if walked%5000 != 0 {
			return
		}
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapAlloc)
		if walked%(n/5) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			live = max(live, now.HeapAlloc)
		}
	}}
	began := time.Now()
	report := run(t, r, reconcile.Options{})
	took := time.Since(began)

	missing, orphans := (n+missingEach-1)/missingEach, (n+orphanEach-1)/orphanEach
	for kind, want := range map[models.FindingKind]int{models.FindMissingObject: missing, models.FindOrphanObject: orphans,
		models.FindOrphanMultipart: n} {
		if c := report.Count(kind); c.Found != int64(want) || len(c.Examples) > models.MaxExamples {
			t.Errorf("%s: %d found, want %d; %d named", kind, c.Found, want, len(c.Examples))
		}
	}
	if report.Rows != int64(n) || report.Versions != int64(n-missing+orphans) || report.Multiparts != int64(n) || len(report.Findings) != 3 {
		t.Errorf("looked at %d rows, %d versions, %d multiparts; found %v", report.Rows, report.Versions, report.Multiparts, found(report))
	}
	const most = 64 << 20
	if peak > before.HeapAlloc+most || live > before.HeapAlloc+most/4 {
		t.Errorf("the heap grew from %d to %d bytes, %d of them alive", before.HeapAlloc, peak, live)
	}
	t.Logf("%d keys, as many multiparts: %.1f s, heap %.1f MiB before, %.1f at its peak, %.1f alive",
		n, took.Seconds(), float64(before.HeapAlloc)/mib, float64(peak)/mib, float64(live)/mib)
}
