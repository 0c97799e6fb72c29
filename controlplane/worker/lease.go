package worker

import (
	"context"
	"errors"
	"time"

	"berth/models"
	"berth/tracing"
)

// errLeaseLost ends the work on a task that somebody else has by now.
var errLeaseLost = errors.New("the lease was lost")

// taskAttrs are what the span of a task says of it.
func taskAttrs(k models.Task) []tracing.Attr {
	return []tracing.Attr{tracing.String("berth.task.id", string(k.ID)), tracing.String("berth.file.id", string(k.FileID)),
		tracing.Int("berth.task.attempt", k.Attempts)}
}

// Renewer prolongs leases.
type Renewer interface {
	Renew(ctx context.Context, k models.Task, until, now time.Time) (ok bool, err error)
}

// leased runs do while the task's lease is kept alive, at a third of its length. When the
// lease is lost, do's context ends with errLeaseLost as its cause.
func leased(ctx context.Context, r Renewer, k models.Task, lease time.Duration, now func() time.Time, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		t := time.NewTicker(max(lease/3, 10*time.Millisecond))
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			at := now()
			ok, err := r.Renew(ctx, k, at.Add(lease), at)
			if err == nil && !ok {
				cancel(errLeaseLost)
				return
			}
			// A database that does not answer costs a renewal, not yet the lease: the
			// guarded statements decide.
		}
	}()
	err := do(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errLeaseLost) {
		return errLeaseLost
	}
	return err
}
