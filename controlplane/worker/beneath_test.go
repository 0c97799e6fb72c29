package worker_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/objects"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// Somebody with the bucket's credentials writes over a key before its upload was verified:
// the upload's own version lies beneath, is found from every side, and the other goes.
func TestOwnVersionBeneathAForeignOne(t *testing.T) {
	t.Parallel()
	complete := func(t *testing.T, s *stack.Stack, v controlplane.UploadView) {
		if _, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{}); err != nil {
			t.Error(err)
		}
	}
	repair := func(after time.Duration) func(*testing.T, *stack.Stack, controlplane.UploadView) {
		return func(t *testing.T, s *stack.Stack, _ controlplane.UploadView) {
			s.Clock.Advance(after)
			if c, err := s.Service.Repair(t.Context(), time.Minute, 10); err != nil || c.Finished != 1 {
				t.Errorf("repair %+v, error %v", c, err)
			}
		}
	}
	for name, enter := range map[string]func(t *testing.T, s *stack.Stack, v controlplane.UploadView){
		"the event of what was written last": func(t *testing.T, s *stack.Stack, v controlplane.UploadView) {
			settle(t, s, v.Key, latest(t, s, v.Key))
		},
		"an event without a version": func(t *testing.T, s *stack.Stack, v controlplane.UploadView) { settle(t, s, v.Key, "") },
		"complete":                   complete,
		"complete, with a checksum": func(t *testing.T, s *stack.Stack, v controlplane.UploadView) {
			wrong := models.Checksum{Algorithm: models.SHA256, Type: models.FullObject, Value: "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}
			if _, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{Checksum: &wrong}); models.ErrorCode(err) != models.CodeDigestMismatch {
				t.Errorf("a wrong claim: %v", err)
			}
			one(t, s, "uploading", "SELECT state FROM uploads")
			complete(t, s, v)
		},
		"repair, when it is quiet": repair(2 * time.Minute),
		"repair, at its deadline":  repair(2 * time.Hour),
		"the events of both at once": func(t *testing.T, s *stack.Stack, v controlplane.UploadView) {
			var events []models.ObjectEvent
			for version, err := range s.Objects.ListVersions(t.Context(), v.Key) {
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, models.ObjectEvent{Store: stack.Main, Key: v.Key, VersionID: version.VersionID, Created: true})
			}
			for _, err := range s.Service.Settle(t.Context(), events) {
				if err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			v := open(t, s, "default", 100)
			stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
			own := latest(t, s, v.Key)
			putRaw(t, s, v.Key, "shorter")
			putRaw(t, s, v.Key, string(stack.Bytes(2, 100))) // the same size, and not ours
			wantHeld(t, s, 3, 0)
			enter(t, s, v)
			one(t, s, "active", "SELECT state FROM files")
			one(t, s, own, "SELECT version_id FROM files")
			one(t, s, int64(1), "SELECT count(*) FROM outbox WHERE type = 'file.active'")
			if c := reap(t, s); c.Reaped != 1 || c.Versions != 2 {
				t.Errorf("counts %+v, want one reaped of two versions", c)
			}
			wantHeld(t, s, 1, 0)
			if _, err := s.Objects.Head(t.Context(), v.Key, own); err != nil {
				t.Errorf("the file's own version: %v", err)
			}
		})
	}
}

// Where nothing of the upload's own lies beneath, nothing becomes active: the session ends
// in its time, and nothing is left.
func TestNothingBeneathAForeignVersion(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]testkit.Versions{"versioned": testkit.Versioned, "unversioned": testkit.Unversioned} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.On(t, testkit.Bucket(t, kind))
			v := open(t, s, "default", 100)
			if kind == testkit.Unversioned {
				stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
			}
			putRaw(t, s, v.Key, string(stack.Bytes(2, 100)))
			settle(t, s, v.Key, "")
			if _, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{}); models.ErrorCode(err) != models.CodeMissingParts {
				t.Errorf("complete: %v", err)
			}
			one(t, s, "uploading", "SELECT state FROM uploads")
			s.Clock.Advance(2 * time.Hour)
			if c, err := s.Service.Repair(t.Context(), time.Minute, 10); err != nil || c.Expired != 1 {
				t.Errorf("repair %+v, error %v", c, err)
			}
			reap(t, s)
			wantHeld(t, s, 0, 0)
			one(t, s, "failed", "SELECT state FROM files")
			one(t, s, int64(0), "SELECT count(*) FROM outbox WHERE type = 'file.active'")
		})
	}
}

// What was written over a multipart's object, between S3's Complete and the answer, hides
// it no more than over a single PUT's.
func TestOwnVersionBeneathAfterComplete(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "crc64", 6*mib)
	for _, p := range v.Parts {
		stack.MustSend(t, p, stack.Bytes(1, int(p.Size)))
	}
	over := &overwriting{Store: s.Objects, after: func() { putRaw(t, s, v.Key, string(stack.Bytes(2, 6*mib))) }}
	if _, err := s.NewService(t, s.Store, over).Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{}); err == nil {
		t.Error("the lost answer was had")
	}
	s.Clock.Advance(10 * time.Minute)
	if c, err := s.Service.Repair(t.Context(), time.Minute, 10); err != nil || c.Finished != 1 {
		t.Errorf("repair %+v, error %v", c, err)
	}
	one(t, s, "active", "SELECT state FROM files")
	reap(t, s)
	wantHeld(t, s, 1, 0)
}

// overwriting is a store whose answer to Complete is lost, and under whose object
// somebody writes at once.
type overwriting struct {
	*objects.Store
	after func()
}

func (o *overwriting) CompleteMultipart(ctx context.Context, spec models.CompleteSpec) (models.Object, error) {
	if _, err := o.Store.CompleteMultipart(ctx, spec); err != nil {
		return models.Object{}, err
	}
	o.after()
	return models.Object{}, &models.ObjectError{Kind: models.ObjectUnavailable, Op: "CompleteMultipartUpload", Code: "none", Err: context.DeadlineExceeded}
}

// Without the right to list versions an upload is not found beneath, and nothing fails for
// that.
func TestBeneathWithoutTheRight(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 100)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	putRaw(t, s, v.Key, "over")
	svc := s.NewService(t, s.Store, unlisted{s.Objects})
	for _, err := range svc.Settle(t.Context(), []models.ObjectEvent{{Store: stack.Main, Key: v.Key, Created: true}}) {
		if err != nil {
			t.Error(err)
		}
	}
	one(t, s, "uploading", "SELECT state FROM uploads")
}

type unlisted struct{ *objects.Store }

func (unlisted) ListVersions(context.Context, string) iter.Seq2[models.ObjectVersion, error] {
	return func(yield func(models.ObjectVersion, error) bool) {
		yield(models.ObjectVersion{}, &models.ObjectError{Kind: models.ObjectDenied, Op: "ListObjectVersions", Code: "AccessDenied", Err: fmt.Errorf("no")})
	}
}

// latest is the version id of what lies at a key now.
func latest(t *testing.T, s *stack.Stack, key string) string {
	t.Helper()
	o, err := s.Objects.Head(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	return o.VersionID
}
