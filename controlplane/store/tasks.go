package store

import (
	"cmp"
	"context"
	"time"

	"berth/models"
)

// reapNow brings the reap task of a replica forward, or makes one. A running one may have
// listed the key already: that its run_at is later than when it was claimed tells it, when
// it finishes, that something was heard meanwhile. The caller holds file and replica.
func (t tx) reapNow(r models.Replica, now time.Time) error {
	// What was announced for later is announced anew: its message may be hidden until then.
	n, err := t.exec(`UPDATE tasks SET run_at = CASE state WHEN 'running' THEN `+heardAgain+` ELSE LEAST(run_at, @now) END, updated_at = @now,
			announced_at = CASE WHEN run_at <= @now THEN announced_at END
		WHERE kind = 'reap' AND target = @target AND state IN `+list(models.TaskPending, models.TaskRunning),
		args{"target": r.ID, "now": now})
	if err != nil || n > 0 {
		return err
	}
	return t.insertTask(models.Task{ID: models.NewTaskID(), Kind: models.TaskReap, Target: string(r.ID), RunAt: now,
		MaxAttempts: models.DefaultMaxAttempts, CreatedAt: now}, r.FileID)
}

// heardAgain is the run_at of a running task of whose key something is heard.
const heardAgain = `GREATEST(run_at + interval '1 microsecond', @now)`

// cancelTasks cancels the open task of a kind and target. One that runs finds its lease
// gone when it finishes.
func (t tx) cancelTasks(kind models.TaskKind, target string, file models.FileID, actor string, now time.Time) error {
	var rows []struct{ ID, Was string }
	if _, err := t.read(&rows, `WITH old AS (SELECT id, state FROM tasks WHERE kind = @kind AND target = @target AND state IN ('pending', 'running') FOR UPDATE)
		UPDATE tasks t SET state = 'cancelled', lease_owner = NULL, lease_until = NULL, closed_at = @now, updated_at = @now
		  FROM old WHERE t.id = old.id RETURNING t.id, old.state AS was`,
		args{"kind": kind, "target": target, "now": now}); err != nil {
		return err
	}
	for _, r := range rows {
		if err := t.moved(file, step(now, "task", r.ID, models.TaskState(r.Was), models.TaskCancelled, actor, string(kind))); err != nil {
			return err
		}
	}
	return nil
}

// EnsureReap brings the reap task of a replica forward, or makes one: something was
// heard of its key that should not be there.
func (s *Store) EnsureReap(ctx context.Context, id models.ReplicaID, now time.Time) error {
	return s.within(ctx, "ensure reap", func(t tx) error {
		r, err := t.lockReplica(id)
		if err != nil {
			return err
		}
		return t.reapNow(r, now)
	})
}

// NoteForeign records a version under a known key that is not ours, and has it reaped.
func (s *Store) NoteForeign(ctx context.Context, f models.ForeignVersion, now time.Time) error {
	return s.within(ctx, "note foreign version", func(t tx) error {
		r, err := t.lockReplica(f.ReplicaID)
		if err != nil {
			return err
		}
		ok, err := t.one(`INSERT INTO foreign_versions (store, key, version_id, replica_id, seen_at)
			VALUES (@store, @key, @version, @replica, @now)
			ON CONFLICT (store, key, version_id) DO UPDATE SET reaped_at = NULL, seen_at = EXCLUDED.seen_at WHERE foreign_versions.reaped_at IS NOT NULL`,
			args{"store": f.Store, "key": f.Key, "version": f.VersionID, "replica": f.ReplicaID, "now": now})
		if err != nil {
			return err
		}
		if !ok { // a null version may have come again while it is swept
			_, err := t.exec(`UPDATE tasks SET run_at = `+heardAgain+` WHERE kind = 'reap' AND target = @target AND state = 'running'`,
				args{"target": r.ID, "now": now})
			return err
		}
		if err := t.moved(r.FileID, models.HistoryEntry{At: now, What: "object", ID: string(r.ID), To: "foreign",
			Actor: cmp.Or(f.Actor, models.ActorEvent), Why: "a version under this key that is not ours", VersionID: f.VersionID}); err != nil {
			return err
		}
		return t.reapNow(r, now)
	})
}

// lockReplica locks a replica's file, then the replica, and returns it.
func (t tx) lockReplica(id models.ReplicaID) (models.Replica, error) {
	var file struct{ FileID string }
	n, err := t.read(&file, `SELECT file_id FROM replicas WHERE id = @id`, args{"id": id})
	if err != nil {
		return models.Replica{}, err
	}
	if n == 0 {
		return models.Replica{}, models.NotFound("replica")
	}
	if _, err := t.lockFile(models.FileID(file.FileID)); err != nil {
		return models.Replica{}, err
	}
	var r replicaRow
	_, err = t.read(&r, `SELECT `+replicaColumns+` FROM replicas r WHERE r.id = @id FOR UPDATE`, args{"id": id})
	return r.model(), err
}

const taskColumns = `t.id, t.kind, t.target, t.state, t.run_at, t.attempts, t.max_attempts, t.manual,
	COALESCE(t.lease_owner, '') AS lease_owner, t.lease_until, t.lease_version, COALESCE(t.last_error, '') AS last_error,
	t.file_id, t.created_at, t.updated_at`

type taskRow struct {
	ID, Kind, Target, State string
	RunAt                   time.Time
	Attempts, MaxAttempts   int
	Manual                  bool
	LeaseOwner              string
	LeaseUntil              *time.Time
	LeaseVersion            int64
	TakenOver               bool
	LastError, FileID       string
	Traceparent             string
	CreatedAt, UpdatedAt    time.Time
}

func (r *taskRow) model() models.Task {
	return models.Task{ID: models.TaskID(r.ID), Kind: models.TaskKind(r.Kind), Target: r.Target, FileID: models.FileID(r.FileID),
		State: models.TaskState(r.State), RunAt: r.RunAt.UTC(), Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, Manual: r.Manual,
		LeaseOwner: r.LeaseOwner, LeaseUntil: timeOf(r.LeaseUntil), LeaseVersion: r.LeaseVersion, TakenOver: r.TakenOver, LastError: r.LastError, Traceparent: r.Traceparent,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC()}
}

// Claim takes due tasks of one kind: pending ones, and running ones whose lease is dead.
// One statement, which locks tasks only; it counts the attempt and makes the fencing
// token. Two workers never get the same task.
func (s *Store) Claim(ctx context.Context, c models.Claiming) ([]models.Task, error) {
	only := ""
	if c.Task != "" {
		only = "id = @task AND "
	}
	var rows []taskRow
	_, err := s.alone(ctx).read(&rows, `WITH dead AS MATERIALIZED (
			SELECT id FROM tasks WHERE `+only+`kind = @kind AND state = 'running' AND lease_until <= @now AND attempts < max_attempts AND NOT manual
			 ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED),
		due AS MATERIALIZED (
			SELECT id FROM tasks WHERE `+only+`kind = @kind AND state = 'pending' AND run_at <= @now
			 ORDER BY `+claimOrder(c.Kind)+`run_at LIMIT @limit - (SELECT count(*) FROM dead) FOR UPDATE SKIP LOCKED)
		UPDATE tasks t SET state = 'running', lease_owner = @owner, lease_until = @until,
			lease_version = t.lease_version + 1, attempts = t.attempts + 1, updated_at = @now
		WHERE t.id IN (SELECT id FROM dead UNION ALL SELECT id FROM due)
		RETURNING `+taskColumns+`, EXISTS (SELECT 1 FROM dead WHERE dead.id = t.id) AS taken_over,
			COALESCE((SELECT u.traceparent FROM uploads u WHERE u.file_id = t.file_id), '') AS traceparent`,
		args{"task": c.Task, "kind": c.Kind, "owner": c.Owner, "until": c.Until, "limit": c.Limit, "now": c.Now})
	if err != nil {
		return nil, wrap("claim tasks", err)
	}
	out := make([]models.Task, len(rows))
	for i := range rows {
		out[i] = rows[i].model()
	}
	return out, nil
}

// Spent returns tasks whose lease is dead and whose attempts are used up: their workers died,
// or never said how it went. Nobody claims them any more; they are to fail.
func (s *Store) Spent(ctx context.Context, now time.Time, limit int) ([]models.Task, error) {
	var rows []taskRow
	_, err := s.alone(ctx).read(&rows, `SELECT `+taskColumns+` FROM tasks t WHERE t.state = 'running' AND t.lease_until <= @now
		AND (t.attempts >= t.max_attempts OR t.manual) ORDER BY t.lease_until LIMIT @limit`, args{"now": now, "limit": limit})
	out := make([]models.Task, len(rows))
	for i := range rows {
		out[i] = rows[i].model()
	}
	return out, wrap("spent tasks", err)
}

// claimOrder puts replications in three strict classes: a file that nobody can read and
// nobody is writing first, then one that nobody can read, then the rest.
func claimOrder(kind models.TaskKind) string {
	if kind != models.TaskReplicate {
		return ""
	}
	return `CASE WHEN EXISTS (SELECT 1 FROM replicas r WHERE r.file_id = tasks.file_id AND r.state = 'ready') THEN 2
		WHEN EXISTS (SELECT 1 FROM replicas r WHERE r.file_id = tasks.file_id AND r.state = 'writing') THEN 1 ELSE 0 END, `
}

// NextDue is when the next pending task of a kind is due, or a running one's lease ends;
// ok is false when there is none.
func (s *Store) NextDue(ctx context.Context, kind models.TaskKind) (at time.Time, ok bool, err error) {
	var row struct{ At *time.Time }
	_, err = s.alone(ctx).read(&row, `SELECT LEAST(
		(SELECT min(run_at) FROM tasks WHERE kind = @kind AND state = 'pending'),
		(SELECT min(lease_until) FROM tasks WHERE kind = @kind AND state = 'running')) AS at`, args{"kind": kind})
	return timeOf(row.At), row.At != nil, wrap("next due", err)
}

// Renew prolongs a lease that is still ours. ok is false when it is not.
func (s *Store) Renew(ctx context.Context, k models.Task, until, now time.Time) (ok bool, err error) {
	ok, err = s.alone(ctx).one(`UPDATE tasks SET lease_until = @until, updated_at = @now WHERE `+leaseGuard,
		leaseArgs(k, args{"until": until, "now": now}))
	return ok, wrap("renew lease", err)
}

// leaseGuard holds a statement to the lease that a worker was given: the owner and the
// fencing token. One that wakes up late changes nothing.
const leaseGuard = `id = @id AND state = 'running' AND lease_owner = @owner AND lease_version = @fence`

func leaseArgs(k models.Task, a args) args {
	a["id"], a["owner"], a["fence"] = k.ID, k.LeaseOwner, k.LeaseVersion
	return a
}

// Finish ends an attempt as result says, guarded by the lease. ok is false when the
// lease was lost; nothing is changed then.
func (s *Store) Finish(ctx context.Context, k models.Task, r models.TaskResult, now time.Time) (ok bool, err error) {
	err = s.within(ctx, "finish task", func(t tx) error {
		ok, err = t.finish(k, r, now)
		return err
	})
	return ok, err
}

func (t tx) finish(k models.Task, r models.TaskResult, now time.Time) (bool, error) {
	back := 0
	if r.To == models.TaskPending && !r.Counted {
		back = 1
	}
	a := leaseArgs(k, args{"to": r.To, "run_at": nullTime(r.RunAt), "error": null(r.Err), "back": back, "now": now})
	closed := "NULL"
	if models.Tasks.Ends(r.To) || r.To == models.TaskFailed {
		closed = "@now"
	}
	ok, err := t.one(`UPDATE tasks SET state = @to, run_at = COALESCE(@run_at, run_at), last_error = @error, attempts = attempts - @back,
			lease_owner = NULL, lease_until = NULL, closed_at = `+closed+`, updated_at = @now
		WHERE `+leaseGuard, a)
	if err != nil || !ok {
		return false, err
	}
	return true, t.moved(k.FileID, step(now, "task", string(k.ID), models.TaskRunning, r.To, k.LeaseOwner, r.Err))
}

// held locks a claimed task and tells whether the lease is still ours. The caller holds
// file and replica.
func (t tx) held(k models.Task) (bool, error) {
	var row struct{ ID string }
	n, err := t.read(&row, `SELECT id FROM tasks WHERE `+leaseGuard+` FOR UPDATE`, leaseArgs(k, args{}))
	return n == 1, err
}

// Retry puts a failed task back to work, by hand: it keeps its count and stops after
// this one attempt. Where its target's deletion had failed, the replica is taken up
// again. NOT_READY unless it has failed.
func (s *Store) Retry(ctx context.Context, id models.TaskID, actor string, now time.Time) (k models.Task, err error) {
	err = s.within(ctx, "retry task", func(t tx) error {
		var row taskRow
		n, err := t.read(&row, `SELECT `+taskColumns+` FROM tasks t WHERE t.id = @id`, args{"id": id})
		if err != nil {
			return err
		}
		if n == 0 {
			return models.NotFound("task")
		}
		if _, err := t.lockFile(models.FileID(row.FileID)); err != nil {
			return err
		}
		if models.TaskKind(row.Kind) == models.TaskReap {
			r, err := t.lockReplica(models.ReplicaID(row.Target))
			if err != nil {
				return err
			}
			if r.State == models.ReplicaDeleteFailed {
				if err := t.moveReplica(r, models.ReplicaDeletePending, actor, "retried", now); err != nil {
					return err
				}
				if err := t.retake(models.FileID(row.FileID), actor, now); err != nil {
					return err
				}
			}
		}
		if models.TaskKind(row.Kind) == models.TaskProcess {
			// The whole chain is run again: what it said before is of an earlier round.
			if _, err := t.exec(`UPDATE files SET round = round + 1 WHERE id = @id AND state = 'processing'`, args{"id": row.FileID}); err != nil {
				return err
			}
			if _, err := t.exec(`UPDATE files d SET derived_accepted = false FROM files p
				WHERE d.parent_id = @id AND p.id = d.parent_id AND p.state = 'processing'`, args{"id": row.FileID}); err != nil {
				return err
			}
		}
		ok, err := t.one(`UPDATE tasks SET state = 'pending', manual = true, run_at = @now, announced_at = NULL, closed_at = NULL, updated_at = @now
			WHERE id = @id AND state = 'failed' AND NOT EXISTS (SELECT 1 FROM tasks o WHERE o.kind = @kind AND o.target = @target AND o.state IN ('pending', 'running'))`,
			args{"id": id, "kind": row.Kind, "target": row.Target, "now": now})
		if err != nil {
			return err
		}
		if !ok {
			return models.Errorf(models.CodeNotReady, "the task has not failed, or another one does its work")
		}
		if err := t.moved(models.FileID(row.FileID), step(now, "task", string(id), models.TaskFailed, models.TaskPending, actor, "by hand")); err != nil {
			return err
		}
		if _, err := t.read(&row, `SELECT `+taskColumns+` FROM tasks t WHERE t.id = @id`, args{"id": id}); err != nil {
			return err
		}
		k = row.model()
		return nil
	})
	return k, err
}

// retake puts a file whose deletion had failed back on its way out.
func (t tx) retake(id models.FileID, actor string, now time.Time) error {
	ok, err := t.one(`UPDATE files SET state = 'deleting', reason = NULL, updated_at = @now WHERE id = @id AND state = 'delete_failed'`,
		args{"id": id, "now": now})
	if err != nil || !ok {
		return err
	}
	return t.moved(id, step(now, "file", string(id), models.FileDeleteFailed, models.FileDeleting, actor, "retried"))
}

// Tasks lists a tenant's tasks, newest first; an empty kind or state is any.
func (s *Store) Tasks(ctx context.Context, tenant models.Tenant, kind models.TaskKind, state models.TaskState, before models.TaskID, limit int) ([]models.Task, error) {
	var rows []taskRow
	if _, err := s.alone(ctx).read(&rows, `SELECT `+taskColumns+` FROM tasks t JOIN files f ON f.id = t.file_id WHERE f.tenant = @tenant
			AND (CAST(@kind AS text) = '' OR t.kind = @kind) AND (CAST(@state AS text) = '' OR t.state = @state)
			AND (CAST(@before AS text) = '' OR t.id < @before) ORDER BY t.id DESC LIMIT @limit`,
		args{"tenant": tenant, "kind": kind, "state": state, "before": before, "limit": limit}); err != nil {
		return nil, wrap("tasks", err)
	}
	out := make([]models.Task, len(rows))
	for i := range rows {
		out[i] = rows[i].model()
	}
	return out, nil
}

// TaskOf tells whether a task is of a tenant's file: NOT_FOUND if not.
func (s *Store) TaskOf(ctx context.Context, tenant models.Tenant, id models.TaskID) error {
	var row struct{ ID string }
	n, err := s.alone(ctx).read(&row, `SELECT t.id FROM tasks t JOIN files f ON f.id = t.file_id WHERE t.id = @id AND f.tenant = @tenant`,
		args{"id": id, "tenant": tenant})
	if err == nil && n == 0 {
		err = models.NotFound("task")
	}
	return wrap("task", err)
}

// TaskStats counts the tasks that are due, at work or failed, by kind and state.
func (s *Store) TaskStats(ctx context.Context, now time.Time) ([]models.TaskStats, error) {
	var rows []struct {
		Kind, State string
		Count       int64
		Oldest      *time.Time
	}
	// Kind by kind, as the indexes are: over all of them it would be a walk through every task that waits.
	if _, err := s.alone(ctx).read(&rows, `SELECT k.kind, 'pending' AS state, x.count, x.oldest FROM unnest(CAST(@kinds AS text[])) k (kind), LATERAL (
				SELECT count(*) AS count, min(t.run_at) AS oldest FROM tasks t WHERE t.kind = k.kind AND t.state = 'pending' AND t.run_at <= @now) x WHERE x.count > 0
		UNION ALL
		SELECT k.kind, 'running', x.count, x.oldest FROM unnest(CAST(@kinds AS text[])) k (kind), LATERAL (
				SELECT count(*) AS count, min(t.lease_until) AS oldest FROM tasks t WHERE t.kind = k.kind AND t.state = 'running') x WHERE x.count > 0
		UNION ALL
		SELECT kind, 'failed', count(*), min(run_at) FROM tasks WHERE state = 'failed' GROUP BY kind`,
		args{"now": now, "kinds": textArray(models.TaskKinds)}); err != nil {
		return nil, wrap("task stats", err)
	}
	out := make([]models.TaskStats, len(rows))
	for i, r := range rows {
		out[i] = models.TaskStats{Kind: models.TaskKind(r.Kind), State: models.TaskState(r.State), Count: r.Count, Oldest: timeOf(r.Oldest)}
	}
	return out, nil
}
