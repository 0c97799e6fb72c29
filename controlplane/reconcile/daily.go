package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/models"
)

// Daily reconciles each store when its last run is long enough ago, whichever process
// made that, and shows the last run's findings as metrics in every process.
type Daily struct {
	Runners []*Runner
	Every   time.Duration
	Options Options
}

// retry is how long a failed run is left alone.
const retry = time.Hour

// RunOnce runs what is due and returns how many runs there were.
func (d *Daily) RunOnce(ctx context.Context) (ran int, err error) {
	var errs []error
	for _, r := range d.Runners {
		due, err := d.due(ctx, r)
		if err == nil && due {
			_, err = r.Run(ctx, d.Options)
			if models.ErrorCode(err) == models.CodeBusy {
				continue // another process is at it
			}
			ran++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("store %s: %w", r.Store, err))
		}
	}
	return ran, errors.Join(errs...)
}

func (d *Daily) due(ctx context.Context, r *Runner) (bool, error) {
	runs, err := r.Records.Reconciliations(ctx, r.Store, "", 30)
	if err != nil {
		return false, err
	}
	now := r.Now()
	for i, run := range runs {
		if i == 0 && run.State == models.RunFailed && now.Sub(run.FinishedAt) < min(retry, d.Every) {
			return false, nil
		}
		if run.State == models.RunSucceeded {
			r.Metrics.last(&runs[i])
			return now.Sub(run.StartedAt) >= d.Every, nil
		}
	}
	return true, nil
}
