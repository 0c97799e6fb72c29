package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/models"
)

// recheck is how long an overdue upload that could not be closed is left alone, so that
// those behind it have their turn.
const recheck = 30 * time.Second

// quietMost is the longest between two looks at an upload of which nothing is heard.
const quietMost = 10 * time.Minute

// heldByParent is true of a derived file's upload that is all there, while the file that it
// is derived from is not settled: it waits for that, however long, and not for its own end.
const heldByParent = `(state = 'completed' AND EXISTS (SELECT 1 FROM files d JOIN files p ON p.id = d.parent_id WHERE d.id = uploads.file_id
	AND (p.state = 'processing' OR (p.state = 'blocked' AND p.activated_at IS NULL))))`

// Overdue returns open uploads that are past their end, and marks them as looked at. One
// whose Complete is in flight is left out until its lease is dead.
func (s *Store) Overdue(ctx context.Context, now time.Time, limit int) ([]models.Upload, error) {
	return s.look(ctx, "overdue uploads", `SELECT id FROM uploads
		WHERE state IN ('init', 'uploading', 'completing', 'completed') AND expires_at <= @now
		  AND (lease_until IS NULL OR lease_until <= @now) AND (checked_at IS NULL OR checked_at < expires_at OR checked_at <= @before)
		  AND NOT `+heldByParent+`
		ORDER BY expires_at LIMIT @limit FOR UPDATE SKIP LOCKED`, args{"before": now.Add(-recheck), "now": now, "limit": limit})
}

// Quiet returns uploads of which nothing was heard for a while, although their bytes may
// be there: a single PUT that was signed, a Complete whose lease is dead. They are marked
// as looked at, and looked at ever more seldom, up to quietMost: an upload that nobody
// sends costs a hundred looks in a day, not one a minute, and the bytes of one that is sent
// late wait no longer than that when their event is lost.
func (s *Store) Quiet(ctx context.Context, quiet time.Duration, now time.Time, limit int) ([]models.Upload, error) {
	return s.look(ctx, "quiet uploads", `SELECT id FROM uploads
		WHERE (state = 'completing' OR (state = 'uploading' AND method = 'single'))
		  AND (lease_until IS NULL OR lease_until <= @now) AND GREATEST(updated_at, checked_at) <= @before
		  AND GREATEST(updated_at, checked_at) + LEAST(GREATEST(checked_at - updated_at, interval '0'), make_interval(secs => @most)) <= @now
		ORDER BY GREATEST(updated_at, checked_at) LIMIT @limit FOR UPDATE SKIP LOCKED`,
		args{"before": now.Add(-quiet), "most": quietMost.Seconds(), "now": now, "limit": limit})
}

func (s *Store) look(ctx context.Context, op, which string, a args) ([]models.Upload, error) {
	var rows []uploadRow
	_, err := s.alone(ctx).read(&rows, `UPDATE uploads u SET checked_at = @now WHERE u.id IN (`+which+`) RETURNING `+uploadColumns, a)
	return uploadModels(rows), wrap(op, err)
}

func uploadModels(rows []uploadRow) []models.Upload {
	out := make([]models.Upload, len(rows))
	for i := range rows {
		out[i] = rows[i].model()
	}
	return out
}

// EnsureReaps makes the reap tasks that are missing: of replicas on their way out, and of
// open uploads. Each is its own transaction, and those that fail do not keep the rest: what
// is behind them has its turn in the same pass. It returns how many it made.
func (s *Store) EnsureReaps(ctx context.Context, now time.Time, limit int) (int, error) {
	const mostFailed = 10 // times the limit
	made := 0
	failed, errs := []string{}, []error{}
	for made < limit && len(failed) < mostFailed*limit && ctx.Err() == nil {
		var ids []string
		if _, err := s.alone(ctx).read(&ids, `
			(SELECT r.id FROM replicas r WHERE r.state IN ('write_failed', 'delete_pending', 'deleting') AND r.id <> ALL(CAST(@failed AS text[]))
				AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.kind = 'reap' AND t.target = r.id AND t.state IN ('pending', 'running')) LIMIT @limit)
			UNION
			(SELECT u.replica_id FROM uploads u WHERE u.state IN ('init', 'uploading', 'completing', 'completed') AND u.replica_id <> ALL(CAST(@failed AS text[]))
				AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.kind = 'reap' AND t.target = u.replica_id AND t.state IN ('pending', 'running')) LIMIT @limit)`,
			args{"failed": textArray(failed), "limit": limit}); err != nil {
			return made, errors.Join(append(errs, wrap("missing reap tasks", err))...)
		}
		before := len(failed)
		for _, id := range ids {
			if err := s.ensureReap(ctx, models.ReplicaID(id), now); err != nil {
				failed, errs = append(failed, id), append(errs, fmt.Errorf("replica %s: %w", id, err))
				continue
			}
			made++
		}
		if len(failed) == before {
			break // all of them are made: more wait for the next pass, as records of other kinds do
		}
	}
	return made, errors.Join(errs...)
}

func (s *Store) ensureReap(ctx context.Context, id models.ReplicaID, now time.Time) error {
	return s.within(ctx, "ensure reap task", func(t tx) error {
		r, err := t.lockReplica(id)
		if err != nil {
			return err
		}
		if r.State == models.ReplicaWriteFailed {
			if err := t.moveReplica(r, models.ReplicaDeletePending, models.ActorRepair, "", now); err != nil {
				return err
			}
		}
		return t.reapNow(r, now)
	})
}

// Housekeep keeps what grows without end within bounds: history partitions ahead, expired
// keys and grants, closed tasks, sent events, condemnations, and what is older than keep of history,
// of steps' verdicts, of foreign versions that are gone, and of the runs of reconcile (keep
// zero keeps all). At most limit rows of a kind a pass; history
// goes by whole months.
func (s *Store) Housekeep(ctx context.Context, now time.Time, keep time.Duration, limit int) error {
	t := s.alone(ctx)
	var errs []error
	run := func(op, q string, a args) {
		if _, err := t.exec(q, a); err != nil {
			errs = append(errs, wrap(op, err))
		}
	}
	a := args{"now": now, "old": now.Add(-30 * 24 * time.Hour), "limit": limit}
	run("history partitions", `SELECT berth_history_partitions(@now, 3)`, args{"now": now})
	if _, err := s.ExpireIdempotency(ctx, now, limit); err != nil {
		errs = append(errs, err)
	}
	run("expire grants", `DELETE FROM grant_uses WHERE (tenant, owner, grant_id) IN
		(SELECT tenant, owner, grant_id FROM grant_uses WHERE expires_at <= @old LIMIT @limit)`, a) // a renewal may come long after the end
	run("drop closed tasks", `DELETE FROM tasks WHERE id IN
		(SELECT id FROM tasks WHERE state IN ('succeeded', 'cancelled') AND closed_at <= @old LIMIT @limit)`, a)
	run("drop sent events", `DELETE FROM outbox WHERE id IN
		(SELECT id FROM outbox WHERE state IN ('sent', 'cancelled') AND closed_at <= @old LIMIT @limit)`, a)
	run("spare what was condemned", `DELETE FROM condemned WHERE (store, key, version_id) IN (SELECT c.store, c.key, c.version_id
		FROM condemned c JOIN reconciliations r ON r.id = c.run_id WHERE r.finished_at <= @spared LIMIT @limit)`,
		args{"spared": now.Add(-CondemnedFor), "limit": limit})
	if keep > 0 {
		a["before"] = now.Add(-keep)
		run("drop old verdicts", `DELETE FROM step_results WHERE (file_id, round, step) IN (
			SELECT s.file_id, s.round, s.step FROM step_results s JOIN files f ON f.id = s.file_id
			 WHERE s.at <= @before AND f.state <> 'processing' ORDER BY s.at LIMIT @limit)`, args{"before": a["before"], "limit": limit})
		run("drop old foreign versions", `DELETE FROM foreign_versions WHERE (store, key, version_id) IN (
			SELECT store, key, version_id FROM foreign_versions WHERE reaped_at <= @before ORDER BY reaped_at LIMIT @limit)`,
			args{"before": a["before"], "limit": limit})
		run("drop old history", `SELECT berth_history_drop(@before)`, args{"before": a["before"]})
		run("drop old runs", `DELETE FROM reconciliations WHERE id IN (SELECT id FROM reconciliations r
			WHERE finished_at <= @before AND NOT EXISTS (SELECT 1 FROM condemned c WHERE c.run_id = r.id) LIMIT @limit)`,
			args{"before": a["before"], "limit": limit})
	}
	return errors.Join(errs...)
}

// PastDeadline counts open sessions that are past their end by more than slack: what
// repair should have closed by now.
func (s *Store) PastDeadline(ctx context.Context, now time.Time, slack time.Duration) (n int64, err error) {
	var row struct{ N int64 }
	_, err = s.alone(ctx).read(&row, `SELECT count(*) AS n FROM uploads WHERE state IN ('init', 'uploading', 'completing', 'completed') AND expires_at <= @at`,
		args{"at": now.Add(-slack)})
	return row.N, wrap("uploads past deadline", err)
}
