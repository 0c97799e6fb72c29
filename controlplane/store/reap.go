package store

import (
	"context"
	"time"

	"berth/models"
)

// BeginReap looks again, under the locks, at what a claimed reap task wants to remove,
// and decides. Allowed to remove all, it moves the replica to deleting. LeaseLost means
// that somebody else has the task now.
func (s *Store) BeginReap(ctx context.Context, k models.Task, now time.Time) (p models.ReapPlan, err error) {
	err = s.within(ctx, "begin reap", func(t tx) error {
		v, err := t.reapView(k)
		if err != nil {
			return err
		}
		ok, err := t.held(k)
		if err != nil {
			return err
		}
		if !ok {
			p = models.ReapPlan{Decision: models.LeaseLost, Replica: v.Replica, FileID: v.File.ID}
			return nil
		}
		p = models.DecideReap(v, now)
		if p.Decision != models.Allowed {
			return nil
		}
		if p.Foreign, err = t.foreign(v.Replica); err != nil {
			return err
		}
		if p.Keep != "" {
			return nil
		}
		if v.Replica.State == models.ReplicaDeletePending {
			if err := t.moveReplica(v.Replica, models.ReplicaDeleting, models.ActorReaper, "", now); err != nil {
				return err
			}
			p.Replica.State = models.ReplicaDeleting
		}
		return nil
	})
	return p, err
}

// reapView locks file, then replica, and reads the upload beside them.
func (t tx) reapView(k models.Task) (models.ReapView, error) {
	r, err := t.lockReplica(models.ReplicaID(k.Target))
	if err != nil {
		return models.ReapView{}, err
	}
	f, err := t.file(models.Whose{}, r.FileID)
	if err != nil {
		return models.ReapView{}, err
	}
	v := models.ReapView{File: f, Replica: r, Manual: k.Manual}
	if r.State == models.ReplicaDeleted {
		var row struct{ Reason string }
		if _, err := t.read(&row, `SELECT COALESCE(reason, '') AS reason FROM replicas WHERE id = @id`, args{"id": r.ID}); err != nil {
			return models.ReapView{}, err
		}
		v.Detached = row.Reason == models.ReasonDetached
	}
	var row struct {
		Upload    uploadRow `gorm:"embedded"`
		GraceSecs float64
	}
	n, err := t.read(&row, `SELECT `+uploadColumns+`, EXTRACT(epoch FROM u.grace)::float8 AS grace_secs FROM uploads u
		WHERE u.file_id = @file AND u.replica_id = @id`, args{"file": r.FileID, "id": r.ID})
	if err != nil {
		return models.ReapView{}, err
	}
	if n == 1 {
		u := row.Upload.model()
		v.Upload, v.Grace = &u, time.Duration(row.GraceSecs*float64(time.Second))
	}
	return v, nil
}

// foreign are the versions noted under a replica's key that are not reaped.
func (t tx) foreign(r models.Replica) ([]string, error) {
	var ids []string
	_, err := t.read(&ids, `SELECT version_id FROM foreign_versions WHERE store = @store AND key = @key AND reaped_at IS NULL`,
		args{"store": r.Store, "key": r.Key})
	return ids, err
}

// foreignGone notes what a clean sweep has ended, also where it died before it could say
// which version it deleted. more is whether others were noted meanwhile, or anything was
// heard of the key since the task was claimed: it may have come after the key was listed.
func (t tx) foreignGone(k models.Task, r models.Replica, versions []string, now time.Time) (more bool, err error) {
	var row struct{ More bool }
	_, err = t.read(&row, `WITH gone AS (UPDATE foreign_versions SET reaped_at = @now
			WHERE store = @store AND key = @key AND reaped_at IS NULL AND version_id = ANY(CAST(@versions AS text[])))
		SELECT EXISTS (SELECT 1 FROM foreign_versions WHERE store = @store AND key = @key AND reaped_at IS NULL
			AND version_id <> ALL(CAST(@versions AS text[]))) OR EXISTS (SELECT 1 FROM tasks WHERE id = @task AND run_at > @claimed) AS more`,
		args{"store": r.Store, "key": r.Key, "versions": textArray(versions), "task": k.ID, "claimed": k.RunAt, "now": now})
	return row.More, err
}

// NoteDeletes writes physical deletes into the history, before they are made (to
// deleting) and after (to deleted), fenced by the lease. ok is false when it was lost:
// the caller must not delete.
func (s *Store) NoteDeletes(ctx context.Context, k models.Task, r models.Replica, versions []models.ObjectVersion, to models.ReplicaState, now time.Time) (ok bool, err error) {
	err = s.within(ctx, "note deletes", func(t tx) error {
		if ok, err = t.held(k); err != nil || !ok {
			return err
		}
		ids := make([]string, len(versions))
		why := make([]string, len(versions))
		for i, v := range versions {
			ids[i] = v.VersionID
			if v.Marker {
				why[i] = "delete marker"
			}
		}
		from := ""
		if to == models.ReplicaDeleted {
			from = string(models.ReplicaDeleting)
		}
		if _, err := t.exec(`INSERT INTO history (at, file_id, what, subject, from_state, to_state, actor, why, version_id)
			SELECT @now, @file, 'object', @replica, @from, @to, @actor, w, v
			  FROM unnest(CAST(@versions AS text[]), CAST(@why AS text[])) AS x (v, w)`,
			args{"now": now, "file": r.FileID, "replica": r.ID, "from": from, "to": to, "actor": models.ActorReaper,
				"versions": textArray(ids), "why": textArray(why)}); err != nil {
			return err
		}
		if to == models.ReplicaDeleted {
			_, err = t.exec(`UPDATE foreign_versions SET reaped_at = @now WHERE store = @store AND key = @key
				AND version_id = ANY(CAST(@versions AS text[])) AND reaped_at IS NULL`,
				args{"now": now, "store": r.Store, "key": r.Key, "versions": textArray(ids)})
		}
		return err
	})
	return ok, err
}

// FinishReap records what a reaper did: the replica moves on, its file with it when it
// was the last, and the task ends or waits for the next sweep. ok is false when the lease
// was lost; nothing is changed then.
func (s *Store) FinishReap(ctx context.Context, k models.Task, p models.ReapPlan, o models.ReapOutcome, now time.Time) (ok bool, err error) {
	err = s.within(ctx, "finish reap", func(t tx) error {
		ok = false
		v, err := t.reapView(k)
		if err != nil {
			return err
		}
		if ok, err = t.held(k); err != nil || !ok {
			return err
		}
		if o.Failure != "" {
			return t.reapFailed(k, v, o, now)
		}
		more, err := t.foreignGone(k, v.Replica, p.Foreign, now)
		if err != nil {
			return err
		}
		if p.Keep != "" {
			// Only foreign versions went. If the file was deleted meanwhile, there is more to do.
			r := models.TaskResult{To: models.TaskSucceeded}
			if more || v.Replica.State != models.ReplicaReady {
				r = models.TaskResult{To: models.TaskPending, RunAt: now}
			}
			_, err = t.finish(k, r, now)
			return err
		}
		if p.Replica.State == models.ReplicaDeleted && !more {
			_, err = t.finish(k, models.TaskResult{To: models.TaskSucceeded}, now)
			return err
		}
		if more || v.Replica.State != models.ReplicaDeleting {
			_, err = t.finish(k, models.TaskResult{To: models.TaskPending, RunAt: now}, now)
			return err
		}
		if !p.SweepAgain.IsZero() {
			if err := t.moveReplica(v.Replica, models.ReplicaDeletePending, models.ActorReaper, "swept again after the last URL", now); err != nil {
				return err
			}
			_, err = t.finish(k, models.TaskResult{To: models.TaskPending, RunAt: p.SweepAgain}, now)
			return err
		}
		if err := t.moveReplica(v.Replica, models.ReplicaDeleted, models.ActorReaper, "", now); err != nil {
			return err
		}
		if err := t.finishDelete(v.File.ID, models.ActorReaper, now); err != nil {
			return err
		}
		_, err = t.finish(k, models.TaskResult{To: models.TaskSucceeded}, now)
		return err
	})
	return ok, err
}

// reapFailed ends a failed attempt. The last of them leaves the replica, and a file that
// was to be deleted, in delete_failed with the reason: from there by hand only.
func (t tx) reapFailed(k models.Task, v models.ReapView, o models.ReapOutcome, now time.Time) error {
	r := models.AfterFailure(k, o.Failure, now)
	if o.Final {
		r = models.TaskResult{To: models.TaskFailed, Err: o.Failure, Counted: true}
	}
	if r.To == models.TaskFailed && v.Replica.State == models.ReplicaDeleting {
		if err := t.moveReplica(v.Replica, models.ReplicaDeleteFailed, models.ActorReaper, o.Failure, now); err != nil {
			return err
		}
		ok, err := t.one(`UPDATE files SET state = 'delete_failed', reason = @why, updated_at = @now WHERE id = @id AND state = 'deleting'`,
			args{"id": v.File.ID, "why": o.Failure, "now": now})
		if err != nil {
			return err
		}
		if ok {
			if err := t.moved(v.File.ID, step(now, "file", string(v.File.ID), models.FileDeleting, models.FileDeleteFailed, models.ActorReaper, o.Failure)); err != nil {
				return err
			}
		}
	}
	_, err := t.finish(k, r, now)
	return err
}
