package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// processor runs steps of kind "test" by say.
func processor(s *stack.Stack, say worker.StepFunc) *worker.Processor {
	return &worker.Processor{
		Tasks: s.Store, Chain: s.Service.Steps, Kinds: map[string]worker.StepFunc{"test": say}, Owner: "one", Lease: time.Minute, Limit: 8,
		Now: s.Clock.Now, Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil),
	}
}

func says(verdicts map[string]models.StepVerdict) worker.StepFunc {
	return func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		v, ok := verdicts[c.Step.Name]
		if !ok {
			return models.StepAnswer{}, errors.New("no answer")
		}
		return models.StepAnswer{Verdict: v, Reason: "because"}, nil
	}
}

// verified sends a file into the collection with steps.
func verified(t *testing.T, s *stack.Stack) controlplane.UploadView {
	t.Helper()
	v := open(t, s, "checked", 10)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 10))
	v, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func process(t *testing.T, s *stack.Stack, p *worker.Processor) (total worker.ProcessCounts) {
	t.Helper()
	for {
		c, err := p.RunOnce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Claimed == 0 {
			return total
		}
		total.Claimed += c.Claimed
		total.Noted += c.Noted
		total.Published += c.Published
		total.Failed += c.Failed
		total.Lost += c.Lost
		total.Waiting += c.Waiting
	}
}

func TestChainPublishesByItsHardestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		verdicts       map[string]models.StepVerdict
		file           string
		event          string
		active, places int64
	}{
		{"pass", map[string]models.StepVerdict{"first": "pass", "second": "pass"}, "active", "file.active", 1, 1},
		{"block stands", map[string]models.StepVerdict{"first": "block", "second": "pass"}, "blocked", "file.blocked", 0, 1},
		{"delete ends it", map[string]models.StepVerdict{"first": "delete"}, "failed", "file.failed", 0, 0},
		{"delete after block", map[string]models.StepVerdict{"first": "block", "second": "delete"}, "failed", "file.failed", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			v := verified(t, s)
			one(t, s, "processing", "SELECT state FROM files")
			if _, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), v.FileID); models.ErrorCode(err) != models.CodeNotReady {
				t.Errorf("a file in processing was read: %v", err)
			}
			if n := process(t, s, processor(s, says(c.verdicts))); n.Published != 1 {
				t.Fatalf("counts %+v", n)
			}
			one(t, s, c.file, "SELECT state FROM files")
			one(t, s, c.event, "SELECT type FROM outbox")
			one(t, s, c.active, "SELECT count(*) FROM outbox WHERE type = 'file.active'")
			one(t, s, c.places, "SELECT files FROM quotas")
			one(t, s, int64(0), "SELECT open FROM quotas")
			if c.file == "failed" {
				reap(t, s)
				wantHeld(t, s, 0, 0)
			}
		})
	}
}

func TestUnblockingIsTheOneActivation(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := verified(t, s)
	process(t, s, processor(s, says(map[string]models.StepVerdict{"first": "block", "second": "pass"})))
	for range 2 {
		if _, err := s.Service.Unblock(t.Context(), stack.Caller("admin"), v.FileID); err != nil {
			t.Fatal(err)
		}
	}
	one(t, s, "active", "SELECT state FROM files")
	one(t, s, int64(1), "SELECT count(*) FROM outbox WHERE type = 'file.active'")
	one(t, s, int64(0), "SELECT count(*) FROM outbox WHERE type = 'file.unblocked'")
	if _, err := s.Service.Block(t.Context(), stack.Caller("admin"), v.FileID, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.Unblock(t.Context(), stack.Caller("admin"), v.FileID); err != nil {
		t.Fatal(err)
	}
	one(t, s, int64(1), "SELECT count(*) FROM outbox WHERE type = 'file.active'")
	one(t, s, int64(1), "SELECT count(*) FROM outbox WHERE type = 'file.unblocked'")
}

// A later step that fails for good does not undo a block before it; without one, the file
// waits for a person, who runs the whole chain again.
func TestFailedStep(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, s *stack.Stack, p *worker.Processor) {
		for range models.DefaultMaxAttempts + 5 {
			if _, err := p.RunOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.Clock.Advance(2 * time.Hour)
		}
	}
	t.Run("block stands", func(t *testing.T) {
		t.Parallel()
		s := stack.New(t)
		verified(t, s)
		run(t, s, processor(s, says(map[string]models.StepVerdict{"first": "block"})))
		one(t, s, "blocked", "SELECT state FROM files")
		one(t, s, "failed", "SELECT state FROM tasks WHERE kind = 'process'")
	})
	t.Run("a person", func(t *testing.T) {
		t.Parallel()
		s := stack.New(t)
		verified(t, s)
		run(t, s, processor(s, says(map[string]models.StepVerdict{"first": "pass"})))
		one(t, s, "processing", "SELECT state FROM files")
		id := models.TaskID(stack.Query[string](t, s, "SELECT id FROM tasks WHERE kind = 'process' AND state = 'failed'"))
		if _, err := s.Store.Retry(t.Context(), id, "owner:admin", s.Clock.Now()); err != nil {
			t.Fatal(err)
		}
		called := map[string]int{}
		process(t, s, processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
			called[c.Step.Name]++
			return models.StepAnswer{Verdict: models.StepPass}, nil
		}))
		if called["first"] != 1 || called["second"] != 1 {
			t.Errorf("called %v, want the whole chain", called)
		}
		one(t, s, "active", "SELECT state FROM files")
	})
}

// A chain that is configured anew while a file is in it: no step of the new one is left
// out, and none that has spoken is asked again.
func TestChainConfiguredAnew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ chain, called []string }{
		"one more before": {[]string{"scan", "first", "second"}, []string{"first", "scan", "second"}},
		"turned round":    {[]string{"second", "first"}, []string{"first", "second"}},
		"replaced":        {[]string{"scan"}, []string{"first", "scan"}},
		"the rest gone":   {[]string{"first"}, []string{"first"}},
		"gone":            {nil, []string{"first"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			verified(t, s)
			var called []string
			process(t, s, processor(s, func(_ context.Context, k worker.StepCall) (models.StepAnswer, error) {
				if called = append(called, k.Step.Name); len(called) == 1 {
					cols := stack.Collections()
					col := cols["checked"]
					col.Steps = nil
					for _, name := range c.chain {
						col.Steps = append(col.Steps, models.Step{Name: name, Kind: "test"})
					}
					cols["checked"] = col
					if err := s.Service.SetCollections(cols); err != nil {
						t.Error(err)
					}
				}
				return models.StepAnswer{Verdict: models.StepPass}, nil
			}))
			if !slices.Equal(called, c.called) {
				t.Errorf("called %v, want %v", called, c.called)
			}
			one(t, s, "active", "SELECT state FROM files")
			one(t, s, int64(1), "SELECT count(*) FROM outbox WHERE type = 'file.active'")
		})
	}
}

// A worker paused over its lease comes back with a verdict: it is refused by the fence.
func TestStaleVerdictChangesNothing(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	var stale worker.StepCall
	slow := processor(s, func(ctx context.Context, c worker.StepCall) (models.StepAnswer, error) {
		stale = c
		s.Clock.Advance(2 * time.Minute)
		other := processor(s, says(map[string]models.StepVerdict{"first": "pass", "second": "pass"}))
		other.Owner = "two"
		process(t, s, other)
		return models.StepAnswer{Verdict: models.StepDelete, Reason: "stale"}, nil
	})
	if c, err := slow.RunOnce(t.Context()); err != nil || c.Lost != 1 {
		t.Fatalf("counts %+v, error %v", c, err)
	}
	one(t, s, "active", "SELECT state FROM files")
	before := s.Snapshot(t)
	if err := s.Service.StepResult(t.Context(), stale.Task.ID, stale.Token, models.StepAnswer{Verdict: models.StepBlock}); models.ErrorCode(err) != models.CodeNotFound {
		t.Errorf("a stale token: %v", err)
	}
	if out, err := s.Store.RecordStep(t.Context(), stale.Task, models.StepResult{Step: 0, Name: "first", Verdict: models.StepBlock}, []string{"first", "second"}, s.Clock.Now()); err != nil || out != models.VerdictStale {
		t.Errorf("a stale verdict: %s, %v", out, err)
	}
	if after := s.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
}

func TestAnswerLaterByTheLeaseToken(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	verified(t, s)
	var calls []worker.StepCall
	p := processor(s, func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
		calls = append(calls, c)
		return models.StepAnswer{Later: true, Within: 10 * time.Minute}, nil
	})
	if c := process(t, s, p); c.Waiting != 1 {
		t.Fatalf("counts %+v", c)
	}
	first := calls[0]
	if err := s.Service.StepResult(t.Context(), first.Task.ID, "guessed", models.StepAnswer{Verdict: models.StepPass}); models.ErrorCode(err) != models.CodeNotFound {
		t.Errorf("a guessed token: %v", err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for range 4 {
		wg.Go(func() {
			if err := s.Service.StepResult(t.Context(), first.Task.ID, first.Token, models.StepAnswer{Verdict: models.StepPass}); err == nil {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if taken != 4 {
		t.Errorf("%d of four that say the same have their answer", taken)
	}
	one(t, s, int64(1), "SELECT count(*) FROM step_results")
	one(t, s, int64(1), "SELECT count(*) FROM history WHERE actor = 'step:first'")
	// The second step never answers in time: it is asked again, with a new token.
	process(t, s, p)
	s.Clock.Advance(11 * time.Minute)
	process(t, s, p)
	if len(calls) != 3 || calls[2].Step.Name != "second" {
		t.Fatalf("%d calls", len(calls))
	}
	if err := s.Service.StepResult(t.Context(), calls[1].Task.ID, calls[1].Token, models.StepAnswer{Verdict: models.StepDelete}); err == nil {
		t.Error("the token of an older lease was taken")
	}
	if err := s.Service.StepResult(t.Context(), calls[2].Task.ID, calls[2].Token, models.StepAnswer{Verdict: models.StepPass}); err != nil {
		t.Error(err)
	}
	one(t, s, "active", "SELECT state FROM files")
	one(t, s, int64(1), "SELECT count(*) FROM outbox WHERE type = 'file.active'")
}

func TestInspectReadsWhatItIs(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	inspect := worker.Inspect(func(ctx context.Context, r models.Replica, n int64) ([]byte, error) {
		if n > 4096 {
			t.Errorf("asks for %d bytes", n)
		}
		return s.Objects.Peek(ctx, r.Key, r.VersionID, n)
	})
	png := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), make([]byte, 5000)...)
	zip := append([]byte("PK\x03\x04"), make([]byte, 100)...)
	html := []byte("<!DOCTYPE html><html><script>alert(1)</script></html>")
	for _, c := range []struct {
		declared string
		body     []byte
		want     models.StepVerdict
	}{
		{"image/png", png, "pass"}, {"image/png", html, "block"}, {"image/jpeg", png, "block"}, {"text/plain", html, "pass"},
		{"application/vnd.openxmlformats-officedocument.wordprocessingml.document", zip, "pass"},
		{"application/pdf", zip, "block"}, {"application/octet-stream", html, "pass"}, {"application/x-own", png, "block"},
		{"application/x-own", []byte{1, 2, 3, 0xff, 0}, "pass"}, {"text/csv", []byte("a,b\n1,2\n"), "pass"}, {"image/png", nil, "pass"},
	} {
		v, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "default", Name: "x", ContentType: c.declared, Size: int64(len(c.body))})
		if err != nil {
			t.Fatal(err)
		}
		stack.MustSend(t, v.Parts[0], c.body)
		v, err = s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := inspect(t.Context(), worker.StepCall{File: *v.File, Replica: models.Replica{Key: v.Key, VersionID: v.VersionID}})
		if err != nil || got.Verdict != c.want {
			t.Errorf("%s: %s (%s), want %s, error %v", c.declared, got.Verdict, got.Reason, c.want, err)
		}
	}
}
