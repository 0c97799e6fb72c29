package crash_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"berth/controlplane"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/models"
)

// refusing is a store whose CreateMultipart fails, after something else has happened.
type refusing struct {
	timely
	meanwhile func()
}

func (f refusing) CreateMultipart(context.Context, models.ObjectSpec) (string, error) {
	f.meanwhile()
	return "", &models.ObjectError{Kind: models.ObjectUnavailable, Op: "CreateMultipartUpload", Code: "none", Err: errors.New("refused")}
}

// Two tabs open the same file. The first is refused by S3, but only after the second has
// gone on with the upload that they share: the first must not abort it.
func TestAFailedOpenLeavesWhatAnotherHasBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &run{t: t, w: w, p: w.start(t, nil)}
	first := w.startWith(t, nil, parts{objects: func(o timely) controlplane.Objects {
		return refusing{o, func() { r.open(request("reject", large, withSum)) }}
	}})
	if _, err := first.service.Open(t.Context(), caller(ann), request("reject", large, withSum)); models.ErrorCode(err) != models.CodeStoreUnavailable {
		t.Fatalf("the refused one: %v", err)
	}
	want(t, w, "uploading", "SELECT state FROM uploads")
	mustHold(t, w, r.p, false, "after the race")
	u, _, err := r.p.store.Upload(r.p.ctx, models.Whose{}, r.s.Upload)
	r.ok(err)
	r.ok(sendAll(r.p.ctx, r.p, u))
	r.complete()
	r.ok(w.settle(r.p))
	mustHold(t, w, r.p, true, "in the end")
	want(t, w, "active", "SELECT state FROM files")
}

// interrupted is a reaper's store that lets something happen once, when the versions have
// been listed and before they are deleted.
type interrupted struct {
	timely
	once      *sync.Once
	meanwhile func()
}

func (i interrupted) DeleteVersions(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error) {
	i.once.Do(i.meanwhile)
	return i.timely.DeleteVersions(ctx, refs)
}

// A foreign version that is noted while the reaper sweeps the key for another is swept too.
func TestAForeignVersionNotedDuringASweepIsSwept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &run{t: t, w: w, p: w.start(t, nil)}
	r.active(request("plain", small))
	r.s.Version = r.put("evil", "")
	r.ok(settle(r.p.ctx, &r.s, r.p))
	reaper := w.startWith(t, nil, parts{reap: func(o timely) worker.ReapObjects {
		return interrupted{o, &sync.Once{}, func() {
			r.s.Version = r.put("more evil", "")
			r.ok(settle(r.p.ctx, &r.s, r.p))
		}}
	}})
	r.ok(reaper.reap())
	mustHold(t, w, r.p, true, "in the end")
	want(t, w, 2, "SELECT count(*) FROM foreign_versions WHERE reaped_at IS NOT NULL")
}

// A detached replica is forgotten on purpose: its object stays, whatever is heard of it.
func TestADetachedReplicasObjectStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &run{t: t, w: w, p: w.start(t, nil)}
	r.active(request("plain", small))
	r.ok(deletes(r.p.ctx, &r.s, r.p))
	r.ok(w.settle(r.p))
	if _, err := w.s3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &w.s3.Bucket, Key: &r.s.Key, Body: bytes.NewReader([]byte("theirs"))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pool.Exec(t.Context(), "UPDATE replicas SET reason = $1", models.ReasonDetached); err != nil {
		t.Fatal(err)
	}
	r.ok(r.p.store.EnsureReap(r.p.ctx, r.s.Replica, w.clock.Now()))
	r.ok(r.p.reap())
	if _, err := w.raw.Head(t.Context(), r.s.Key, ""); err != nil {
		t.Errorf("the object of a detached replica: %v", err)
	}
	want(t, w, "succeeded", "SELECT state FROM tasks ORDER BY id DESC LIMIT 1")
}

// Two reapers at once on one task: one claims it.
func TestOneTaskOneWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &run{t: t, w: w, p: w.start(t, nil)}
	r.active(request("plain", small))
	r.ok(deletes(r.p.ctx, &r.s, r.p))
	var claimed [6]int
	var racing sync.WaitGroup
	for i := range claimed {
		p := w.startWith(t, nil, parts{tasks: func(s *store.Store) worker.ReapTasks { return s }})
		racing.Go(func() {
			c, err := p.reaper.RunOnce(p.ctx)
			if err != nil {
				t.Error(err)
			}
			claimed[i] = c.Claimed
		})
	}
	racing.Wait()
	n := 0
	for _, c := range claimed {
		n += c
	}
	if n != 1 {
		t.Errorf("claimed %d times", n)
	}
}
