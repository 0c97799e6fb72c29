package store

import (
	"context"
	"time"

	"berth/models"
)

// Announce marks reap tasks as announced and returns them, for whoever sends the messages:
// those due that nobody has a message about, and those whose message is too old. The mark
// is the sender's lease: two announcers never get the same task. full is whether the whole
// window is due, so that more may be due behind it.
func (s *Store) Announce(ctx context.Context, a models.Announcing) (tasks []models.ReapMessage, full bool, err error) {
	var rows []struct{ ID, FileID string }
	if _, err := s.alone(ctx).read(&rows, `WITH due AS MATERIALIZED (
			(SELECT id FROM tasks WHERE kind = 'reap' AND state = 'pending' AND run_at <= @now ORDER BY run_at LIMIT @window)
			UNION ALL
			(SELECT id FROM tasks WHERE kind = 'reap' AND state = 'running' AND lease_until <= @now AND attempts < max_attempts AND NOT manual
			  ORDER BY lease_until LIMIT @window)),
		mine AS MATERIALIZED (
			SELECT k.id FROM tasks k JOIN due ON due.id = k.id
			 WHERE (k.state = 'pending' AND k.run_at <= @now OR k.state = 'running' AND k.lease_until <= @now)
			   AND (k.announced_at IS NULL OR GREATEST(k.announced_at, CASE k.state WHEN 'running' THEN k.lease_until ELSE k.run_at END) <= @before)
			 ORDER BY k.run_at LIMIT @limit FOR UPDATE OF k SKIP LOCKED)
		UPDATE tasks t SET announced_at = @now FROM mine WHERE t.id = mine.id RETURNING t.id, t.file_id`,
		args{"now": a.Now, "before": a.Now.Add(-a.Again), "window": a.Window, "limit": a.Limit}); err != nil {
		return nil, false, wrap("announce tasks", err)
	}
	var n struct{ N int }
	if _, err := s.alone(ctx).read(&n, `SELECT count(*) AS n FROM (SELECT FROM tasks WHERE kind = 'reap' AND state = 'pending' AND run_at <= @now
		ORDER BY run_at LIMIT @window) x`, args{"now": a.Now, "window": a.Window}); err != nil {
		return nil, false, wrap("due tasks", err)
	}
	for _, r := range rows {
		tasks = append(tasks, models.ReapMessage{TaskID: models.TaskID(r.ID), FileID: models.FileID(r.FileID)})
	}
	return tasks, n.N >= a.Window, nil
}

// Unannounce takes back that tasks were announced: no message is about them any more, so
// that they are announced when they are due.
func (s *Store) Unannounce(ctx context.Context, ids []models.TaskID) error {
	_, err := s.alone(ctx).exec(`UPDATE tasks SET announced_at = NULL WHERE id = ANY(CAST(@ids AS text[]))`, args{"ids": textArray(ids)})
	return wrap("unannounce tasks", err)
}

// NextReap is when the next reap task becomes due that is not due yet; ok is false when
// there is none.
func (s *Store) NextReap(ctx context.Context, now time.Time) (at time.Time, ok bool, err error) {
	var row struct{ At *time.Time }
	_, err = s.alone(ctx).read(&row, `SELECT LEAST(
		(SELECT min(run_at) FROM tasks WHERE kind = 'reap' AND state = 'pending' AND run_at > @now),
		(SELECT min(lease_until) FROM tasks WHERE kind = 'reap' AND state = 'running' AND lease_until > @now)) AS at`, args{"now": now})
	return timeOf(row.At), row.At != nil, wrap("next reap", err)
}

// Task returns a task: NOT_FOUND if there is none.
func (s *Store) Task(ctx context.Context, id models.TaskID) (models.Task, error) {
	var row taskRow
	n, err := s.alone(ctx).read(&row, `SELECT `+taskColumns+` FROM tasks t WHERE t.id = @id`, args{"id": id})
	if err == nil && n == 0 {
		err = models.NotFound("task")
	}
	return row.model(), wrap("task", err)
}
