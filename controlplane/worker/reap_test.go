package worker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

const mib = 1 << 20

func reaper(s *stack.Stack, owner string) *worker.Reaper {
	return &worker.Reaper{
		Tasks: s.Store, Owner: owner, Lease: time.Minute, Limit: 8, Now: s.Clock.Now,
		Stores:  func(models.StoreName) (worker.ReapObjects, bool) { return s.Objects, true },
		Log:     slog.New(slog.DiscardHandler),
		Metrics: worker.NewMetrics(nil),
	}
}

func reap(t *testing.T, s *stack.Stack) worker.ReapCounts {
	t.Helper()
	c, err := reaper(s, "one").RunOnce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// open begins an upload of ann's.
func open(t *testing.T, s *stack.Stack, collection string, size int64) controlplane.UploadView {
	t.Helper()
	v, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: collection, Name: "a.pdf", Size: size})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func active(t *testing.T, s *stack.Stack, size int) controlplane.UploadView {
	t.Helper()
	v := open(t, s, "crc64", int64(size))
	for _, p := range v.Parts {
		stack.MustSend(t, p, stack.Bytes(1, int(p.Size)))
	}
	v, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// held counts what S3 holds: versions with markers, and open multiparts.
func held(t *testing.T, s *stack.Stack) (versions, multiparts int) {
	t.Helper()
	for _, err := range s.Objects.ListVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		versions++
	}
	for _, err := range s.Objects.ListMultiparts(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		multiparts++
	}
	return versions, multiparts
}

func wantHeld(t *testing.T, s *stack.Stack, versions, multiparts int) {
	t.Helper()
	if v, m := held(t, s); v != versions || m != multiparts {
		t.Errorf("S3 holds %d versions and %d multiparts, want %d and %d", v, m, versions, multiparts)
	}
}

func one[T comparable](t *testing.T, s *stack.Stack, want T, q string, a ...any) {
	t.Helper()
	if got := stack.Query[T](t, s, q, a...); got != want {
		t.Errorf("%s: %v, want %v", q, got, want)
	}
}

func TestDeletedFileLeavesNothing(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 11*mib)
	key := v.Key
	// Foreign versions and a marker under the same key, and a neighbour with the key as prefix.
	for range 3 {
		if _, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &key, Body: bytes.NewReader([]byte("x"))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.S3.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &s.S3.Bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
	neighbour := key + ".not"
	if _, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &neighbour, Body: bytes.NewReader([]byte("x"))}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	_, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), v.FileID)
	if models.ErrorCode(err) != models.CodeNotReady {
		t.Errorf("reading a deleting file: %v", err)
	}
	if c := reap(t, s); c.Reaped != 1 || c.Versions != 5 {
		t.Errorf("counts %+v, want 1 reaped of 5 versions", c)
	}
	wantHeld(t, s, 1, 0)
	one(t, s, "deleted", "SELECT state FROM files")
	one(t, s, "deleted", "SELECT state FROM replicas")
	one(t, s, int64(0), "SELECT COALESCE(sum(bytes) + sum(replicas), 0)::bigint FROM store_usage")
	one(t, s, int64(5), "SELECT count(*) FROM history WHERE what = 'object' AND to_state = 'deleted'")
	one(t, s, int64(5), "SELECT count(*) FROM history WHERE what = 'object' AND to_state = 'deleting'")
	one(t, s, int64(1), "SELECT count(*) FROM outbox WHERE type = 'file.deleted'")
}

func TestForeignVersionsGoTheFileStays(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 100)
	key := v.Key
	put, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &key, Body: bytes.NewReader([]byte("evil"))})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, err := range s.Service.Settle(t.Context(), []models.ObjectEvent{{Store: stack.Main, Key: key, VersionID: *put.VersionId, Created: true}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	wantHeld(t, s, 2, 0)
	if c := reap(t, s); c.Reaped != 1 || c.Versions != 1 {
		t.Errorf("counts %+v", c)
	}
	wantHeld(t, s, 1, 0)
	if _, err := s.Objects.Head(t.Context(), key, v.VersionID); err != nil {
		t.Errorf("the file's own version: %v", err)
	}
	one(t, s, "active", "SELECT state FROM files")
	one(t, s, int64(1), "SELECT count(*) FROM foreign_versions WHERE reaped_at IS NOT NULL")
}

// The URL of a single PUT outlives an abort: what it still lets in is swept again.
func TestAbortedSinglePutIsSweptAgain(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 100)
	if _, err := s.Service.Abort(t.Context(), stack.Caller("ann"), v.ID); err != nil {
		t.Fatal(err)
	}
	if c := reap(t, s); c.Reaped != 1 {
		t.Fatalf("counts %+v", c)
	}
	one(t, s, "delete_pending", "SELECT state FROM replicas")
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100)) // late, and no event tells of it
	wantHeld(t, s, 1, 0)
	if c := reap(t, s); c.Claimed != 0 {
		t.Errorf("swept before it was due: %+v", c)
	}
	s.Clock.Advance(15*time.Minute + 10*time.Minute) // the URL's life and the grace
	if c := reap(t, s); c.Reaped != 1 || c.Versions != 1 {
		t.Errorf("counts %+v", c)
	}
	wantHeld(t, s, 0, 0)
	one(t, s, "deleted", "SELECT state FROM replicas")
	one(t, s, "failed", "SELECT state FROM files")
}

func TestLateObjectOfAClosedUploadIsReapedWhenTheEventTells(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 100)
	if _, err := s.Service.Abort(t.Context(), stack.Caller("ann"), v.ID); err != nil {
		t.Fatal(err)
	}
	reap(t, s)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	for _, err := range s.Service.Settle(t.Context(), []models.ObjectEvent{{Store: stack.Main, Key: v.Key, Created: true}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	reap(t, s)
	wantHeld(t, s, 0, 0)
	one(t, s, "failed", "SELECT state FROM files")
}

func TestAbandonedMultipartExpiresAndIsReaped(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "resume", Name: "a.pdf", Size: 6 * mib})
	if err != nil {
		t.Fatal(err)
	}
	wantHeld(t, s, 0, 1)
	// Before its time the task finds the upload open, and waits.
	if _, err := s.Pool().Exec(t.Context(), "UPDATE tasks SET run_at = $1", s.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	if c := reap(t, s); c.Postponed != 1 {
		t.Fatalf("counts %+v, want one postponed", c)
	}
	one(t, s, 0, "SELECT attempts FROM tasks")
	s.Clock.Advance(time.Hour)
	c, err := s.Service.Repair(t.Context(), time.Minute, 100)
	if err != nil || c.Expired != 1 {
		t.Fatalf("repair %+v, error %v", c, err)
	}
	one(t, s, int64(0), "SELECT files + bytes FROM quotas")
	one(t, s, "expired", "SELECT state FROM uploads")
	reap(t, s)
	wantHeld(t, s, 0, 0)
	s.Clock.Advance(11 * time.Minute)
	reap(t, s)
	one(t, s, "deleted", "SELECT state FROM replicas")
	_ = v
}

func TestAllPartsThereAtTheDeadlineIsTaken(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	whole := open(t, s, "crc64", 11*mib)
	for _, p := range whole.Parts {
		stack.MustSend(t, p, stack.Bytes(1, int(p.Size)))
	}
	part := open(t, s, "crc64", 11*mib)
	stack.MustSend(t, part.Parts[0], stack.Bytes(1, int(part.Parts[0].Size)))
	single := open(t, s, "crc64", 10)
	stack.MustSend(t, single.Parts[0], stack.Bytes(1, 10))
	s.Clock.Advance(2 * time.Hour)
	c, err := s.Service.Repair(t.Context(), time.Minute, 100)
	if err != nil || c.Finished != 2 || c.Expired != 1 {
		t.Fatalf("repair %+v, error %v", c, err)
	}
	one(t, s, "active", "SELECT state FROM files WHERE id = $1", string(whole.FileID))
	one(t, s, "failed", "SELECT state FROM files WHERE id = $1", string(part.FileID))
	one(t, s, "active", "SELECT state FROM files WHERE id = $1", string(single.FileID))
}

func TestLostEventIsMadeUpByRepair(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 100)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	s.Clock.Advance(2 * time.Minute)
	c, err := s.Service.Repair(t.Context(), time.Minute, 100)
	if err != nil || c.Finished != 1 {
		t.Fatalf("repair %+v, error %v", c, err)
	}
	one(t, s, "active", "SELECT state FROM files")
}

func TestTwoWorkersOneTask(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 10)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	total := 0
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c, err := reaper(s, fmt.Sprint("worker-", i)).RunOnce(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total += c.Claimed
		})
	}
	wg.Wait()
	if total != 1 {
		t.Errorf("claimed %d times", total)
	}
}

// A worker that wakes up after its lease has passed to another changes nothing.
func TestFencedWorkerChangesNothing(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 10)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	now := s.Clock.Now()
	stale, err := s.Store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Owner: "sleeper", Until: now.Add(time.Minute), Limit: 1, Now: now})
	if err != nil || len(stale) != 1 {
		t.Fatalf("claimed %d, error %v", len(stale), err)
	}
	plan, err := s.Store.BeginReap(t.Context(), stale[0], now)
	if err != nil || plan.Decision != models.Allowed {
		t.Fatalf("plan %+v, error %v", plan, err)
	}
	s.Clock.Advance(2 * time.Minute)
	if c := reap(t, s); c.Reaped != 1 {
		t.Fatalf("the other worker: %+v", c)
	}
	before := s.Snapshot(t)
	now = s.Clock.Now()
	if ok, err := s.Store.NoteDeletes(t.Context(), stale[0], plan.Replica, []models.ObjectVersion{{VersionID: "x"}}, models.ReplicaDeleting, now); ok || err != nil {
		t.Errorf("noted: %v, %v", ok, err)
	}
	if ok, err := s.Store.FinishReap(t.Context(), stale[0], plan, models.ReapOutcome{Failure: "late"}, now); ok || err != nil {
		t.Errorf("finished: %v, %v", ok, err)
	}
	if ok, err := s.Store.Renew(t.Context(), stale[0], now.Add(time.Hour), now); ok || err != nil {
		t.Errorf("renewed: %v, %v", ok, err)
	}
	if ok, err := s.Store.Finish(t.Context(), stale[0], models.TaskResult{To: models.TaskFailed, Err: "late"}, now); ok || err != nil {
		t.Errorf("finished: %v, %v", ok, err)
	}
	if p, err := s.Store.BeginReap(t.Context(), stale[0], now); err != nil || p.Decision != models.LeaseLost {
		t.Errorf("began again: %+v, %v", p, err)
	}
	if after := s.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
}

func TestFailuresAreRetriedThenLeftToAPerson(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 10)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	r := reaper(s, "one")
	r.Stores = func(models.StoreName) (worker.ReapObjects, bool) { return nil, false }
	attempts := 0
	for range 100 {
		c, err := r.RunOnce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		attempts += c.Failed
		s.Clock.Advance(2 * time.Hour)
	}
	if attempts != models.DefaultMaxAttempts {
		t.Errorf("%d attempts, want %d", attempts, models.DefaultMaxAttempts)
	}
	one(t, s, "delete_failed", "SELECT state FROM files")
	one(t, s, "delete_failed", "SELECT state FROM replicas")
	id := models.TaskID(stack.Query[string](t, s, "SELECT id FROM tasks WHERE state = 'failed'"))
	// By hand: the same task, its count kept, one attempt only.
	stranger := stack.Caller("admin")
	stranger.Tenant = "other"
	if _, err := s.Service.RetryTask(t.Context(), stranger, id); models.ErrorCode(err) != models.CodeNotFound {
		t.Errorf("another tenant's task: %v", err)
	}
	if page, err := s.Service.Tasks(t.Context(), stack.Caller("admin"), controlplane.TaskQuery{State: models.TaskFailed}); err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != id {
		t.Errorf("lists %+v, error %v", page.Tasks, err)
	}
	if _, err := s.Service.RetryTask(t.Context(), stack.Caller("admin"), id); err != nil {
		t.Fatal(err)
	}
	if c, _ := r.RunOnce(t.Context()); c.Failed != 1 {
		t.Errorf("counts %+v", c)
	}
	s.Clock.Advance(24 * time.Hour)
	if c, _ := r.RunOnce(t.Context()); c.Claimed != 0 {
		t.Errorf("a manual retry went on by itself: %+v", c)
	}
	one(t, s, models.DefaultMaxAttempts+1, "SELECT attempts FROM tasks WHERE id = $1", string(id))
	if _, err := s.Store.Retry(t.Context(), id, "owner:admin", s.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	if c := reap(t, s); c.Reaped != 1 {
		t.Errorf("counts %+v", c)
	}
	one(t, s, "deleted", "SELECT state FROM files")
	wantHeld(t, s, 0, 0)
}

func TestMissingReapTasksAreMade(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 10)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	open(t, s, "default", 10)
	if _, err := s.Pool().Exec(t.Context(), "DELETE FROM tasks"); err != nil {
		t.Fatal(err)
	}
	c, err := s.Service.Repair(t.Context(), time.Minute, 100)
	if err != nil || c.Ensured != 2 {
		t.Fatalf("repair %+v, error %v", c, err)
	}
	if c := reap(t, s); c.Reaped != 1 || c.Postponed != 1 {
		t.Errorf("counts %+v", c)
	}
}

// What is heard of a key while its last sweep is under way is swept again: the object may
// have come after the key was listed.
func TestHeardOfWhileSwept(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 100)
	if _, err := s.Service.Abort(t.Context(), stack.Caller("ann"), v.ID); err != nil {
		t.Fatal(err)
	}
	reap(t, s)
	s.Clock.Advance(2 * time.Hour)
	r := reaper(s, "w")
	tasks, err := s.Store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Owner: "w", Until: s.Clock.Now().Add(time.Minute), Limit: 1, Now: s.Clock.Now()})
	if err != nil || len(tasks) != 1 {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	p, err := s.Store.BeginReap(t.Context(), tasks[0], s.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	// The key was listed here, and held nothing.
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	settle(t, s, v.Key, "")
	if ok, err := s.Store.FinishReap(t.Context(), tasks[0], p, models.ReapOutcome{}, s.Clock.Now()); err != nil || !ok {
		t.Fatalf("%v %v", ok, err)
	}
	s.Clock.Advance(time.Second)
	for range 3 {
		if _, err := r.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Clock.Advance(time.Hour)
	}
	wantHeld(t, s, 0, 0)
}
