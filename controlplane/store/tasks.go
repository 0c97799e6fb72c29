package store

import (
	"context"
	"time"

	"berth/models"
)

// reapNow brings the reap task of a replica forward, or makes one. A running one is left
// alone: it looks at the replica again before it finishes. The caller holds file and
// replica.
func (t tx) reapNow(r models.Replica, now time.Time) error {
	n, err := t.exec(`UPDATE tasks SET run_at = LEAST(run_at, @now), updated_at = @now
		WHERE kind = 'reap' AND target = @target AND state IN `+list(models.TaskPending, models.TaskRunning),
		args{"target": r.ID, "now": now})
	if err != nil || n > 0 {
		return err
	}
	return t.insertTask(models.Task{ID: models.NewTaskID(), Kind: models.TaskReap, Target: string(r.ID), RunAt: now,
		MaxAttempts: models.DefaultMaxAttempts, CreatedAt: now}, r.FileID)
}

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
			VALUES (@store, @key, @version, @replica, @now) ON CONFLICT DO NOTHING`,
			args{"store": f.Store, "key": f.Key, "version": f.VersionID, "replica": f.ReplicaID, "now": now})
		if err != nil || !ok {
			return err
		}
		if err := t.moved(r.FileID, models.HistoryEntry{At: now, What: "object", ID: string(r.ID), To: "foreign",
			Actor: models.ActorEvent, Why: "a version under this key that is not ours", VersionID: f.VersionID}); err != nil {
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
