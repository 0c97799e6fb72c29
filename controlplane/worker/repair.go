package worker

import (
	"context"
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
	PastDeadline(ctx context.Context, now time.Time, slack time.Duration) (int64, error)
}

// Repairer runs the repair sweep, and counts what is worth an alarm.
type Repairer struct {
	Sweep   Sweeper
	Keep    Keeper
	Quiet   time.Duration // of a session before it is looked at
	History time.Duration // how long history is kept; 0: for ever
	Limit   int           // records of a kind a pass
	Slack   time.Duration // past a deadline before it is worth an alarm
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
}

// RunOnce is one pass.
func (r *Repairer) RunOnce(ctx context.Context) (models.SweepCounts, error) {
	c, err := r.Sweep.Repair(ctx, r.Quiet, r.Limit)
	r.Metrics.swept(c)
	if err != nil {
		return c, err
	}
	now := r.Now()
	if err := r.Keep.Housekeep(ctx, now, r.History, 10*r.Limit); err != nil {
		return c, err
	}
	stats, err := r.Keep.TaskStats(ctx, now)
	if err != nil {
		return c, err
	}
	late, err := r.Keep.PastDeadline(ctx, now, r.Slack)
	if err != nil {
		return c, err
	}
	r.Metrics.gauge(stats, late, now)
	return c, nil
}
