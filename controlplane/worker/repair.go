package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"berth/models"
)

// Sweeper is the use case that makes up for what was lost.
type Sweeper interface {
	Repair(ctx context.Context, quiet time.Duration, limit int) (models.SweepCounts, error)
}

// Keeper keeps tables within bounds.
type Keeper interface {
	Housekeep(ctx context.Context, now time.Time, keep time.Duration, limit int) error
	TaskStats(ctx context.Context, now time.Time) ([]models.TaskStats, error)
	Spent(ctx context.Context, now time.Time, limit int) ([]models.Task, error)
	FinishReap(ctx context.Context, k models.Task, p models.ReapPlan, o models.ReapOutcome, now time.Time) (ok bool, err error)
	Finish(ctx context.Context, k models.Task, r models.TaskResult, now time.Time) (ok bool, err error)
	FailStep(ctx context.Context, k models.Task, why string, now time.Time) (ok bool, err error)
	PastDeadline(ctx context.Context, now time.Time, slack time.Duration) (int64, error)
}

// Repairer runs the repair sweep, and counts what is worth an alarm.
type Repairer struct {
	Sweep   Sweeper
	Keep    Keeper
	Quiet   time.Duration // of a session before it is looked at
	History time.Duration // how long history and runs of reconcile are kept; 0: for ever
	Limit   int           // records of a kind a pass
	Slack   time.Duration // past a deadline before it is worth an alarm
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
}

// RunOnce is one pass. A part that fails does not keep the rest: least of all the gauges
// that say that something fails.
func (r *Repairer) RunOnce(ctx context.Context) (models.SweepCounts, error) {
	c, err := r.Sweep.Repair(ctx, r.Quiet, r.Limit)
	r.Metrics.swept(c)
	now := r.Now()
	errs := []error{err, r.spent(ctx, now), r.Keep.Housekeep(ctx, now, r.History, 10*r.Limit)}
	stats, err := r.Keep.TaskStats(ctx, now)
	errs = append(errs, err)
	late, lateErr := r.Keep.PastDeadline(ctx, now, r.Slack)
	if err == nil && lateErr == nil {
		r.Metrics.gauge(stats, late, now)
	}
	return c, errors.Join(append(errs, lateErr)...)
}

// spent fails the tasks that their workers left for good: too many attempts ended without a
// word. From there they are a person's.
func (r *Repairer) spent(ctx context.Context, now time.Time) error {
	const why = "the worker ended without a word, too often"
	tasks, err := r.Keep.Spent(ctx, now, r.Limit)
	errs := []error{err}
	for _, k := range tasks {
		switch k.Kind {
		case models.TaskReap:
			_, err = r.Keep.FinishReap(ctx, k, models.ReapPlan{}, models.ReapOutcome{Failure: why, Final: true}, now)
		default:
			var ok bool
			if ok, err = r.Keep.FailStep(ctx, k, why, now); err == nil && !ok { // its file has moved on without it
				_, err = r.Keep.Finish(ctx, k, models.TaskResult{To: models.TaskFailed, Err: why, Counted: true}, now)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
