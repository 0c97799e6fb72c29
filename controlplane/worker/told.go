package worker

import (
	"context"
	"time"

	"berth/models"
)

// soonest is after how long a message about a task comes again that is due but not to be
// had: another transaction has it this moment.
const soonest = time.Second

// Told does the task that a message announces, if it is due and nobody has it. The message
// is only the wake-up: the task is claimed by its id under the same guard as any other, and
// what the attempt comes to is read from the row. patience is for how long the message can
// stay hidden; a task that is due later than that is announced anew when it is.
//
// An error passes: the message is to come again.
func (r *Reaper) Told(ctx context.Context, m models.ReapMessage, patience time.Duration) (models.ReapAnswer, error) {
	k, a, err := r.look(ctx, m)
	if err != nil || k.ID == "" {
		return a, err
	}
	if !due(k, r.Now()) {
		return r.answer(ctx, k, patience)
	}
	if err := r.enter(ctx); err != nil {
		return models.ReapAnswer{}, err
	}
	defer r.leave(1)
	tasks, err := r.claim(ctx, m.TaskID, 1)
	if err != nil {
		return models.ReapAnswer{}, err
	}
	for _, k := range tasks {
		if _, _, err := r.do(ctx, k); err != nil {
			return models.ReapAnswer{}, err
		}
	}
	if k, a, err = r.look(ctx, m); err != nil || k.ID == "" {
		return a, err
	}
	return r.answer(ctx, k, patience)
}

// look reads the task of a message. Without one that is open, the answer is final.
func (r *Reaper) look(ctx context.Context, m models.ReapMessage) (models.Task, models.ReapAnswer, error) {
	k, err := r.Tasks.Task(ctx, m.TaskID)
	switch {
	case models.ErrorCode(err) == models.CodeNotFound: // done long ago, and its row dropped
		return models.Task{}, models.ReapAnswer{}, nil
	case err != nil:
		return models.Task{}, models.ReapAnswer{}, err
	case k.Kind != models.TaskReap:
		return models.Task{}, models.ReapAnswer{Poison: "the task is no reap task"}, nil
	case k.FileID != m.FileID:
		return models.Task{}, models.ReapAnswer{Poison: "the task is not of the file that the message names"}, nil
	case k.State != models.TaskPending && k.State != models.TaskRunning:
		return models.Task{}, models.ReapAnswer{}, nil
	}
	return k, models.ReapAnswer{}, nil
}

// answer keeps the message of an open task hidden until the task can be had, or gives it up.
func (r *Reaper) answer(ctx context.Context, k models.Task, patience time.Duration) (models.ReapAnswer, error) {
	if wait := max(claimable(k).Sub(r.Now()), soonest); wait <= patience {
		return models.ReapAnswer{After: wait}, nil
	}
	// Before the message goes: if we die in between there are two, which is harmless.
	return models.ReapAnswer{}, r.Tasks.Unannounce(ctx, []models.TaskID{k.ID})
}

// claimable is when an open task can be had: when it is due, or when another's lease ends.
func claimable(k models.Task) time.Time {
	if k.State == models.TaskRunning {
		return k.LeaseUntil
	}
	return k.RunAt
}

func due(k models.Task, now time.Time) bool { return !claimable(k).After(now) }

// places are the slots: messages and the loop together have no more than Limit tasks in hand.
func (r *Reaper) places() chan struct{} {
	r.once.Do(func() { r.slots = make(chan struct{}, r.Limit) })
	return r.slots
}

// enter takes a slot, or waits for one.
func (r *Reaper) enter(ctx context.Context) error {
	select {
	case r.places() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free takes the slots that nobody has, at most so many, and says how many.
func (r *Reaper) free(most int) (n int) {
	for n < most {
		select {
		case r.places() <- struct{}{}:
			n++
		default:
			return n
		}
	}
	return n
}

// leave gives slots back.
func (r *Reaper) leave(n int) {
	for range n {
		<-r.places()
	}
}
