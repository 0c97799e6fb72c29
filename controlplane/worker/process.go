package worker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"berth/models"
	"berth/tracing"
)

// ProcessTasks is what the processor needs of the database.
type ProcessTasks interface {
	Renewer
	Claim(ctx context.Context, c models.Claiming) ([]models.Task, error)
	Finish(ctx context.Context, k models.Task, r models.TaskResult, now time.Time) (ok bool, err error)
	BeginProcess(ctx context.Context, k models.Task, now time.Time) (models.ProcessView, error)
	RecordStep(ctx context.Context, k models.Task, r models.StepResult, chain []string, now time.Time) (models.Verdicted, error)
	FailStep(ctx context.Context, k models.Task, why string, now time.Time) (ok bool, err error)
	WaitStep(ctx context.Context, w models.StepWait, now time.Time) (ok bool, err error)
}

// StepCall is what a step is given: the file, a URL to read it by, and the token by which
// it may answer later.
type StepCall struct {
	Task    models.Task
	Token   string
	Step    models.Step
	File    models.File
	Replica models.Replica
}

// StepFunc runs one kind of step.
type StepFunc func(ctx context.Context, c StepCall) (models.StepAnswer, error)

// Processor runs the steps of files whose bytes are verified, in their order, one step an
// attempt. A verdict is recorded under the fence of the lease that the step was called
// under.
type Processor struct {
	Tasks ProcessTasks
	// Chain is the processing chain of a collection, as it is configured now.
	Chain func(collection string) []models.Step
	// Kinds are the kinds of step that there are.
	Kinds   map[string]StepFunc
	Owner   string
	Lease   time.Duration
	Limit   int // tasks at once, of RunOnce
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
	Trace   *tracing.Tracer
}

// ProcessCounts is what one pass did.
type ProcessCounts struct{ Claimed, Noted, Published, Waiting, Failed, Lost, Ignored int }

// defaultWait is how long a step that answers later has, where it does not say.
const (
	defaultWait = time.Hour
	longestWait = 7 * 24 * time.Hour
)

// RunOnce claims due process tasks and does one step of each, side by side.
func (p *Processor) RunOnce(ctx context.Context) (ProcessCounts, error) {
	tasks, err := p.Claim(ctx, p.Limit)
	if err != nil {
		return ProcessCounts{}, err
	}
	c := ProcessCounts{Claimed: len(tasks)}
	var mu sync.Mutex
	errs := sideBySide(tasks, func(k models.Task) error {
		outcome, err := p.do(ctx, k)
		mu.Lock()
		defer mu.Unlock()
		c.add(outcome)
		return err
	})
	return c, errors.Join(errs...)
}

// Claim takes at most n due process tasks.
func (p *Processor) Claim(ctx context.Context, n int) ([]models.Task, error) {
	now := p.Now()
	tasks, err := p.Tasks.Claim(ctx, models.Claiming{Kind: models.TaskProcess, Owner: p.Owner, Until: now.Add(p.Lease), Limit: n, Now: now})
	p.Metrics.claimed(tasks)
	return tasks, err
}

// Do does one step of a claimed task.
func (p *Processor) Do(ctx context.Context, k models.Task) error {
	_, err := p.do(ctx, k)
	return err
}

func (p *Processor) do(ctx context.Context, k models.Task) (string, error) {
	outcome, err := p.one(ctx, k)
	if err != nil {
		err = fmt.Errorf("process %s: %w", k.Target, err)
	}
	return outcome, err
}

func (c *ProcessCounts) add(outcome string) {
	switch outcome {
	case "noted":
		c.Noted++
	case "published":
		c.Published++
	case "waiting":
		c.Waiting++
	case "failed":
		c.Failed++
	case "ignored":
		c.Ignored++
	default:
		c.Lost++
	}
}

func (p *Processor) one(ctx context.Context, k models.Task) (outcome string, err error) {
	ctx, span := p.Trace.Continue(ctx, k.Traceparent, tracing.Consumer, "process", taskAttrs(k)...)
	defer func() {
		span.Set(tracing.String("berth.outcome", outcome))
		if outcome == "failed" {
			span.Fail("step")
		}
		span.End(err)
	}()
	defer caught(&err)
	v, err := p.Tasks.BeginProcess(ctx, k, p.Now())
	if err != nil {
		return "failed", err
	}
	switch v.Decision {
	case models.Allowed:
	case models.LeaseLost:
		return "lost", nil
	case models.Refused:
		// Not a success: the file would stay in processing, and nobody would know.
		p.Metrics.stepped("failed")
		_, err := p.Tasks.Finish(ctx, k, models.TaskResult{To: models.TaskFailed, Err: v.Why, Counted: true}, p.Now())
		return "failed", err
	default:
		_, err := p.Tasks.Finish(ctx, k, models.TaskResult{To: models.TaskSucceeded}, p.Now())
		return "ignored", err
	}
	chain := p.Chain(v.File.Collection)
	next, more := models.NextStep(v.Done, models.StepNames(chain))
	if !more {
		// The chain became shorter than what was said already, or is gone: what was said stands.
		return p.record(ctx, k, models.StepResult{Step: len(v.Done), Name: "end of chain", Verdict: models.StepPass}, nil)
	}
	st := chain[next]
	run, ok := p.Kinds[st.Kind]
	if !ok {
		return p.fail(ctx, k, fmt.Sprintf("step %s: there is no kind %q", st.Name, st.Kind))
	}
	call := StepCall{Task: k, Token: models.LeaseToken(k.ID, rand.Text()), Step: st, File: v.File, Replica: v.Replica}
	// The token is good before the call is made: an answer may be quicker than we are.
	if ok, err := p.Tasks.WaitStep(ctx, p.wait(call, len(v.Done), p.Lease), p.Now()); err != nil || !ok {
		return "lost", err
	}
	span.Set(tracing.String("berth.step", st.Name))
	var answer models.StepAnswer
	err = leased(ctx, p.Tasks, k, p.Lease, p.Now, func(ctx context.Context) error {
		if st.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, st.Timeout)
			defer cancel()
		}
		answer, err = run(ctx, call)
		return err
	})
	switch {
	case errors.Is(err, errLeaseLost):
		p.Metrics.stepped("stale")
		return "lost", nil
	case ctx.Err() != nil:
		return "lost", nil // stopping: the lease runs out and another goes on
	case err != nil:
		return p.fail(ctx, k, "step "+st.Name+": "+short(err))
	case answer.Later:
		within := answer.Within
		if within <= 0 {
			within = defaultWait
		}
		p.Metrics.stepped("later")
		ok, err := p.Tasks.WaitStep(ctx, p.wait(call, len(v.Done), min(within, longestWait)), p.Now())
		if err != nil || !ok {
			return "lost", err // answered meanwhile, it may be
		}
		return "waiting", nil
	}
	return p.record(ctx, k, models.StepResult{Step: len(v.Done), Name: st.Name, Verdict: answer.Verdict, Reason: answer.Reason}, models.StepNames(chain))
}

func (p *Processor) wait(c StepCall, step int, d time.Duration) models.StepWait {
	hash := sha256.Sum256([]byte(c.Token))
	return models.StepWait{Task: c.Task, Step: step, Name: c.Step.Name, TokenHash: hash[:], Until: p.Now().Add(d)}
}

func (p *Processor) record(ctx context.Context, k models.Task, r models.StepResult, chain []string) (string, error) {
	out, err := p.Tasks.RecordStep(ctx, k, r, chain, p.Now())
	if err != nil {
		return "failed", err
	}
	if out == models.VerdictStale {
		p.Metrics.stepped("stale")
		return "lost", nil
	}
	p.Metrics.stepped(string(r.Verdict))
	return string(out), nil
}

func (p *Processor) fail(ctx context.Context, k models.Task, why string) (string, error) {
	p.Metrics.stepped("failed")
	_, err := p.Tasks.FailStep(ctx, k, why, p.Now())
	return "failed", err
}
