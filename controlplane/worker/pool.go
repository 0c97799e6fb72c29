package worker

import (
	"context"
	"log/slog"
	"sync"

	"berth/models"
)

// Pool is a Loop over tasks that are done in slots: one that takes long holds its own slot,
// and what falls due meanwhile is done in the others.
type Pool struct {
	Loop  // Once is the pool's own
	Slots int
	// Claim takes at most n due tasks.
	Claim func(ctx context.Context, n int) ([]models.Task, error)
	Do    func(ctx context.Context, k models.Task) error

	free chan struct{}
	busy sync.WaitGroup
}

// Run runs the pool until ctx ends and what it had begun has ended.
func (p *Pool) Run(ctx context.Context) {
	p.free = make(chan struct{}, p.Slots)
	for range p.Slots {
		p.free <- struct{}{}
	}
	l := p.Loop
	l.Once = p.once
	l.Run(ctx)
	p.busy.Wait()
}

// once waits for a free slot, claims for all that are free, and does not wait for what it
// begins.
func (p *Pool) once(ctx context.Context) (int, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-p.free:
	}
	n := 1
	for n < p.Slots && len(p.free) > 0 { // nobody else takes them
		<-p.free
		n++
	}
	tasks, err := p.Claim(ctx, n)
	for range n - len(tasks) {
		p.free <- struct{}{}
	}
	for _, k := range tasks {
		p.busy.Go(func() {
			defer func() { p.free <- struct{}{} }()
			if err := p.Do(ctx, k); err != nil && ctx.Err() == nil {
				// Its lease runs out, and it is claimed again.
				p.Log.WarnContext(ctx, "loop: a task was left", "loop", p.Name, slog.String("target", k.Target), "err", err)
			}
		})
	}
	return len(tasks), err
}

// sideBySide is one pass over due tasks: claimed at once, done side by side, waited for.
func sideBySide(tasks []models.Task, do func(models.Task) error) []error {
	var (
		errs []error
		mu   sync.Mutex
		wg   sync.WaitGroup
	)
	for _, k := range tasks {
		wg.Go(func() {
			if err := do(k); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errs
}
