package worker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"berth/models"
	"berth/tracing"
)

// ReapTasks is what the reaper needs of the database.
type ReapTasks interface {
	Renewer
	Claim(ctx context.Context, c models.Claiming) ([]models.Task, error)
	Task(ctx context.Context, id models.TaskID) (models.Task, error)
	Unannounce(ctx context.Context, ids []models.TaskID) error
	Finish(ctx context.Context, k models.Task, r models.TaskResult, now time.Time) (ok bool, err error)
	BeginReap(ctx context.Context, k models.Task, now time.Time) (models.ReapPlan, error)
	NoteDeletes(ctx context.Context, k models.Task, r models.Replica, versions []models.ObjectVersion, to models.ReplicaState, now time.Time) (ok bool, err error)
	FinishReap(ctx context.Context, k models.Task, p models.ReapPlan, o models.ReapOutcome, now time.Time) (ok bool, err error)
}

// ReapObjects is what the reaper needs of a store.
type ReapObjects interface {
	ListMultiparts(ctx context.Context, prefix string) iter.Seq2[models.OpenMultipart, error]
	AbortMultipart(ctx context.Context, key, s3UploadID string) error
	ListVersions(ctx context.Context, prefix string) iter.Seq2[models.ObjectVersion, error]
	DeleteVersions(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error)
}

// Reaper removes what S3 holds for a key: multipart uploads until none is listed, every
// version and delete marker of exactly that key, by version id. Missing is success.
type Reaper struct {
	Tasks   ReapTasks
	Stores  func(models.StoreName) (ReapObjects, bool)
	Owner   string        // names this process in leases
	Lease   time.Duration // renewed at a third of it
	Limit   int           // tasks at once, whoever asks for them
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
	Trace   *tracing.Tracer

	once  sync.Once
	slots chan struct{} // one for each task in hand
}

// ReapCounts is what one pass did.
type ReapCounts struct {
	Claimed, Reaped, Ignored, Postponed, Refused, Failed, Lost int
	Versions, Multiparts                                       int
}

const (
	// reapBatch is how many versions one DeleteObjects takes.
	reapBatch = 1000
	// reapLimit bounds one attempt: a store that goes silent must not hold a worker, whose
	// lease is renewed all the while, for ever.
	reapLimit = 15 * time.Minute
	// abortRounds bounds how often the multiparts of a key are listed again: parts in
	// flight may land after an abort.
	abortRounds = 10
)

// RunOnce claims due reap tasks, as many as there are slots free, and does them side by side.
func (r *Reaper) RunOnce(ctx context.Context) (ReapCounts, error) {
	tasks, err := r.Claim(ctx, r.Limit)
	if err != nil {
		return ReapCounts{}, err
	}
	c := ReapCounts{Claimed: len(tasks)}
	var mu sync.Mutex
	errs := sideBySide(tasks, func(k models.Task) error {
		defer r.leave(1)
		d, o, err := r.do(ctx, k)
		mu.Lock()
		defer mu.Unlock()
		c.add(d, o)
		return err
	})
	return c, errors.Join(errs...)
}

// Claim takes at most n due reap tasks, and a slot for each: fewer, if messages hold slots.
func (r *Reaper) Claim(ctx context.Context, n int) ([]models.Task, error) {
	free := r.free(n)
	if free == 0 {
		return nil, nil
	}
	tasks, err := r.claim(ctx, "", free)
	r.leave(free - len(tasks))
	return tasks, err
}

// claim takes due tasks: the one named, or any.
func (r *Reaper) claim(ctx context.Context, id models.TaskID, n int) ([]models.Task, error) {
	now := r.Now()
	tasks, err := r.Tasks.Claim(ctx, models.Claiming{Kind: models.TaskReap, Task: id, Owner: r.Owner, Until: now.Add(r.Lease), Limit: n, Now: now})
	r.Metrics.claimed(tasks)
	return tasks, err
}

// Do does one task of Claim, and gives its slot back.
func (r *Reaper) Do(ctx context.Context, k models.Task) error {
	defer r.leave(1)
	_, _, err := r.do(ctx, k)
	return err
}

func (r *Reaper) do(ctx context.Context, k models.Task) (models.Decision, models.ReapOutcome, error) {
	d, o, err := r.one(ctx, k)
	r.Metrics.reaped(d, o)
	if err != nil {
		err = fmt.Errorf("reap %s: %w", k.Target, err)
	}
	return d, o, err
}

func (c *ReapCounts) add(d models.Decision, o models.ReapOutcome) {
	c.Versions += o.Versions
	c.Multiparts += o.Multipart
	switch {
	case d == models.LeaseLost:
		c.Lost++
	case d == models.Ignored:
		c.Ignored++
	case d == models.Postponed:
		c.Postponed++
	case d == models.Refused:
		c.Refused++
	case o.Failure != "":
		c.Failed++
	default:
		c.Reaped++
	}
}

// one does one claimed task: look again and decide under the locks, act outside any
// transaction, record under the fence.
//
// It is a trace of its own, linked to the upload's: that may be years old.
func (r *Reaper) one(ctx context.Context, k models.Task) (d models.Decision, out models.ReapOutcome, err error) {
	ctx, span := r.Trace.Start(ctx, tracing.Consumer, "reap", taskAttrs(k)...)
	tracing.Link(ctx, k.Traceparent)
	defer func() {
		span.Set(tracing.String("berth.outcome", string(d)))
		if out.Failure != "" {
			span.Fail("store")
		}
		span.End(err)
	}()
	defer caught(&err)
	p, err := r.Tasks.BeginReap(ctx, k, r.Now())
	if err != nil {
		return models.Refused, models.ReapOutcome{}, err // the lease runs out, and it is claimed again
	}
	switch p.Decision {
	case models.Allowed:
	case models.LeaseLost:
		return p.Decision, models.ReapOutcome{}, nil
	default:
		return p.Decision, models.ReapOutcome{}, r.put(ctx, k, p)
	}
	var o models.ReapOutcome
	err = leased(ctx, r.Tasks, k, r.Lease, r.Now, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, reapLimit)
		defer cancel()
		var err error
		o, err = r.sweep(ctx, k, p)
		return err
	})
	if errors.Is(err, errLeaseLost) {
		return models.LeaseLost, o, nil
	}
	if ctx.Err() != nil {
		return models.LeaseLost, o, ctx.Err() // stopping: the lease runs out and another goes on
	}
	if err != nil {
		o.Failure = short(err)
	}
	ok, err := r.Tasks.FinishReap(ctx, k, p, o, r.Now())
	if err == nil && !ok {
		return models.LeaseLost, o, nil
	}
	return models.Allowed, o, err
}

// put gives back a task that was not allowed to act.
func (r *Reaper) put(ctx context.Context, k models.Task, p models.ReapPlan) error {
	res := models.TaskResult{To: models.TaskSucceeded}
	switch p.Decision {
	case models.Postponed:
		res = models.TaskResult{To: models.TaskPending, RunAt: p.At}
	case models.Refused:
		res = models.TaskResult{To: models.TaskFailed, Err: p.Why, Counted: true}
	}
	_, err := r.Tasks.Finish(ctx, k, res, r.Now())
	return err
}

// sweep empties the key, but for the version to keep.
func (r *Reaper) sweep(ctx context.Context, k models.Task, p models.ReapPlan) (o models.ReapOutcome, err error) {
	st, ok := r.Stores(p.Replica.Store)
	if !ok {
		return o, fmt.Errorf("the store %q is not configured", p.Replica.Store)
	}
	// Where a version is kept, its session is closed: what is still open is of an attempt
	// that died.
	if o.Multipart, err = r.abort(ctx, st, p); err != nil {
		return o, err
	}
	var batch []models.ObjectVersion
	for v, err := range st.ListVersions(ctx, p.Replica.Key) {
		if err != nil {
			return o, err
		}
		if v.Key != p.Replica.Key || v.VersionID == p.Keep {
			continue // a prefix is not a key
		}
		batch = append(batch, v)
		if len(batch) == reapBatch {
			if err := r.remove(ctx, st, k, p, batch, &o); err != nil {
				return o, err
			}
			batch = batch[:0]
		}
	}
	return o, r.remove(ctx, st, k, p, batch, &o)
}

// abort ends the multipart uploads of the key, until none is listed.
func (r *Reaper) abort(ctx context.Context, st ReapObjects, p models.ReapPlan) (n int, err error) {
	key := p.Replica.Key
	for range abortRounds {
		found := 0
		for m, err := range st.ListMultiparts(ctx, key) {
			if err != nil {
				return n, err
			}
			if m.Key != key {
				continue
			}
			found++
			if err := st.AbortMultipart(ctx, key, m.S3UploadID); err != nil {
				return n, err
			}
		}
		if found == 0 {
			return n, nil
		}
		n += found
	}
	return n, errors.New("multipart uploads are still listed after their aborts")
}

// remove deletes a batch by version id. What it is about to delete is in the history
// before it goes, and what went is there after; both only while the lease is ours.
func (r *Reaper) remove(ctx context.Context, st ReapObjects, k models.Task, p models.ReapPlan, batch []models.ObjectVersion, o *models.ReapOutcome) error {
	if len(batch) == 0 {
		return nil
	}
	ok, err := r.Tasks.NoteDeletes(ctx, k, p.Replica, batch, models.ReplicaDeleting, r.Now())
	if err != nil {
		return err
	}
	if !ok {
		return errLeaseLost
	}
	refs := make([]models.VersionRef, len(batch))
	for i, v := range batch {
		refs[i] = models.VersionRef{Key: v.Key, VersionID: v.VersionID}
	}
	results, err := st.DeleteVersions(ctx, refs)
	if err != nil {
		return err
	}
	failed := map[string]bool{}
	for _, d := range results {
		if d.Err == nil {
			continue
		}
		failed[d.VersionID] = true
		// A lock or a policy does not pass by itself: one such refusal stands for all.
		final := d.Err.Kind == models.ObjectLocked || d.Err.Kind == models.ObjectDenied
		if o.Failure == "" || (final && !o.Final) {
			o.Failure = fmt.Sprintf("%s: %s, of version %s", d.Err.Kind, d.Err.Code, d.VersionID)
		}
		o.Final = o.Final || final
	}
	gone := make([]models.ObjectVersion, 0, len(batch))
	for _, v := range batch {
		if !failed[v.VersionID] {
			gone = append(gone, v)
			o.Versions++
			o.Bytes += v.Size
		}
	}
	if len(gone) > 0 {
		if ok, err := r.Tasks.NoteDeletes(ctx, k, p.Replica, gone, models.ReplicaDeleted, r.Now()); err != nil {
			return err
		} else if !ok {
			return errLeaseLost
		}
	}
	return nil
}

// short is an error's text as it is kept with a task: bounded, on one line.
func short(err error) string {
	s := err.Error()
	if len(s) > 500 {
		s = s[:500]
	}
	return s
}
