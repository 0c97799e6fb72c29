package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgconn"

	"berth/controlplane"
	"berth/controlplane/reconcile"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

const (
	mib    = 1 << 20
	prefix = "b/" // of the stack's store
)

func runner(s *stack.Stack) *reconcile.Runner {
	return &reconcile.Runner{Store: stack.Main, Prefix: prefix, Records: s.Store, Objects: s.Objects, Now: s.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: reconcile.NewMetrics(nil)}
}

func run(t *testing.T, r *reconcile.Runner, o reconcile.Options) models.ReconcileReport {
	t.Helper()
	report, err := r.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Disordered != 0 {
		t.Errorf("%d keys came out of order", report.Disordered)
	}
	return report
}

func reap(t *testing.T, s *stack.Stack) {
	t.Helper()
	r := &worker.Reaper{Tasks: s.Store, Owner: "one", Lease: time.Minute, Limit: 100, Now: s.Clock.Now,
		Stores:  func(models.StoreName) (worker.ReapObjects, bool) { return s.Objects, true },
		Log:     slog.New(slog.DiscardHandler),
		Metrics: worker.NewMetrics(nil)}
	if _, err := r.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, s *stack.Stack, collection string, size int64) controlplane.UploadView {
	t.Helper()
	v, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: collection, Name: "a.pdf", Size: size})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func complete(t *testing.T, s *stack.Stack, collection string, size int64) controlplane.UploadView {
	t.Helper()
	v := open(t, s, collection, size)
	for _, p := range v.Parts {
		stack.MustSend(t, p, stack.Bytes(1, int(p.Size)))
	}
	v, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func remove(t *testing.T, s *stack.Stack, id models.FileID) {
	t.Helper()
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), id); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, s *stack.Stack, q string, a ...any) {
	t.Helper()
	if _, err := s.Pool().Exec(t.Context(), q, a...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

// put writes a version past Berth, and returns its id.
func put(t *testing.T, s *stack.Stack, key string, size int) string {
	t.Helper()
	out, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &key, Body: bytes.NewReader(stack.Bytes(9, size))})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.VersionId)
}

// hide writes a delete marker.
func hide(t *testing.T, s *stack.Stack, key string) string {
	t.Helper()
	out, err := s.S3.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &s.S3.Bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.VersionId)
}

func erase(t *testing.T, s *stack.Stack, key, version string) {
	t.Helper()
	if _, err := s.S3.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &s.S3.Bucket, Key: &key, VersionId: &version}); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, s *stack.Stack, key string) string {
	t.Helper()
	out, err := s.S3.Client().CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &s.S3.Bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	return *out.UploadId
}

// found are a report's findings, as text.
func found(r models.ReconcileReport) []string {
	var out []string
	for kind, c := range r.Findings {
		for _, f := range c.Examples {
			out = append(out, fmt.Sprintf("%s %s %s%s", kind, f.Key, f.VersionID, f.S3UploadID))
		}
		if int(c.Found) != len(c.Examples) && kind != models.FindCounterDrift {
			out = append(out, fmt.Sprintf("%s: %d found, %d named", kind, c.Found, len(c.Examples)))
		}
	}
	for _, d := range r.Drift {
		out = append(out, fmt.Sprintf("counter_drift %s %s%s", d.Counter, d.Store, d.Collection))
	}
	slices.Sort(out)
	return out
}

func wantFound(t *testing.T, r models.ReconcileReport, want ...string) {
	t.Helper()
	got := found(r)
	slices.Sort(want)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("not found: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("found without reason: %s", g)
		}
	}
}

// listed is all that the bucket holds, as text.
func listed(t *testing.T, s *stack.Stack) []string {
	t.Helper()
	var out []string
	for v, err := range s.Objects.ListVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v.Key+" "+v.VersionID)
	}
	for m, err := range s.Objects.ListMultiparts(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m.Key+" "+m.S3UploadID)
	}
	return out
}

func ourKey(n int, ext string) string { return fmt.Sprintf("%sdefault/%032x%s", prefix, n, ext) }

// seeded is a bucket with each kind of leftover beside what is in use.
type seeded struct {
	*stack.Stack
	young []string // what is found at any age
	old   []string // what is found once it is old
	stays []string // what must be there after a repair
	lost  []models.FileID
}

func seed(t *testing.T) *seeded {
	s := &seeded{Stack: stack.New(t)}
	stays := func(key, version string) { s.stays = append(s.stays, key+" "+version) }
	old := func(kind models.FindingKind, key, version string) {
		s.old = append(s.old, fmt.Sprintf("%s %s %s", kind, key, version))
	}

	// In use: files, a session with a part, one whose object no event told of, one that
	// waits for its commit.
	for _, size := range []int64{0, 100, 11 * mib} {
		v := complete(t, s.Stack, "crc64", size)
		stays(v.Key, v.VersionID)
	}
	draft := complete(t, s.Stack, "draft", 10)
	stays(draft.Key, draft.VersionID)
	sending := open(t, s.Stack, "crc64", 11*mib)
	stack.MustSend(t, sending.Parts[0], stack.Bytes(1, int(sending.Parts[0].Size)))
	stays(sending.Key, sending.S3UploadID)
	silent := open(t, s.Stack, "default", 10)
	stack.MustSend(t, silent.Parts[0], stack.Bytes(1, 10))
	for v := range s.Objects.ListVersions(t.Context(), silent.Key) {
		stays(silent.Key, v.VersionID)
	}

	// Orphans of our shape: versions, a marker, multiparts.
	k := ourKey(1, ".pdf")
	old(models.FindOrphanObject, k, put(t, s.Stack, k, 10))
	old(models.FindOrphanObject, k, put(t, s.Stack, k, 11))
	old(models.FindOrphanObject, k, hide(t, s.Stack, k))
	k = ourKey(2, "")
	old(models.FindOrphanObject, k, put(t, s.Stack, k, 0))
	old(models.FindOrphanMultipart, k, begin(t, s.Stack, k))
	old(models.FindOrphanMultipart, sending.Key, begin(t, s.Stack, sending.Key))

	// Not ours: under the prefix of another shape, and beside the prefix.
	for _, k := range []string{prefix + "readme.txt", prefix + "default/readme.txt", ourKey(3, "") + "f", ourKey(3, ".PDF"), ourKey(3, "/x")} {
		v := put(t, s.Stack, k, 5)
		old(models.FindUnknown, k, v)
		stays(k, v)
	}
	m := begin(t, s.Stack, prefix+"notes")
	old(models.FindUnknown, prefix+"notes", m)
	stays(prefix+"notes", m)
	beside := "c/default/" + strings.Repeat("0", 32)
	stays(beside, put(t, s.Stack, beside, 5))

	// Under a living key.
	v := complete(t, s.Stack, "crc64", 50)
	stays(v.Key, v.VersionID)
	old(models.FindForeignVersion, v.Key, put(t, s.Stack, v.Key, 7))
	old(models.FindForeignVersion, v.Key, hide(t, s.Stack, v.Key))
	old(models.FindOrphanMultipart, v.Key, begin(t, s.Stack, v.Key))

	// Of a replica that should be gone, and whose task was lost.
	v = complete(t, s.Stack, "crc64", 70)
	remove(t, s.Stack, v.FileID)
	exec(t, s.Stack, "DELETE FROM tasks WHERE file_id = $1", string(v.FileID))
	old(models.FindLeftover, v.Key, v.VersionID)

	// Lost and damaged.
	v = complete(t, s.Stack, "crc64", 80)
	erase(t, s.Stack, v.Key, v.VersionID)
	s.young = append(s.young, fmt.Sprintf("%s %s %s", models.FindMissingObject, v.Key, v.VersionID))
	s.lost = append(s.lost, v.FileID)
	for _, q := range []string{"UPDATE replicas SET size = size + 1 WHERE file_id = $1", "UPDATE replicas SET etag = 'x' WHERE file_id = $1"} {
		v = complete(t, s.Stack, "crc64", 90)
		exec(t, s.Stack, q, string(v.FileID))
		s.young = append(s.young, fmt.Sprintf("%s %s %s", models.FindCorrupt, v.Key, v.VersionID))
		stays(v.Key, v.VersionID)
		s.lost = append(s.lost, v.FileID)
	}

	// Files that are counted.
	for _, c := range []string{"resume", "instant"} {
		for i := range 2 {
			u := open(t, s.Stack, c, int64(20+i))
			stack.MustSend(t, u.Parts[0], stack.Bytes(1, int(u.Parts[0].Size)))
			if _, err := s.Service.Complete(t.Context(), stack.Caller("ann"), u.ID, controlplane.CompleteRequest{}); err != nil {
				t.Fatal(err)
			}
			got, _, err := s.Store.Upload(t.Context(), models.Whose{}, u.ID)
			if err != nil {
				t.Fatal(err)
			}
			stays(got.Key, got.VersionID)
			if c == "instant" {
				break
			}
		}
	}

	// Of a replica that is gone, its last URL with it.
	v = complete(t, s.Stack, "crc64", 60)
	remove(t, s.Stack, v.FileID)
	reap(t, s.Stack)
	s.Clock.Advance(time.Hour)
	reap(t, s.Stack)
	old(models.FindLeftover, v.Key, put(t, s.Stack, v.Key, 3))
	old(models.FindLeftover, v.Key, begin(t, s.Stack, v.Key))

	// Counters: one too high, one gone, and the store's.
	exec(t, s.Stack, "UPDATE quotas SET files = files + 3, bytes = bytes + 5 WHERE collection = 'resume'")
	exec(t, s.Stack, "DELETE FROM quotas WHERE collection = 'instant'")
	exec(t, s.Stack, "UPDATE store_usage_slots SET bytes = bytes - 7 WHERE ctid = (SELECT min(ctid) FROM store_usage_slots)")
	s.young = append(s.young, "counter_drift quotas resume", "counter_drift quotas instant", "counter_drift store_usage main")
	return s
}

// The proof: all of it is found, nothing else is, and after a repair all is clean.
func TestSeededBucket(t *testing.T) {
	t.Parallel()
	s := seed(t)
	before, rows := listed(t, s.Stack), s.Snapshot(t)

	// All of it has just been made: nothing can be told to be left behind.
	wantFound(t, run(t, runner(s.Stack), reconcile.Options{}), s.young...)

	s.Clock.Advance(25 * time.Hour)
	report := run(t, runner(s.Stack), reconcile.Options{})
	wantFound(t, report, append(slices.Clone(s.young), s.old...)...)
	if after := listed(t, s.Stack); !slices.Equal(before, after) || rows != s.Snapshot(t) {
		t.Error("a report without repair changed something")
	}

	report = run(t, runner(s.Stack), reconcile.Options{Repair: true})
	for kind, c := range report.Findings {
		want := c.Found
		if kind == models.FindMissingObject || kind == models.FindCorrupt || kind == models.FindUnknown {
			want = 0
		}
		if c.Mended != want || c.Failed != 0 {
			t.Errorf("%s: %d found, %d mended, %d refused", kind, c.Found, c.Mended, c.Failed)
		}
	}
	reap(t, s.Stack)
	got := listed(t, s.Stack)
	slices.Sort(got)
	slices.Sort(s.stays)
	if !slices.Equal(got, s.stays) {
		t.Errorf("the bucket holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(s.stays, "\n"))
	}

	// What was lost is for people: the owner lets it go.
	for _, id := range s.lost {
		remove(t, s.Stack, id)
	}
	exec(t, s.Stack, "UPDATE replicas SET size = f.size FROM files f WHERE f.id = file_id")
	reap(t, s.Stack)
	report = run(t, runner(s.Stack), reconcile.Options{Repair: true})
	if !report.Clean() {
		t.Errorf("a second run finds %v", found(report))
	}

	// Every removal is in the history, before and after.
	for _, q := range []string{"deleting", "deleted"} {
		n := stack.Query[int64](t, s.Stack, "SELECT count(*) FROM history WHERE what = 'object' AND actor = 'reconcile' AND to_state = $1", q)
		if n != 5 { // four orphans, one leftover of a deleted replica
			t.Errorf("%d versions are noted as %s, want 5", n, q)
		}
	}
	for _, q := range []string{"aborting", "aborted"} {
		if n := stack.Query[int64](t, s.Stack, "SELECT count(*) FROM history WHERE actor = 'reconcile' AND to_state = $1", q); n != 4 {
			t.Errorf("%d multiparts are noted as %s, want 4", n, q)
		}
	}
	wantSpared(t, s.Stack)
	runs, err := s.Store.Reconciliations(t.Context(), stack.Main, "", 10)
	if err != nil || len(runs) != 4 {
		t.Fatalf("%d runs, error %v", len(runs), err)
	}
	for _, r := range runs {
		if r.State != models.RunSucceeded || r.Report.Run != r.ID || r.FinishedAt.IsZero() {
			t.Errorf("%+v", r)
		}
	}
}

func TestTheMinimumAgeIsHard(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	complete(t, s, "crc64", 10)
	for _, c := range []struct {
		older, least time.Duration
		ok           bool
	}{
		{time.Hour, 0, true}, {time.Hour - 1, 0, false}, {time.Nanosecond, 0, false}, {-time.Hour, 0, false},
		{time.Hour, time.Second, true}, {time.Minute, time.Second, false}, // never lowered
		{2 * time.Hour, 3 * time.Hour, false}, {3 * time.Hour, 3 * time.Hour, true}, {0, 48 * time.Hour, true},
	} {
		r := runner(s)
		r.MinAge = c.least
		_, err := r.Run(t.Context(), reconcile.Options{OlderThan: c.older, Repair: true})
		if c.ok && err != nil || !c.ok && models.ErrorCode(err) != models.CodeInvalidRequest {
			t.Errorf("older than %v with a minimum of %v: %v", c.older, c.least, err)
		}
	}
}

// A repair against a database that knows nothing of the store removes nothing.
func TestTheWrongDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	put(t, s, ourKey(1, ""), 10)
	s.Clock.Advance(25 * time.Hour)
	if _, err := runner(s).Run(t.Context(), reconcile.Options{Repair: true}); models.ErrorCode(err) != models.CodeInvalidRequest {
		t.Errorf("%v", err)
	}
	if n := len(listed(t, s)); n != 1 {
		t.Errorf("%d things are left", n)
	}
}

func TestARunRemovesNoMoreThanItsMost(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	complete(t, s, "crc64", 10)
	for i := range 5 {
		put(t, s, ourKey(i, ""), 1)
	}
	s.Clock.Advance(25 * time.Hour)
	report := run(t, runner(s), reconcile.Options{Repair: true, Most: 2})
	if c := report.Count(models.FindOrphanObject); c.Found != 5 || c.Mended != 2 || report.Held != 3 {
		t.Errorf("%+v, held %d", c, report.Held)
	}
	if n := len(listed(t, s)); n != 4 {
		t.Errorf("%d things are left, want 4", n)
	}
}

// records lets a test step in between.
type records struct {
	reconcile.Records
	condemn func(ctx context.Context, real func() ([]int, error), fs []models.Finding) ([]int, error)
}

func (r records) Condemn(ctx context.Context, run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) ([]int, error) {
	return r.condemn(ctx, func() ([]int, error) { return r.Records.Condemn(ctx, run, store, fs, now) }, fs)
}

// register makes a row reference a version, as an import does.
func register(t *testing.T, s *stack.Stack, like models.FileID, key, version string) error {
	t.Helper()
	_, err := s.Pool().Exec(t.Context(), `INSERT INTO replicas (id, file_id, store, key, is_primary, state, size, version_id, created_at, updated_at)
		VALUES ($1, $2, 'main', $3, false, 'ready', 10, $4, now(), now())`, string(models.NewReplicaID()), string(like), key, version)
	return err
}

// wantSpared says that a day after the runs nothing is condemned.
func wantSpared(t *testing.T, s *stack.Stack) {
	t.Helper()
	if err := s.Store.Housekeep(t.Context(), s.Clock.Now().Add(store.CondemnedFor), 0, 1000); err != nil {
		t.Fatal(err)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM condemned"); n != 0 {
		t.Errorf("%d versions are still condemned", n)
	}
}

// A row that comes to have the key between the look and the removal keeps its version.
// Without the reference check it would be deleted: the control shows it.
func TestAVersionThatIsReferencedMeanwhileStays(t *testing.T) {
	t.Parallel()
	for _, checked := range []bool{true, false} {
		t.Run(fmt.Sprintf("check=%v", checked), func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			v := complete(t, s, "crc64", 10)
			key := ourKey(1, "")
			version := put(t, s, key, 10)
			s.Clock.Advance(25 * time.Hour)
			r := runner(s)
			r.Records = records{Records: s.Store, condemn: func(ctx context.Context, real func() ([]int, error), fs []models.Finding) ([]int, error) {
				if err := register(t, s, v.FileID, key, version); err != nil {
					t.Error(err)
				}
				if checked {
					return real()
				}
				return []int{0}, nil
			}}
			report := run(t, r, reconcile.Options{Repair: true})
			_, err := s.Objects.Head(t.Context(), key, version)
			if checked && err != nil {
				t.Errorf("the referenced version: %v", err)
			}
			if !checked && models.ObjectKind(err) != models.ObjectAbsent {
				t.Errorf("the control does not show what the check is for: %v", err)
			}
			if c := report.Count(models.FindOrphanObject); checked && (c.Failed != 1 || c.Mended != 0) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// What is condemned cannot be registered; once it is spared it can.
func TestACondemnedVersionCannotBeImported(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := complete(t, s, "crc64", 10)
	now := s.Clock.Now()
	run := models.Reconciliation{ID: models.NewRunID(), Store: stack.Main, Source: models.SourceListing, Repair: true, StartedAt: now,
		Cutoff: now, LeaseUntil: now.Add(time.Hour)}
	if ok, err := s.Store.BeginReconciliation(t.Context(), run); !ok || err != nil {
		t.Fatal(ok, err)
	}
	fs := []models.Finding{{Kind: models.FindOrphanObject, Key: ourKey(1, ""), VersionID: "v1"}, {Kind: models.FindOrphanObject, Key: v.Key, VersionID: v.VersionID}}
	places, err := s.Store.Condemn(t.Context(), run.ID, stack.Main, fs, now)
	if err != nil || !slices.Equal(places, []int{0}) {
		t.Fatalf("places %v, error %v: the referenced version must not be condemned", places, err)
	}
	err = register(t, s, v.FileID, ourKey(1, ""), "v1")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.ConstraintName != "replicas_not_condemned" {
		t.Errorf("registered: %v", err)
	}
	if err := register(t, s, v.FileID, ourKey(1, ""), "v2"); err != nil {
		t.Errorf("another version: %v", err)
	}
	exec(t, s, "DELETE FROM replicas WHERE version_id = 'v2'")
	if err := s.Store.Spare(t.Context(), run.ID, stack.Main, fs[:1], now); err != nil {
		t.Fatal(err)
	}
	if err := register(t, s, v.FileID, ourKey(1, ""), "v1"); err != nil {
		t.Errorf("a spared version: %v", err)
	}
}

// bucket lets a test change what the store does.
type bucket struct {
	reconcile.Objects
	remove func(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error)
	head   func(ctx context.Context, key, version string) (models.Object, error)
}

func (b bucket) DeleteVersions(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error) {
	if b.remove != nil {
		return b.remove(ctx, refs)
	}
	return b.Objects.DeleteVersions(ctx, refs)
}

func (b bucket) Head(ctx context.Context, key, version string) (models.Object, error) {
	if b.head != nil {
		return b.head(ctx, key, version)
	}
	return b.Objects.Head(ctx, key, version)
}

// Control: a delete without the version id only hides, and the second run is not clean.
func TestWithoutTheVersionIDNothingGoes(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	complete(t, s, "crc64", 10)
	key := ourKey(1, "")
	put(t, s, key, 10)
	s.Clock.Advance(25 * time.Hour)
	r := runner(s)
	r.Objects = bucket{Objects: s.Objects, remove: func(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error) {
		var out []models.DeleteResult
		for _, ref := range refs {
			hide(t, s, ref.Key)
			out = append(out, models.DeleteResult{Key: ref.Key, VersionID: ref.VersionID})
		}
		return out, nil
	}}
	run(t, r, reconcile.Options{Repair: true})
	if c := run(t, runner(s), reconcile.Options{}).Findings[models.FindOrphanObject]; c.Found != 2 {
		t.Errorf("found %d, want the version and its marker", c.Found)
	}
	run(t, runner(s), reconcile.Options{Repair: true})
	if report := run(t, runner(s), reconcile.Options{}); !report.Clean() {
		t.Errorf("found %v", found(report))
	}
}

// A file that is deleted, and one that is made, while the walk goes are no findings.
func TestWhatMovesMeanwhileIsNoFinding(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	gone := complete(t, s, "crc64", 10)
	erase(t, s, gone.Key, gone.VersionID) // it looks missing when it is walked past
	s.Clock.Advance(25 * time.Hour)
	r := runner(s)
	var once sync.Once
	r.Objects = bucket{Objects: s.Objects, head: func(ctx context.Context, key, version string) (models.Object, error) {
		once.Do(func() { remove(t, s, gone.FileID) })
		return s.Objects.Head(ctx, key, version)
	}}
	if report := run(t, r, reconcile.Options{Repair: true}); !report.Clean() {
		t.Errorf("found %v", found(report))
	}
}

func TestOneRunAtATimeAndTheDeadGiveWay(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := complete(t, s, "crc64", 10)
	now := s.Clock.Now()
	dead := models.Reconciliation{ID: models.NewRunID(), Store: stack.Main, Source: models.SourceListing, Repair: true, StartedAt: now,
		Cutoff: now, LeaseUntil: now.Add(time.Minute)}
	if ok, err := s.Store.BeginReconciliation(t.Context(), dead); !ok || err != nil {
		t.Fatal(ok, err)
	}
	f := []models.Finding{{Kind: models.FindOrphanObject, Key: ourKey(1, ""), VersionID: "v1", Mend: models.MendDelete}}
	if _, err := s.Store.Condemn(t.Context(), dead.ID, stack.Main, f, now); err != nil {
		t.Fatal(err)
	}
	if _, err := runner(s).Run(t.Context(), reconcile.Options{}); models.ErrorCode(err) != models.CodeBusy {
		t.Errorf("a second run: %v", err)
	}
	s.Clock.Advance(2 * time.Minute)
	run(t, runner(s), reconcile.Options{})
	runs, err := s.Store.Reconciliations(t.Context(), "", "", 10)
	if err != nil || len(runs) != 2 || runs[1].State != models.RunFailed || !strings.Contains(runs[1].LastError, "died") {
		t.Errorf("%+v, error %v", runs, err)
	}
	// The dead one wakes up, and changes nothing.
	before := s.Snapshot(t)
	if places, err := s.Store.Condemn(t.Context(), dead.ID, stack.Main, f, now); err == nil {
		t.Errorf("a dead run condemned %v", places)
	}
	if ok, err := s.Store.RenewReconciliation(t.Context(), dead.ID, now.Add(time.Hour)); ok || err != nil {
		t.Errorf("a dead run renewed: %v, %v", ok, err)
	}
	if ok, err := s.Store.FinishReconciliation(t.Context(), dead); ok || err != nil {
		t.Errorf("a dead run finished: %v, %v", ok, err)
	}
	if after := s.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
	// What it had condemned is spared, a day later.
	if err := register(t, s, v.FileID, ourKey(1, ""), "v1"); err == nil {
		t.Error("what a run may still delete was registered")
	}
	wantSpared(t, s)
	if err := register(t, s, v.FileID, ourKey(1, ""), "v1"); err != nil {
		t.Errorf("%v", err)
	}
}

// Stopped between S3's delete and its note: the run says that it failed, and the next
// one makes all clean.
func TestAStoppedRunIsMadeUpByTheNext(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted=%v", after), func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			complete(t, s, "crc64", 10)
			for i := range 5 {
				put(t, s, ourKey(i, ""), 1)
			}
			s.Clock.Advance(25 * time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			r := runner(s)
			r.Objects = bucket{Objects: s.Objects, remove: func(_ context.Context, refs []models.VersionRef) ([]models.DeleteResult, error) {
				defer cancel()
				if !after {
					return nil, context.Canceled
				}
				return s.Objects.DeleteVersions(t.Context(), refs)
			}}
			if _, err := r.Run(ctx, reconcile.Options{Repair: true}); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			runs, err := s.Store.Reconciliations(t.Context(), stack.Main, "", 1)
			if err != nil || runs[0].State != models.RunFailed || runs[0].Report.Findings[models.FindOrphanObject].Found != 5 {
				t.Errorf("%+v, error %v", runs, err)
			}
			run(t, runner(s), reconcile.Options{Repair: true})
			if report := run(t, runner(s), reconcile.Options{}); !report.Clean() || len(listed(t, s)) != 1 {
				t.Errorf("found %v, listed %v", found(report), listed(t, s))
			}
			wantSpared(t, s)
		})
	}
}

// A store that fails ends the run: what was not seen is not judged.
func TestAFailingStoreEndsTheRun(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := complete(t, s, "crc64", 10)
	erase(t, s, v.Key, v.VersionID)
	r := runner(s)
	r.Objects = bucket{Objects: s.Objects, head: func(context.Context, string, string) (models.Object, error) {
		return models.Object{}, &models.ObjectError{Kind: models.ObjectDenied, Op: "HeadObject", Code: "AccessDenied", Err: errors.New("no")}
	}}
	report, err := r.Run(t.Context(), reconcile.Options{})
	if models.ObjectKind(err) != models.ObjectDenied || !report.Clean() {
		t.Errorf("error %v, found %v", err, found(report))
	}
	if state := stack.Query[string](t, s, "SELECT state FROM reconciliations"); state != "failed" {
		t.Errorf("the run is %s", state)
	}
}

// Counters are counted again while owners go on: nothing is lost, nothing doubled.
func TestCountersAreMendedWhileTheyMove(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	open(t, s, "resume", 10)
	exec(t, s, "UPDATE quotas SET files = 0, bytes = 3")
	exec(t, s, "UPDATE store_usage_slots SET replicas = replicas + 100, bytes = 0")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				owner := stack.Caller(fmt.Sprint("owner", i))
				v, err := s.Service.Open(t.Context(), owner, controlplane.OpenRequest{Collection: "resume", Name: "a.pdf", Size: int64(100 + j)})
				if err != nil {
					t.Error(err)
					continue
				}
				if _, err := s.Service.Abort(t.Context(), owner, v.ID); err != nil {
					t.Error(err)
				}
				if j%4 == 0 {
					exec(t, s, "UPDATE quotas SET bytes = bytes + 1 WHERE owner = $1", fmt.Sprint("owner", i))
				}
			}
		})
	}
	for range 5 {
		run(t, runner(s), reconcile.Options{Repair: true})
	}
	wg.Wait()
	run(t, runner(s), reconcile.Options{Repair: true})
	if report := run(t, runner(s), reconcile.Options{}); !report.Clean() {
		t.Errorf("found %v", found(report))
	}
	if n := stack.Query[int64](t, s, "SELECT replicas FROM store_usage"); n != 41 {
		t.Errorf("%d replicas are counted, want 41", n)
	}
}

func TestDailyRunsWhenItIsDue(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	complete(t, s, "crc64", 10)
	d := &reconcile.Daily{Runners: []*reconcile.Runner{runner(s)}, Every: 24 * time.Hour}
	for i, want := range []int{1, 0, 1, 0} {
		if ran, err := d.RunOnce(t.Context()); ran != want || err != nil {
			t.Errorf("pass %d: %d runs, error %v", i, ran, err)
		}
		s.Clock.Advance(13 * time.Hour)
	}
}

func TestRenderSaysWhatMatters(t *testing.T) {
	t.Parallel()
	s := seed(t)
	s.Clock.Advance(25 * time.Hour)
	report := run(t, runner(s.Stack), reconcile.Options{})
	var b bytes.Buffer
	if err := reconcile.Render(&b, report); err != nil {
		t.Fatal(err)
	}
	for kind, c := range report.Findings {
		if !strings.Contains(b.String(), string(kind)) {
			t.Errorf("says nothing of %s", kind)
		}
		for _, f := range c.Examples {
			if !strings.Contains(b.String(), f.Key) {
				t.Errorf("does not name %s", f.Key)
			}
		}
	}
	if !strings.Contains(b.String(), "--repair") {
		t.Error("does not say how to mend")
	}
	t.Log("\n" + b.String())
}

// An import takes an orphan out of reconcile's reach; what else lies under its key is
// foreign; and with its file all of it goes.
func TestImportedIsNoOrphan(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	shaped, plain := prefix+"default/"+strings.Repeat("a", 32)+".pdf", prefix+"old/what people called it.pdf"
	admin := stack.Caller("admin")
	var files []models.FileID
	for _, key := range []string{shaped, plain} {
		put(t, s, key, 5)
		version := put(t, s, key, 7)
		f, _, err := s.Service.Import(t.Context(), admin, controlplane.ImportRequest{Key: key, Owner: "ann", Collection: "default", Name: "a.pdf"})
		if err != nil || f.VersionID != version {
			t.Fatalf("%+v, %v", f, err)
		}
		files = append(files, f.ID)
	}
	lone := prefix + "default/" + strings.Repeat("b", 32) + ".pdf"
	orphan := put(t, s, lone, 5)
	s.Clock.Advance(40 * 24 * time.Hour)
	report := run(t, runner(s), reconcile.Options{Repair: true})
	for _, f := range found(report) {
		if strings.Contains(f, "orphan_object") && !strings.Contains(f, orphan) || strings.Contains(f, "missing") {
			t.Errorf("of an import: %s", f)
		}
	}
	if got := strings.Join(found(report), "\n"); !strings.Contains(got, orphan) || strings.Count(got, "foreign") != 2 {
		t.Errorf("found:\n%s", got)
	}
	reap(t, s)
	for _, id := range files {
		if u, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), id); err != nil || u.File.Size != 7 {
			t.Errorf("%s: %v", id, err)
		}
		remove(t, s, id)
	}
	reap(t, s)
	if left := listed(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM files WHERE state = 'deleted'"); n != 2 {
		t.Errorf("%d are deleted", n)
	}
	// A key is a file's once.
	put(t, s, plain, 5)
	if _, _, err := s.Service.Import(t.Context(), admin, controlplane.ImportRequest{Key: plain, Owner: "ann", Collection: "default", Name: "a.pdf"}); models.ErrorCode(err) != models.CodeDuplicateFile {
		t.Errorf("a key that was a file's: %v", err)
	}
}

// What reconcile is about to delete is not imported; what it has spared is.
func TestCondemnedIsNotImported(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	key := prefix + "default/" + strings.Repeat("a", 32) + ".pdf"
	version := put(t, s, key, 5)
	exec(t, s, `INSERT INTO reconciliations (id, store, source, repair, state, cutoff, started_at, lease_until)
		VALUES ('run_1', 'main', 'listing', true, 'running', now(), now(), now())`)
	exec(t, s, `INSERT INTO condemned (store, key, version_id, run_id) VALUES ('main', $1, $2, 'run_1')`, key, version)
	req := controlplane.ImportRequest{Key: key, Owner: "ann", Collection: "default", Name: "a.pdf"}
	before := s.Snapshot(t)
	if _, _, err := s.Service.Import(t.Context(), stack.Caller("admin"), req); models.ErrorCode(err) != models.CodeBusy {
		t.Errorf("a condemned version: %v", err)
	}
	if after := s.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
	exec(t, s, `DELETE FROM condemned`)
	if _, _, err := s.Service.Import(t.Context(), stack.Caller("admin"), req); err != nil {
		t.Errorf("a spared version: %v", err)
	}
}

// lookThen does something after an object was looked at, once.
type lookThen struct {
	controlplane.Objects
	then func()
}

func (l *lookThen) Head(ctx context.Context, key, version string) (models.Object, error) {
	o, err := l.Objects.Head(ctx, key, version)
	if f := l.then; f != nil {
		l.then = nil
		f()
	}
	return o, err
}

// An object that was there when an import looked at it, and that reconcile has deleted
// before the import is recorded, does not become a file.
func TestDeletedWhileItIsImported(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	complete(t, s, "crc64", 10)
	put(t, s, ourKey(1, ""), 5)
	s.Clock.Advance(25 * time.Hour)
	svc := s.NewService(t, s.Store, &lookThen{s.Objects, func() { run(t, runner(s), reconcile.Options{Repair: true}) }})
	f, _, err := svc.Import(t.Context(), stack.Caller("admin"), controlplane.ImportRequest{Key: ourKey(1, ""), Owner: "ann", Collection: "default", Name: "a.pdf"})
	if err == nil {
		t.Errorf("file %s is %s, and the store holds %v", f.ID, f.State, listed(t, s))
	}
}

// A run that is stopped past its lease between its note and its delete, and wakes up, does
// not delete what was imported meanwhile.
func TestAWokenRunDeletesNothingThatIsReferenced(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	complete(t, s, "crc64", 10)
	version := put(t, s, ourKey(1, ""), 5)
	s.Clock.Advance(25 * time.Hour)
	imported := false
	r := runner(s)
	r.Objects = bucket{Objects: s.Objects, remove: func(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error) {
		s.Clock.Advance(10 * time.Minute) // stopped
		run(t, runner(s), reconcile.Options{})
		_, _, err := s.Service.Import(ctx, stack.Caller("admin"), controlplane.ImportRequest{Key: ourKey(1, ""), Owner: "ann", Collection: "default", Name: "a.pdf"})
		imported = err == nil
		return s.Objects.DeleteVersions(ctx, refs)
	}}
	_, _ = r.Run(t.Context(), reconcile.Options{Repair: true})
	if _, err := s.Objects.Head(t.Context(), ourKey(1, ""), version); imported && err != nil {
		t.Errorf("the version of an active file: %v", err)
	}
}
