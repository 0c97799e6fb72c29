package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"berth/models"
)

// Announcements is what the announcer needs of the database.
type Announcements interface {
	Announce(ctx context.Context, a models.Announcing) (tasks []models.ReapMessage, full bool, err error)
	Unannounce(ctx context.Context, ids []models.TaskID) error
	NextReap(ctx context.Context, now time.Time) (at time.Time, ok bool, err error)
}

// ReapQueue sends messages about reap tasks. The errors stand at the places of their
// messages; nil means that the queue has the message.
type ReapQueue interface {
	Send(ctx context.Context, messages []models.ReapMessage) []error
}

// Announcer tells a queue which reap tasks are due. A task is marked before its message is
// sent, so that of all announcers one sends it, and not at every pass: the mark is taken
// back when the sending fails, and is too old after Again, which is what a death between
// the two, or a message that gets lost, costs.
type Announcer struct {
	Tasks   Announcements
	Queue   ReapQueue
	Again   time.Duration
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics

	full bool // of the last pass
}

const (
	// announceLimit is how many tasks a pass announces: ten batches of SQS.
	announceLimit = 100
	// announceWindow is how many due tasks may wait in the queue at once.
	announceWindow = 2000
	// whenFull is how long to wait for the queue to be worked off.
	whenFull = time.Second
	// unannounceTimeout bounds the taking back, which is done also at a stop.
	unannounceTimeout = 5 * time.Second
)

// AnnounceCounts is what one pass did.
type AnnounceCounts struct{ Sent, Failed int }

// RunOnce announces one batch.
func (a *Announcer) RunOnce(ctx context.Context) (c AnnounceCounts, err error) {
	tasks, full, err := a.Tasks.Announce(ctx, models.Announcing{Again: a.Again, Window: announceWindow, Limit: announceLimit, Now: a.Now()})
	a.full = full
	if err != nil || len(tasks) == 0 {
		return c, err
	}
	var failed []models.TaskID
	var errs []error
	for i, err := range a.Queue.Send(ctx, tasks) {
		if err != nil {
			failed, errs = append(failed, tasks[i].TaskID), append(errs, err)
		}
	}
	c.Sent, c.Failed = len(tasks)-len(failed), len(failed)
	a.Metrics.announce(c)
	if len(failed) == 0 {
		return c, nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), unannounceTimeout)
	defer cancel()
	return c, errors.Join(errs[0], a.Tasks.Unannounce(back, failed))
}

// Next is when there may be more to announce.
func (a *Announcer) Next(ctx context.Context) (at time.Time, ok bool, err error) {
	now := a.Now()
	if a.full {
		return now.Add(whenFull), true, nil
	}
	return a.Tasks.NextReap(ctx, now)
}
