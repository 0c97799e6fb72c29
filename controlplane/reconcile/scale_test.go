package reconcile_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"strings"
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

// manyRows makes n rows of active files, whose versions the synthetic store has.
func manyRows(t *testing.T, s *stack.Stack, n int) {
	t.Helper()
	exec(t, s, "ALTER TABLE replicas DISABLE TRIGGER USER")
	exec(t, s, `WITH f AS (INSERT INTO files (id, tenant, owner, collection, name, size, part_size, content_type, state, version_id, created_at, updated_at, activated_at)
			SELECT 'fil_' || lpad(to_hex(i), 36, '0'), 'default', 'ann', 'default', 'a', 10, 10, 'a/b', 'active', 'v' || i, now() - interval '30 days', now(), now()
			  FROM generate_series(0, $1::int - 1) i)
		INSERT INTO store_usage_slots VALUES ('main', 0, $1, 10 * $1::bigint)`, n)
	exec(t, s, `INSERT INTO replicas (id, file_id, store, key, is_primary, state, size, version_id, etag, created_at, updated_at)
		SELECT 'rep_' || lpad(to_hex(i), 36, '0'), 'fil_' || lpad(to_hex(i), 36, '0'), 'main', 'b/default/' || lpad(to_hex(i), 32, '0'),
		       true, 'ready', 10, 'v' || i, 'e', now() - interval '30 days', now() - interval '30 days' FROM generate_series(0, $1::int - 1) i`, n)
	exec(t, s, "ANALYZE replicas; ANALYZE files")
}

// heap watches how far the heap grows above where it was: at its peak, and of what lives.
type heap struct {
	before, peak, live uint64
	touched, each      int
}

func watchHeap(n int) *heap {
	h := &heap{each: max(n/5, 1)}
	runtime.GC()
	h.before = h.now()
	return h
}

func (h *heap) now() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (h *heap) touch() {
	if h.touched++; h.touched%5000 == 0 {
		h.peak = max(h.peak, h.now())
	}
	if h.touched%h.each == 0 {
		runtime.GC()
		h.live = max(h.live, h.now())
	}
}

func (h *heap) within(t *testing.T, peak, live uint64) {
	t.Helper()
	if h.peak > h.before+peak || h.live > h.before+live {
		t.Errorf("the heap grew from %d to %d bytes, %d of them alive", h.before, h.peak, h.live)
	}
	if h.touched < 5000 || h.peak == 0 {
		t.Errorf("the heap was looked at too seldom: %d entries", h.touched)
	}
}

func (h *heap) String() string {
	return fmt.Sprintf("heap %.1f MiB before, %.1f at its peak, %.1f alive", float64(h.before)/mib, float64(h.peak)/mib, float64(h.live)/mib)
}

// However many rows, versions and multiparts there are, and however much is wrong, the
// memory that a run takes is the same.
func TestMemoryIsFlat(t *testing.T) {
	s := stack.New(t)
	n := manyKeys(t)
	manyRows(t, s, n)
	h := watchHeap(n)
	r := runner(s)
	r.Objects = synthetic{n: n, touch: h.touch}
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
	h.within(t, 64*mib, 16*mib)
	t.Logf("%d keys, as many multiparts: %.1f s, %v", n, took.Seconds(), h)
}

// inventoried is a synthetic store with an inventory, that still holds what it says.
type inventoried struct {
	synthetic
	real reconcile.Objects
}

func (o inventoried) Inventory(ctx context.Context, manifest, prefix string) (iter.Seq2[models.ObjectVersion, error], time.Time, error) {
	seq, at, err := o.real.Inventory(ctx, manifest, prefix)
	return func(yield func(models.ObjectVersion, error) bool) {
		for v, err := range seq {
			o.touch()
			if !yield(v, err) {
				return
			}
		}
	}, at, err
}

// ListVersions of one key: only orphans are asked about that are there.
func (o inventoried) ListVersions(_ context.Context, key string) iter.Seq2[models.ObjectVersion, error] {
	return func(yield func(models.ObjectVersion, error) bool) {
		if strings.HasSuffix(key, ".x") {
			yield(models.ObjectVersion{Key: key, VersionID: "o", Latest: true, Size: 3, ETag: "e", Modified: time.Now().Add(-30 * 24 * time.Hour)}, nil)
		}
	}
}

func (inventoried) ListMultiparts(context.Context, string) iter.Seq2[models.OpenMultipart, error] {
	return func(func(models.OpenMultipart, error) bool) {}
}

// Of an inventory, too, the memory does not grow with the keys.
func TestMemoryIsFlatOfAnInventory(t *testing.T) {
	s := stack.New(t)
	n := min(manyKeys(t), 200_000)
	manyRows(t, s, n)
	for _, format := range []string{"CSV", "Parquet"} {
		var versions []models.ObjectVersion
		for v := range (synthetic{n: n, touch: func() {}}).ListVersions(t.Context(), "") {
			versions = append(versions, v)
		}
		manifest := writeInventory(t, s, format, s.Clock.Now(), versions)
		total := len(versions)
		versions = nil
		h := watchHeap(n)
		r := runner(s)
		r.Objects = inventoried{synthetic{n: n, touch: h.touch}, s.Objects}
		began := time.Now()
		report := run(t, r, reconcile.Options{Inventory: manifest})
		took := time.Since(began)
		missing, orphans := int64((n+missingEach-1)/missingEach), int64((n+orphanEach-1)/orphanEach)
		if report.Rows != int64(n) || report.Versions != int64(total) || report.Count(models.FindMissingObject).Found != missing ||
			report.Count(models.FindOrphanObject).Found != orphans || len(report.Findings) != 2 {
			t.Errorf("%s: looked at %d rows, %d versions of %d; found %v", format, report.Rows, report.Versions, total, found(report))
		}
		h.within(t, 64*mib, 32*mib) // it is sorted 16 MiB at a time
		t.Logf("%s of %d keys: %.1f s, %v", format, n, took.Seconds(), h)
	}
}
