package crash_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// answers is a step that is asked instead of the one that goes by the file's name.
type answers func(ctx context.Context, c worker.StepCall) (models.StepAnswer, error)

var passes = models.StepAnswer{Verdict: models.StepPass}

// later answers 202, and remembers the token that the verdict comes by.
func (s *state) later(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
	s.Task, s.Token = c.Task.ID, c.Token
	return models.StepAnswer{Later: true, Within: 5 * time.Minute}, nil
}

// asked runs one step of each due chain, answered by a.
func (p *process) asked(ctx context.Context, a answers) error {
	p.answers = a
	defer func() { p.answers = nil }()
	return stepOnce(ctx, nil, p)
}

// derives sends a file as a step does, through a server, by its lease token.
func derives(ctx context.Context, p *process, s *state) error {
	who, err := p.service.LeaseCaller(ctx, s.Task, s.Token)
	if err != nil {
		return err
	}
	v, err := p.service.Open(ctx, who, request("checked", small, named("thumb.pdf"), func(req *controlplane.OpenRequest) { req.Parent = s.File }))
	if err != nil {
		return err
	}
	for _, part := range v.Parts {
		status, err := stack.Send(ctx, part, body(small))
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("S3 answered %d", status)
		}
		if err != nil {
			return err
		}
	}
	_, err = p.service.Complete(ctx, who, v.ID, controlplane.CompleteRequest{})
	return err
}

// deriving is a step that sends a file and passes. What it asks for is answered by another
// server than the one that asks it.
func (s *state) deriving(ctx context.Context, c worker.StepCall) (models.StepAnswer, error) {
	own := state{Task: c.Task.ID, Token: c.Token, File: c.File.ID}
	return passes, derives(ctx, s.peer, &own)
}

// derived makes a file of whose chain the first step has sent another and passed.
func (r *run) derived(name string) {
	r.t.Helper()
	r.active(request("checked", small, named(name)))
	r.s.peer = r.p
	r.ok(r.p.asked(r.p.ctx, r.s.deriving))
}

// waiting makes a file of whose chain the nth step, from 0, has answered later.
func (r *run) waiting(n int) {
	r.t.Helper()
	r.active(request("checked", small))
	for range n {
		r.ok(stepOnce(r.p.ctx, nil, r.p))
	}
	r.ok(r.p.asked(r.p.ctx, r.s.later))
}

func verdict202(ctx context.Context, s *state, p *process) error {
	return p.service.StepResult(ctx, s.Task, s.Token, passes)
}

// verdictAgain gives a verdict again. What was taken is not taken twice, and its token is
// good no more.
func verdictAgain(r *run) {
	r.t.Helper()
	for range 2 {
		switch err := verdict202(r.p.ctx, &r.s, r.p); models.ErrorCode(err) {
		case models.CodeNotFound, models.CodeSessionClosed:
		default:
			r.ok(err)
		}
	}
	if n := value[int](r.t, r.w, "SELECT count(*) FROM step_results WHERE file_id = $1", string(r.s.File)); n == 0 {
		r.t.Error("F6: the verdict was given, and is not there")
	}
}

// lastAttempt makes a kind's open task fail for good at its next fault.
func (r *run) lastAttempt(kind models.TaskKind) {
	r.t.Helper()
	_, err := r.w.pool.Exec(r.t.Context(), "UPDATE tasks SET max_attempts = attempts + 1 WHERE kind = $1 AND state = 'pending'", string(kind))
	r.ok(err)
	r.s.Task = models.TaskID(value[string](r.t, r.w, "SELECT id FROM tasks WHERE kind = $1 AND state = 'pending'", string(kind)))
}

// deleteFailed makes a file whose deletion has failed for good.
func (r *run) deleteFailed() {
	r.t.Helper()
	r.active(request("limited", large))
	r.ok(deletes(r.p.ctx, &r.s, r.p))
	r.lastAttempt(models.TaskReap)
	stores := r.p.reaper.Stores
	r.p.reaper.Stores = func(models.StoreName) (worker.ReapObjects, bool) { return nil, false }
	r.ok(reapOnce(r.p.ctx, nil, r.p))
	r.p.reaper.Stores = stores
	want(r.t, r.w, "delete_failed", "SELECT state FROM files")
}

// chainFailed makes a file whose chain has failed for good.
func (r *run) chainFailed() {
	r.t.Helper()
	r.active(request("checked", small))
	r.ok(stepOnce(r.p.ctx, nil, r.p))
	r.lastAttempt(models.TaskProcess)
	r.ok(r.p.asked(r.p.ctx, func(context.Context, worker.StepCall) (models.StepAnswer, error) {
		return models.StepAnswer{}, errors.New("it is down")
	}))
	want(r.t, r.w, "failed", "SELECT state FROM tasks WHERE kind = 'process'")
}

func retries(ctx context.Context, s *state, p *process) error {
	_, err := p.service.RetryTask(ctx, caller(ann), s.Task)
	return err
}

// retriesAgain is a person who looks again later: a manual attempt whose worker died is
// over, and its task has failed.
func retriesAgain(r *run) {
	r.t.Helper()
	r.w.clock.Advance(2 * lease)
	repairer := worker.Repairer{Sweep: r.p.service, Keep: r.p.store, Quiet: quiet, Limit: 100, Now: r.w.clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil)}
	_, err := repairer.RunOnce(r.p.ctx)
	r.ok(err)
	if value[string](r.t, r.w, "SELECT state FROM tasks WHERE id = $1", string(r.s.Task)) == "failed" {
		r.ok(retries(r.p.ctx, &r.s, r.p))
	}
}

// stepFlows are those of steps that derive, that answer later, and of tasks that a person
// tries again.
func stepFlows() []flow {
	return []flow{
		{name: "process: a step that answers later", prepare: func(r *run) { r.active(request("checked", small)) },
			act: func(ctx context.Context, s *state, p *process) error { return p.asked(ctx, s.later) }, uploads: 1, files: onlyOK},
		{name: "process: a late verdict", prepare: func(r *run) { r.waiting(0) },
			act: verdict202, again: verdictAgain, uploads: 1, files: onlyOK},
		{name: "process: a late verdict that publishes", prepare: func(r *run) { r.waiting(1) },
			act: verdict202, again: verdictAgain, uploads: 1, files: onlyOK},
		{name: "process: a late verdict that nobody gives again", prepare: func(r *run) { r.waiting(1) },
			act: verdict202, uploads: 1, files: onlyOK},
		{name: "process: a step that derives", prepare: func(r *run) { r.active(request("checked", small)); r.s.peer = r.p },
			act: func(ctx context.Context, s *state, p *process) error { return p.asked(ctx, s.deriving) },
			// Where the verdict was lost, what was derived under its lease is not attached.
			uploads: -1, files: []string{"active", "failed"}},
		{name: "process: publish with what was derived", prepare: func(r *run) { r.derived("a.pdf") },
			act: stepOnce, uploads: 2, files: onlyOK},
		{name: "process: delete with what was derived", prepare: func(r *run) { r.derived("delete-me.pdf") },
			act: stepOnce, uploads: 2, files: []string{"failed"}},
		{name: "process: block and unblock with what was derived", prepare: func(r *run) { r.derived("block-me.pdf"); r.ok(stepOnce(r.p.ctx, nil, r.p)) },
			act: blocks(false), again: same(func(r *run) error { return blocks(false)(r.p.ctx, &r.s, r.p) }), uploads: 2, files: onlyOK},
		{name: "derive a file", prepare: func(r *run) { r.waiting(0) },
			act: func(ctx context.Context, s *state, p *process) error { return derives(ctx, p, s) },
			again: func(r *run) {
				r.t.Helper()
				r.ok(derives(r.p.ctx, r.p, &r.s))
				r.ok(verdict202(r.p.ctx, &r.s, r.p))
			}, uploads: -1, files: onlyOK},
		{name: "derive a file, its step gone", prepare: func(r *run) { r.waiting(0) },
			act: func(ctx context.Context, s *state, p *process) error { return derives(ctx, p, s) },
			// Crashed before it was opened, the parent is the last file.
			uploads: -1, files: []string{"active", "failed"}},
		{name: "delete with what was derived", prepare: func(r *run) { r.derived("a.pdf"); r.ok(stepOnce(r.p.ctx, nil, r.p)) },
			act: deletes, again: same(func(r *run) error { return deletes(r.p.ctx, &r.s, r.p) }), uploads: 2, files: []string{"deleted"}},
		{name: "reap with what was derived", prepare: func(r *run) {
			r.derived("a.pdf")
			r.ok(stepOnce(r.p.ctx, nil, r.p))
			r.ok(deletes(r.p.ctx, &r.s, r.p))
		}, act: func(ctx context.Context, _ *state, p *process) error {
			p.reaper.Limit = 1 // in turns: their calls are numbered
			return errors.Join(reapOnce(ctx, nil, p), reapOnce(ctx, nil, p))
		}, uploads: 2, files: []string{"deleted"}},
		{name: "retry a deletion by hand", prepare: func(r *run) { r.deleteFailed() },
			act: retries, again: retriesAgain, uploads: 1, files: []string{"deleted"}},
		{name: "reap what was retried by hand", prepare: func(r *run) { r.deleteFailed(); r.ok(retries(r.p.ctx, &r.s, r.p)) },
			act: reapOnce, again: retriesAgain, uploads: 1, files: []string{"deleted"}},
		{name: "retry a chain by hand", prepare: func(r *run) { r.chainFailed() },
			act: retries, again: retriesAgain, uploads: 1, files: onlyOK},
		{name: "process what was retried by hand", prepare: func(r *run) { r.chainFailed(); r.ok(retries(r.p.ctx, &r.s, r.p)) },
			act: stepOnce, again: retriesAgain, uploads: 1, files: onlyOK},
		{name: "settle beneath a foreign version", prepare: func(r *run) { r.sent(request("plain", small)); r.s.Version = r.put("evil", "") },
			act: settle, again: same(func(r *run) error { return settle(r.p.ctx, &r.s, r.p) }), uploads: 1, files: onlyOK},
		{name: "repair: recheck beneath a foreign version", prepare: func(r *run) {
			r.sent(request("plain", small))
			r.put(string(stack.Bytes(8, small)), "")
			r.w.clock.Advance(2 * quiet)
		}, act: repairOnce, uploads: 1, files: onlyOK},
	}
}

// allFlows are the flows of all files, each once.
func allFlows() []flow {
	more := slices.Concat(stepFlows(), reconcileFlows())
	for i := range more {
		more[i].single = true
	}
	return slices.Concat(flows(), more)
}
