package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"berth/controlplane"
	"berth/controlplane/objects"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// put writes a version of a key that is not ours and returns its version id.
func put(t *testing.T, s *stack.Stack, key string, meta map[string]string) string {
	t.Helper()
	out, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &key, Body: bytes.NewReader([]byte("x")), Metadata: meta})
	if err != nil {
		t.Fatal(err)
	}
	return *out.VersionId
}

func told(t *testing.T, s *stack.Stack, events ...models.ObjectEvent) {
	t.Helper()
	for i := range events {
		events[i].Store, events[i].Created = stack.Main, true
	}
	for _, err := range s.Service.Settle(t.Context(), events) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// days lets time pass with the loops at work.
func days(t *testing.T, s *stack.Stack, n int) {
	t.Helper()
	for range n {
		s.Clock.Advance(24 * time.Hour)
		if _, err := s.Service.Repair(t.Context(), time.Minute, 100); err != nil {
			t.Fatal(err)
		}
		reap(t, s)
	}
}

// A foreign version is noted and reaped, whatever told of it and in whatever company.
func TestForeignVersionsAreNeverMissed(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(*stack.Stack, controlplane.UploadView, string){
		"in one batch with ours": func(s *stack.Stack, v controlplane.UploadView, foreign string) {
			told(t, s, models.ObjectEvent{Key: v.Key, VersionID: first(t, s, v.Key, foreign)}, models.ObjectEvent{Key: v.Key, VersionID: foreign})
		},
		"without its version": func(s *stack.Stack, v controlplane.UploadView, foreign string) {
			told(t, s, models.ObjectEvent{Key: v.Key, VersionID: first(t, s, v.Key, foreign)})
			told(t, s, models.ObjectEvent{Key: v.Key})
		},
	} {
		for what, ours := range map[string]bool{"a stranger's": false, "with our metadata": true} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				s := stack.New(t)
				v := open(t, s, "default", 10)
				stack.MustSend(t, v.Parts[0], stack.Bytes(1, 10))
				var meta map[string]string
				if ours {
					meta = map[string]string{models.MetaUpload: string(v.ID)}
				}
				tell(s, v, put(t, s, v.Key, meta))
				reap(t, s)
				wantHeld(t, s, 1, 0)
				one(t, s, "active", "SELECT state FROM files")
			})
		}
	}
}

// first is the version of a key that is not the one given.
func first(t *testing.T, s *stack.Stack, key, not string) string {
	t.Helper()
	for v, err := range s.Objects.ListVersions(t.Context(), key) {
		if err != nil {
			t.Fatal(err)
		}
		if v.VersionID != not {
			return v.VersionID
		}
	}
	t.Fatal("no other version")
	return ""
}

// racing begins the same upload by another request while its own Create is under way, and
// never gets to abort what it made.
type racing struct {
	*objects.Store
	before func()
}

func (r racing) CreateMultipart(ctx context.Context, spec models.ObjectSpec) (string, error) {
	r.before()
	return r.Store.CreateMultipart(ctx, spec)
}

func (r racing) AbortMultipart(context.Context, string, string) error { return errors.New("died") }

func TestMultipartThatLostItsRaceIsFound(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	req := controlplane.OpenRequest{Collection: "crc64", Name: "a.bin", Size: 6 * mib, Continue: true,
		Checksum: &models.Checksum{Value: models.CRC64NVME.Sum(stack.Bytes(1, 6*mib))}}
	var v controlplane.UploadView
	slow := s.NewService(t, s.Store, racing{s.Objects, func() {
		var err error
		if v, err = s.Service.Open(t.Context(), stack.Caller("ann"), req); err != nil {
			t.Error(err)
		}
	}})
	if _, err := slow.Open(t.Context(), stack.Caller("ann"), req); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, s, 0, 2)
	body := stack.Bytes(1, 6*mib)
	for _, p := range v.Parts {
		stack.MustSend(t, p, body[(p.Number-1)*5*mib:min(p.Number*5*mib, 6*mib)])
	}
	if _, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{}); err != nil {
		t.Fatal(err)
	}
	days(t, s, 2)
	wantHeld(t, s, 1, 0)
	one(t, s, "active", "SELECT state FROM files")
}

// What a step derived waits for its parent, however long that is blocked.
func TestDerivedFilesWaitForABlockedParent(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	process(t, s, processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		if c.Step.Name == "first" {
			_, err := derive(t, s, c, "a.png")
			return models.StepAnswer{Verdict: models.StepPass}, err
		}
		return models.StepAnswer{Verdict: models.StepBlock}, nil
	}))
	days(t, s, 3)
	if _, err := s.Service.Unblock(t.Context(), stack.Caller("admin"), v.FileID); err != nil {
		t.Fatal(err)
	}
	one(t, s, int64(2), "SELECT count(*) FROM files WHERE state = 'active'")
	wantHeld(t, s, 2, 0)
}

// A task that ends its worker each time is a person's after its attempts.
func TestTakeOversEnd(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 10)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	repairer := worker.Repairer{Sweep: s.Service, Keep: s.Store, Quiet: time.Minute, Limit: 10, Now: s.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
	claims := 0
	for range 3 * models.DefaultMaxAttempts {
		now := s.Clock.Now()
		k, err := s.Store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Owner: "dies", Until: now.Add(time.Minute), Limit: 1, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		claims += len(k)
		s.Clock.Advance(2 * time.Minute)
	}
	if claims != models.DefaultMaxAttempts {
		t.Errorf("claimed %d times, want %d", claims, models.DefaultMaxAttempts)
	}
	if _, err := repairer.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	one(t, s, "failed", "SELECT state FROM tasks WHERE kind = 'reap' AND state <> 'cancelled'")
}

// keeper counts what repair still does when its sweep fails.
type keeper struct {
	*store.Store
	late int
}

func (k *keeper) PastDeadline(ctx context.Context, now time.Time, slack time.Duration) (int64, error) {
	k.late++
	return k.Store.PastDeadline(ctx, now, slack)
}

func TestOneBadSessionDoesNotSilenceTheRest(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	open(t, s, "default", 10)
	if _, err := s.Pool().Exec(t.Context(), "UPDATE uploads SET store = 'gone'"); err != nil {
		t.Fatal(err)
	}
	s.Clock.Advance(200 * 24 * time.Hour) // past all partitions, too
	open(t, s, "default", 10)
	k := &keeper{Store: s.Store}
	repairer := worker.Repairer{Sweep: s.Service, Keep: k, Quiet: time.Minute, Limit: 10, Now: s.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
	_, _ = repairer.RunOnce(t.Context())
	if k.late != 1 {
		t.Error("the gauge of what is late was not looked at")
	}
	if err := s.Store.Housekeep(t.Context(), s.Clock.Now(), 0, 10); err != nil {
		t.Errorf("history: %v", err)
	}
	one(t, s, int64(0), "SELECT count(*) FROM history_rest")
}

// A session that a store never tells of is closed in the end, and its place is free.
func TestHopelessSessionsEnd(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	if _, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "resume", Name: "a.pdf", Size: 10}); err != nil {
		t.Fatal(err)
	}
	refused := s.NewService(t, s.Store, denied{s.Objects})
	s.Clock.Advance(36 * time.Hour)
	if _, err := refused.Repair(t.Context(), time.Minute, 10); err == nil {
		t.Error("a refusal is not told")
	}
	one(t, s, "uploading", "SELECT state FROM uploads")
	s.Clock.Advance(36 * time.Hour)
	if _, err := refused.Repair(t.Context(), time.Minute, 10); err != nil {
		t.Error(err)
	}
	one(t, s, "expired", "SELECT state FROM uploads")
	one(t, s, int64(0), "SELECT files + open FROM quotas")
}

type denied struct{ *objects.Store }

func (denied) Head(context.Context, string, string) (models.Object, error) {
	return models.Object{}, &models.ObjectError{Kind: models.ObjectDenied, Op: "HeadObject", Code: "AccessDenied", Err: errors.New("no")}
}

// Parts that are seen are progress, as parts that are signed are.
func TestPartsSeenSlideTheDeadline(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "crc64", 6*mib)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 5*mib))
	s.Clock.Advance(50 * time.Minute)
	for range 2 {
		if _, err := s.Service.Parts(t.Context(), stack.Caller("ann"), v.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := stack.Query[time.Time](t, s, "SELECT expires_at FROM uploads"); !got.Equal(s.Clock.Now().Add(time.Hour)) {
		t.Errorf("ends at %v, now is %v", got, s.Clock.Now())
	}
	s.Clock.Advance(30 * time.Minute)
	if _, err := s.Service.Parts(t.Context(), stack.Caller("ann"), v.ID); err != nil { // nothing new is no progress
		t.Fatal(err)
	}
	if got := stack.Query[time.Time](t, s, "SELECT expires_at FROM uploads"); !got.Equal(s.Clock.Now().Add(30 * time.Minute)) {
		t.Errorf("slid without progress: %v, now is %v", got, s.Clock.Now())
	}
}

func TestNextEventIsOneThatMayBeClaimed(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 10)
	if at, ok, err := s.Store.NextEvent(t.Context()); err != nil || !ok || at.After(s.Clock.Now()) {
		t.Fatalf("next %v %v, error %v", at, ok, err)
	}
	publish(t, publisher(s, &target{name: "x", down: true}))
	if _, err := s.Service.Block(t.Context(), stack.Caller("admin"), v.FileID, "x"); err != nil {
		t.Fatal(err)
	}
	if at, ok, err := s.Store.NextEvent(t.Context()); err != nil || !ok || !at.After(s.Clock.Now()) {
		t.Errorf("next %v %v, error %v: an event behind another is not due", at, ok, err)
	}
}
