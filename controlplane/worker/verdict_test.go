package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// A verdict that is said again has the answer of the first time, also when the file has
// moved on; another one with the same token is refused, and changes nothing.
func TestAVerdictSaidAgain(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	var calls []worker.StepCall
	p := processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		calls = append(calls, c)
		return models.StepAnswer{Later: true, Within: 10 * time.Minute}, nil
	})
	say := func(c worker.StepCall, v models.StepVerdict, why string) error {
		return s.Service.StepResult(t.Context(), c.Task.ID, c.Token, models.StepAnswer{Verdict: v, Reason: why})
	}
	process(t, s, p)
	if err := say(calls[0], models.StepBlock, "a virus"); err != nil {
		t.Fatal(err)
	}
	process(t, s, p)
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	check := func(when string) {
		t.Helper()
		before := s.Snapshot(t)
		if err := say(calls[0], models.StepBlock, "a virus"); err != nil {
			t.Errorf("%s: said again: %v", when, err)
		}
		for _, other := range []error{say(calls[0], models.StepPass, "a virus"), say(calls[0], models.StepBlock, "no, a joke")} {
			if models.ErrorCode(other) != models.CodeSessionClosed {
				t.Errorf("%s: another verdict: %v", when, other)
			}
		}
		stranger := calls[0]
		stranger.Token = models.LeaseToken(stranger.Task.ID, "guessed")
		if err := say(stranger, models.StepBlock, "a virus"); models.ErrorCode(err) != models.CodeNotFound {
			t.Errorf("%s: a guessed token: %v", when, err)
		}
		if after := s.Snapshot(t); after != before {
			t.Errorf("%s: changed\nfrom %s\nto   %s", when, before, after)
		}
	}
	check("while the second step runs")
	if err := say(calls[1], models.StepPass, ""); err != nil {
		t.Fatal(err)
	}
	one(t, s, "blocked", "SELECT state FROM files")
	check("when the file is blocked")
}

// 202, and a verdict after the lease has passed, before anybody else asked: taken, since
// nobody else has the lease; after somebody did: refused.
func TestAVerdictAfterItsLease(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	var calls []worker.StepCall
	p := processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		calls = append(calls, c)
		return models.StepAnswer{Later: true, Within: time.Minute}, nil
	})
	process(t, s, p)
	s.Clock.Advance(2 * time.Minute)
	process(t, s, p) // asked again, under another lease
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	before := s.Snapshot(t)
	if err := s.Service.StepResult(t.Context(), calls[0].Task.ID, calls[0].Token, models.StepAnswer{Verdict: models.StepDelete}); models.ErrorCode(err) != models.CodeNotFound {
		t.Errorf("the token of a lease that is over: %v", err)
	}
	if after := s.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
	if err := s.Service.StepResult(t.Context(), calls[1].Task.ID, calls[1].Token, models.StepAnswer{Verdict: models.StepPass}); err != nil {
		t.Error(err)
	}
	one(t, s, "processing", "SELECT state FROM files") // the second step is to come
}

// A file without its bytes cannot be processed: the task fails, and a person is told.
func TestAFileWithoutItsReplicaIsNotProcessed(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	exec(t, s, "UPDATE replicas SET is_primary = false")
	called := 0
	c := process(t, s, processor(s, func(context.Context, worker.StepCall) (models.StepAnswer, error) {
		called++
		return models.StepAnswer{Verdict: models.StepPass}, nil
	}))
	if c.Failed != 1 || called != 0 {
		t.Errorf("counts %+v, called %d times", c, called)
	}
	one(t, s, "failed the file has no primary replica that is ready", "SELECT state || ' ' || last_error FROM tasks WHERE kind = 'process'")
	exec(t, s, "UPDATE replicas SET is_primary = true")
	id := models.TaskID(stack.Query[string](t, s, "SELECT id FROM tasks WHERE kind = 'process'"))
	if _, err := s.Service.RetryTask(t.Context(), stack.Caller("admin"), id); err != nil {
		t.Fatal(err)
	}
	process(t, s, processor(s, says(map[string]models.StepVerdict{"first": "pass", "second": "pass"})))
	one(t, s, "active", "SELECT state FROM files")
}

// The Complete of something derived begins while its parent is being published: the verdict
// stands at the first try, and what is derived is left to its deadline.
func TestACompleteBesideTheVerdict(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	var derived models.UploadID
	process(t, s, processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		if c.Step.Name == "first" {
			return models.StepAnswer{Verdict: models.StepPass}, nil
		}
		who, err := s.Service.LeaseCaller(t.Context(), c.Task.ID, c.Token)
		if err != nil {
			return models.StepAnswer{}, err
		}
		d, err := s.Service.Open(t.Context(), who, controlplane.OpenRequest{Collection: "checked", Parent: c.File.ID, Name: "big.png", Size: 6 * mib})
		derived = d.ID
		return models.StepAnswer{Later: true, Within: 10 * time.Minute}, err
	}))
	if derived == "" {
		t.Fatal("nothing was derived")
	}
	complete, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer complete.Rollback(context.Background()) //nolint:errcheck // committed, if all is well
	if _, err := complete.Exec(t.Context(), "UPDATE uploads SET state = 'completing', attempt = attempt + 1, lease_until = $2 WHERE id = $1",
		string(derived), s.Clock.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	k := stack.Query[string](t, s, "SELECT id FROM tasks WHERE kind = 'process'")
	said := make(chan error, 1)
	go func() {
		task, err := s.Store.Wait(context.Background(), models.TaskID(k))
		if err == nil {
			var out models.Verdicted
			out, err = s.Store.RecordStep(context.Background(), task.Task, models.StepResult{Step: 1, Name: "second", Verdict: models.StepPass}, []string{"first", "second"}, s.Clock.Now())
			if err == nil && out != models.VerdictPublished {
				err = errors.New("the verdict is " + string(out))
			}
		}
		said <- err
	}()
	testkit.Eventually(t, time.Minute, func() error {
		if stack.Query[int64](t, s, "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.datname = current_database() WHERE NOT l.granted AND l.pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())") == 0 {
			return errors.New("nobody waits for the upload's row")
		}
		return nil
	})
	if err := complete.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-said; err != nil {
		t.Errorf("the verdict: %v", err)
	}
	one(t, s, "active", "SELECT state FROM files WHERE id = $1", string(v.FileID))
	one(t, s, "completing", "SELECT state FROM uploads WHERE id = $1", string(derived))
	// Nobody attaches it: its deadline ends it.
	s.Clock.Advance(25 * time.Hour)
	if _, err := s.Service.Repair(t.Context(), time.Minute, 100); err != nil {
		t.Fatal(err)
	}
	one(t, s, "failed", "SELECT state FROM files WHERE parent_id = $1", string(v.FileID))
	reap(t, s)
	if _, m := held(t, s); m != 0 {
		t.Errorf("%d multiparts are open", m)
	}
}

// Blocked files are for admins: owners see that they are there, and not what is in them.
func TestBlockedFilesAreNotRead(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	process(t, s, processor(s, says(map[string]models.StepVerdict{"first": "block", "second": "pass"})))
	for _, who := range []string{"ann", "admin"} {
		if _, err := s.Service.ContentURL(t.Context(), stack.Caller(who), v.FileID); err == nil {
			t.Errorf("%s reads a blocked file", who)
		}
	}
	owner := stack.Caller("ann")
	owner.Scopes = []models.Scope{models.ScopeUpload, models.ScopeRead, models.ScopeDelete}
	if _, err := s.Service.Unblock(t.Context(), owner, v.FileID); models.ErrorCode(err) != models.CodeForbidden {
		t.Errorf("an owner unblocks: %v", err)
	}
	stranger := stack.Caller("admin")
	stranger.Tenant = "other"
	if _, err := s.Service.Unblock(t.Context(), stranger, v.FileID); models.ErrorCode(err) != models.CodeNotFound {
		t.Errorf("another tenant's admin unblocks: %v", err)
	}
	one(t, s, "blocked", "SELECT state FROM files")
	if _, err := s.Service.Unblock(t.Context(), stack.Caller("admin"), v.FileID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Errorf("an unblocked file: %v", err)
	}
}
