package store

import (
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
