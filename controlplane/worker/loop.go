package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Loop runs Once whenever there may be work.
type Loop struct {
	Name string
	// Tick is the net: how long the loop sleeps at most.
	Tick time.Duration
	// Wake says that work is due; nil where nothing says so.
	Wake <-chan struct{}
	// Gather is how long it waits after being woken or after having done something, so that
	// what comes close together is done together.
	Gather time.Duration
	// Next is when work is due next; nil where nobody knows.
	Next func(ctx context.Context) (at time.Time, ok bool, err error)
	// Once does a batch and returns how much it did: after something, it is called again
	// at once.
	Once func(ctx context.Context) (did int, err error)
	Log  *slog.Logger
	// Beat is told of each pass that did not fail; nil for nobody.
	Beat func(name string, at time.Time)
}

// Run runs the loop until ctx ends. A failed pass waits longer each time, up to Tick.
func (l *Loop) Run(ctx context.Context) {
	failed := 0
	for ctx.Err() == nil {
		did, err := l.Once(ctx)
		wait := l.Tick
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed++
			wait = min(l.Tick, time.Second<<min(failed, 10))
			l.Log.WarnContext(ctx, "loop: a pass failed", "loop", l.Name, "failures", failed, "err", err)
		default:
			failed = 0
			if l.Beat != nil {
				l.Beat(l.Name, time.Now())
			}
			if did > 0 {
				pause(ctx, l.Gather)
				continue
			}
			if l.Next != nil {
				at, ok, err := l.Next(ctx)
				if err != nil {
					l.Log.WarnContext(ctx, "loop: when work is due next is not known; the tick goes on", "loop", l.Name, "err", err)
				} else if ok {
					wait = min(wait, max(time.Until(at), 10*time.Millisecond))
				}
			}
		}
		l.sleep(ctx, wait)
	}
}

func (l *Loop) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-l.Wake:
		pause(ctx, l.Gather)
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Wakers hands out the wake-up channels of loops by the kind of task they work on.
type Wakers struct {
	mu sync.Mutex
	ch map[string]chan struct{}
}

// Of is the channel of a kind.
func (w *Wakers) Of(kind string) <-chan struct{} { return w.of(kind) }

func (w *Wakers) of(kind string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = map[string]chan struct{}{}
	}
	if w.ch[kind] == nil {
		w.ch[kind] = make(chan struct{}, 1)
	}
	return w.ch[kind]
}

// Wake wakes the loop of a kind, or all of them for "". It never blocks: one wake-up
// that waits stands for all.
func (w *Wakers) Wake(kind string) {
	if kind == "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.ch {
			poke(c)
		}
		return
	}
	poke(w.of(kind))
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Listen keeps l heard by w until ctx ends, over broken connections.
func (w *Wakers) Listen(ctx context.Context, l interface {
	Listen(ctx context.Context, heard func(kind string)) error
}, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := l.Listen(ctx, w.Wake); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "worker: not told of due tasks; the tick goes on", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
}
