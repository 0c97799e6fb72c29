package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth/controlplane/worker"
	"berth/models"
)

// due is a queue of tasks, claimed at most n at once.
type due struct {
	tasks  chan models.Task
	claims atomic.Int32
	most   atomic.Int32
}

func (d *due) claim(_ context.Context, n int) (out []models.Task, err error) {
	d.claims.Add(1)
	d.most.Store(max(d.most.Load(), int32(n))) // #nosec G115 -- a few
	for len(out) < n && len(d.tasks) > 0 {
		out = append(out, <-d.tasks)
	}
	return out, nil
}

// A task that takes long holds its slot, and what falls due later is done all the same; no
// more than the slots run at once; and a pool that stops waits for what it had begun.
func TestPoolIsNotHeldByItsSlowest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &due{tasks: make(chan models.Task, 100)}
		wake := make(chan struct{}, 1)
		var running, peak, did atomic.Int32
		ended := false
		pool := worker.Pool{
			Loop:  worker.Loop{Name: "test", Tick: time.Minute, Wake: wake, Log: slog.New(slog.DiscardHandler)},
			Slots: 3, Claim: d.claim,
			Do: func(ctx context.Context, k models.Task) error {
				peak.Store(max(peak.Load(), running.Add(1)))
				defer running.Add(-1)
				if k.Target == "slow" {
					<-ctx.Done()
					time.Sleep(time.Second) // it takes a while to stop
					ended = true
					return ctx.Err()
				}
				time.Sleep(time.Second)
				did.Add(1)
				return errors.New("left")
			},
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		d.tasks <- models.Task{Target: "slow"}
		go func() {
			pool.Run(ctx)
			close(done)
		}()
		synctest.Wait()
		for range 10 {
			d.tasks <- models.Task{Target: "quick"}
		}
		wake <- struct{}{}
		time.Sleep(30 * time.Second)
		if did.Load() != 10 {
			t.Errorf("%d done beside the slow one, want 10", did.Load())
		}
		if peak.Load() != 3 || d.most.Load() != 3 {
			t.Errorf("%d ran at once, %d were claimed, want 3", peak.Load(), d.most.Load())
		}
		if n := d.claims.Load(); n > 20 {
			t.Errorf("%d claims: it polls", n)
		}
		stop()
		<-done
		if !ended {
			t.Error("it did not wait for what it had begun")
		}
	})
}
