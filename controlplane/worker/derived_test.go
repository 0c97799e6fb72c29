package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// derive sends a file as a step does, by its lease token, and completes it.
func derive(t *testing.T, s *stack.Stack, c worker.StepCall, name string) (controlplane.UploadView, error) {
	t.Helper()
	who, err := s.Service.LeaseCaller(t.Context(), c.Task.ID, c.Token)
	if err != nil {
		return controlplane.UploadView{}, err
	}
	v, err := s.Service.Open(t.Context(), who, controlplane.OpenRequest{Collection: "checked", Parent: c.File.ID, Name: name, ContentType: "image/png", Size: 5})
	if err != nil {
		return v, err
	}
	stack.MustSend(t, v.Parts[0], []byte("small"))
	return s.Service.Complete(t.Context(), who, v.ID, controlplane.CompleteRequest{})
}

func TestDerivedFilesComeAndGoWithTheirParent(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	var calls []worker.StepCall
	process(t, s, processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		calls = append(calls, c)
		d, err := derive(t, s, c, c.Step.Name+".png")
		if err != nil || d.State != models.UploadCompleted {
			t.Errorf("derived: %s, error %v", d.State, err)
		}
		if _, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), d.FileID); models.ErrorCode(err) != models.CodeNotReady {
			t.Errorf("a derived file was read before its parent was published: %v", err)
		}
		if _, err := s.Service.Commit(t.Context(), stack.Caller("ann"), d.ID, controlplane.CommitRequest{Name: "x"}); models.ErrorCode(err) != models.CodeSessionNotCompleted {
			t.Errorf("a derived file was attached by hand: %v", err)
		}
		return models.StepAnswer{Verdict: models.StepPass}, nil
	}))
	one(t, s, int64(2), "SELECT count(*) FROM files WHERE state = 'active' AND parent_id = $1", string(v.FileID))
	one(t, s, int64(3), "SELECT count(*) FROM outbox WHERE type = 'file.active'")
	one(t, s, int64(1), "SELECT files FROM quotas") // what a step derives is not the owner's doing
	wantHeld(t, s, 3, 0)
	for _, c := range calls {
		if _, err := derive(t, s, c, "late.png"); models.ErrorCode(err) != models.CodeNotFound {
			t.Errorf("a token whose lease is over: %v", err)
		}
	}
	if _, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "checked", Parent: v.FileID, Name: "x", Size: 1}); models.ErrorCode(err) != models.CodeForbidden {
		t.Errorf("an owner derives: %v", err)
	}
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	reap(t, s)
	wantHeld(t, s, 0, 0)
	s.Clock.Advance(time.Hour) // the URLs that they were sent by have expired
	reap(t, s)
	one(t, s, int64(3), "SELECT count(*) FROM files WHERE state = 'deleted'")
}

// What a stale worker's step derived is not attached, and is gone.
func TestStaleDerivedFilesAreDropped(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	slow := processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		if _, err := derive(t, s, c, "stale.png"); err != nil {
			t.Error(err)
		}
		s.Clock.Advance(2 * time.Minute)
		other := processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
			_, err := derive(t, s, c, "fresh.png")
			return models.StepAnswer{Verdict: models.StepPass}, err
		})
		other.Owner = "two"
		process(t, s, other)
		return models.StepAnswer{Verdict: models.StepPass}, nil
	})
	if c, err := slow.RunOnce(t.Context()); err != nil || c.Lost != 1 {
		t.Fatalf("counts %+v, error %v", c, err)
	}
	one(t, s, int64(2), "SELECT count(*) FROM files WHERE state = 'active' AND name = 'fresh.png' AND parent_id = $1", string(v.FileID))
	one(t, s, "failed", "SELECT state FROM files WHERE name = 'stale.png'")
	reap(t, s)
	wantHeld(t, s, 3, 0)
}

func TestDerivedFilesOfADeletedVerdictGo(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	process(t, s, processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		_, err := derive(t, s, c, "a.png")
		return models.StepAnswer{Verdict: models.StepDelete}, err
	}))
	one(t, s, int64(2), "SELECT count(*) FROM files WHERE state = 'failed'")
	reap(t, s)
	wantHeld(t, s, 0, 0)
}

// The lease token opens nothing but what is derived, and only of the one file.
func TestLeaseTokenReachesNoFurther(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	mine := open(t, s, "checked", 10)
	done := active(t, s, 10)
	v := verified(t, s)
	process(t, s, processor(s, func(ctx context.Context, c worker.StepCall) (models.StepAnswer, error) {
		who, err := s.Service.LeaseCaller(ctx, c.Task.ID, c.Token)
		if err != nil {
			return models.StepAnswer{}, err
		}
		checks := map[string]error{}
		_, checks["another upload"] = s.Service.Upload(ctx, who, mine.ID)
		_, checks["its parent's upload"] = s.Service.Upload(ctx, who, v.ID)
		_, checks["abort"] = s.Service.Abort(ctx, who, mine.ID)
		_, checks["sign"] = s.Service.Sign(ctx, who, mine.ID, controlplane.SignRequest{From: 1, To: 1})
		_, checks["read"] = s.Service.ContentURL(ctx, who, done.FileID)
		_, checks["list"] = s.Service.Files(ctx, who, controlplane.FileQuery{})
		_, checks["delete"] = s.Service.Delete(ctx, who, done.FileID)
		_, checks["other parent"] = s.Service.Open(ctx, who, controlplane.OpenRequest{Parent: done.FileID, Name: "x", Size: 1})
		_, checks["other collection"] = s.Service.Open(ctx, who, controlplane.OpenRequest{Collection: "default", Name: "x", Size: 1})
		for what, err := range checks {
			if code := models.ErrorCode(err); code != models.CodeNotFound && code != models.CodeForbidden {
				t.Errorf("%s: %v", what, err)
			}
		}
		return models.StepAnswer{Verdict: models.StepPass}, nil
	}))
}

// A person who retries the chain of a file that is blocked by then takes nothing from it.
func TestRetryOfABlockedFilesChainKeepsWhatWasDerived(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	p := processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		if c.Step.Name != "first" {
			return models.StepAnswer{}, errors.New("no answer")
		}
		_, err := derive(t, s, c, "a.png")
		return models.StepAnswer{Verdict: models.StepBlock}, err
	})
	for range models.DefaultMaxAttempts + 5 {
		if _, err := p.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Clock.Advance(2 * time.Hour)
	}
	one(t, s, "blocked", "SELECT state FROM files WHERE parent_id IS NULL")
	id := models.TaskID(stack.Query[string](t, s, "SELECT id FROM tasks WHERE kind = 'process' AND state = 'failed'"))
	if _, err := s.Store.Retry(t.Context(), id, "owner:admin", s.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	process(t, s, p)
	if _, err := s.Service.Unblock(t.Context(), stack.Caller("admin"), v.FileID); err != nil {
		t.Fatal(err)
	}
	one(t, s, "active", "SELECT state FROM files WHERE parent_id IS NOT NULL")
}

// What a step sends is not the owner's to continue, though it has the same bytes.
func TestOwnerDoesNotContinueAStepsUpload(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	process(t, s, processor(s, func(ctx context.Context, c worker.StepCall) (models.StepAnswer, error) {
		who, err := s.Service.LeaseCaller(ctx, c.Task.ID, c.Token)
		if err != nil || c.Step.Name != "first" {
			return models.StepAnswer{Verdict: models.StepPass}, err
		}
		req := controlplane.OpenRequest{Collection: "checked", Name: "a.png", Size: 5, Checksum: &models.Checksum{Value: models.SHA256.Sum([]byte("small"))}}
		d, err := s.Service.Open(ctx, who, req)
		if err != nil {
			t.Error(err)
		}
		req.Continue = true
		own, err := s.Service.Open(ctx, stack.Caller("ann"), req)
		if err != nil || own.Resumed || own.ID == d.ID {
			t.Errorf("the owner was given %s, resumed %v, error %v; the step has %s", own.ID, own.Resumed, err, d.ID)
		}
		return models.StepAnswer{Verdict: models.StepPass}, nil
	}))
}

// A file that is blocked is not to be seen in its thumbnail either.
func TestDerivedFilesAreReadWhileTheirParentIs(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	process(t, s, processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		if c.Step.Name != "first" {
			return models.StepAnswer{Verdict: models.StepPass}, nil
		}
		_, err := derive(t, s, c, "a.png")
		return models.StepAnswer{Verdict: models.StepPass}, err
	}))
	thumbnail := models.FileID(stack.Query[string](t, s, "SELECT id FROM files WHERE parent_id IS NOT NULL"))
	for _, blocked := range []bool{false, true, false} {
		change := s.Service.Unblock
		if blocked {
			change = func(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
				return s.Service.Block(ctx, c, id, "a complaint")
			}
		}
		if _, err := change(t.Context(), stack.Caller("admin"), v.FileID); err != nil {
			t.Fatal(err)
		}
		for _, id := range []models.FileID{v.FileID, thumbnail} {
			_, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), id)
			if got := models.ErrorCode(err) == models.CodeNotReady; got != blocked {
				t.Errorf("blocked %v, %s: error %v", blocked, id, err)
			}
		}
	}
}

// What a step derives is not its owner's doing: neither a first limit nor reconcile counts it.
func TestDerivedFilesAreNotAdopted(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	process(t, s, processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		if _, err := derive(t, s, c, c.Step.Name+".png"); err != nil {
			t.Error(err)
		}
		return models.StepAnswer{Verdict: models.StepPass}, nil
	}))
	one(t, s, int64(1), "SELECT files FROM quotas")
	drift := func() []models.Drift {
		t.Helper()
		d, _, _, err := s.Store.Drift(t.Context(), stack.Main, s.Service.Limited(), models.Drift{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := drift(); len(d) != 0 {
		t.Errorf("drift where there is none: %+v", d)
	}
	exec(t, s, "UPDATE files SET guarded = false") // as if all had been before the limit
	exec(t, s, "DELETE FROM quotas")
	d := drift()
	if len(d) != 1 || d[0].RealCount != 1 {
		t.Fatalf("drift %+v", d)
	}
	if _, _, err := s.Store.MendDrift(t.Context(), d[0], s.Service.Limited()); err != nil {
		t.Fatal(err)
	}
	one(t, s, int64(1), "SELECT files FROM quotas")
}
