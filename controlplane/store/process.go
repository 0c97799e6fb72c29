package store

import (
	"context"
	"time"

	"berth/models"
)

// BeginProcess looks again, under the locks, at the file of a claimed process task, and
// returns what its chain has said so far.
func (s *Store) BeginProcess(ctx context.Context, k models.Task, now time.Time) (v models.ProcessView, err error) {
	err = s.within(ctx, "begin process", func(t tx) error {
		v = models.ProcessView{}
		if v.File, err = t.lockFile(models.FileID(k.Target)); err != nil {
			return err
		}
		ok, err := t.held(k)
		switch {
		case err != nil:
			return err
		case !ok:
			v.Decision = models.LeaseLost
			return nil
		case v.File.State != models.FileProcessing:
			v.Decision = models.Ignored
			return nil
		}
		var r replicaRow
		n, err := t.read(&r, `SELECT `+replicaColumns+` FROM replicas r WHERE r.file_id = @id AND r.is_primary AND r.state = 'ready'`, args{"id": k.Target})
		if err != nil {
			return err
		}
		if n == 0 {
			v.Decision, v.Why = models.Refused, "the file has no primary replica that is ready"
			return nil
		}
		v.Decision, v.Replica = models.Allowed, r.model()
		v.Done, err = t.stepResults(v.File.ID)
		return err
	})
	return v, err
}

// stepResults are the verdicts of a file's present round, in order.
func (t tx) stepResults(id models.FileID) ([]models.StepResult, error) {
	var rows []models.StepResult
	_, err := t.read(&rows, `SELECT s.step, s.name, s.verdict, s.reason FROM step_results s JOIN files f ON f.id = s.file_id AND f.round = s.round
		WHERE s.file_id = @id ORDER BY s.step`, args{"id": id})
	return rows, err
}

// RecordStep takes a step's verdict, fenced by the lease that the step was called under
// and by the file still being processed: a stale one changes nothing. The last verdict of
// a chain, of which the names are given, publishes the file, in the same transaction.
func (s *Store) RecordStep(ctx context.Context, k models.Task, r models.StepResult, chain []string, now time.Time) (out models.Verdicted, err error) {
	err = s.within(ctx, "record step", func(t tx) error {
		out = models.VerdictStale
		f, ok, err := t.lockProcess(k)
		if err != nil || !ok {
			return err
		}
		ok, err = t.one(`INSERT INTO step_results (file_id, round, step, name, verdict, reason, at, token_hash)
			SELECT id, round, @step, @name, @verdict, @reason, @now,
				(SELECT token_hash FROM step_waits WHERE task_id = @task AND lease_version = @fence) FROM files WHERE id = @id
			ON CONFLICT (file_id, round, step) DO NOTHING`,
			args{"id": f.ID, "task": k.ID, "fence": k.LeaseVersion, "step": r.Step, "name": r.Name, "verdict": r.Verdict, "reason": r.Reason, "now": now})
		if err != nil || !ok {
			return err
		}
		if err := t.moved(f.ID, models.HistoryEntry{At: now, What: "task", ID: string(k.ID), From: string(models.TaskRunning),
			To: string(models.TaskRunning), Actor: "step:" + r.Name, Why: string(r.Verdict) + ": " + r.Reason}); err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM step_waits WHERE task_id = @id`, args{"id": k.ID}); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE files SET derived_accepted = true, updated_at = @now WHERE parent_id = @id AND derived_fence = @fence`,
			args{"id": f.ID, "fence": k.LeaseVersion, "now": now}); err != nil {
			return err
		}
		done, err := t.stepResults(f.ID)
		if err != nil {
			return err
		}
		if _, more := models.NextStep(done, chain); more {
			out = models.VerdictNoted
			_, err = t.finish(k, models.TaskResult{To: models.TaskPending, RunAt: now}, now)
			return err
		}
		out = models.VerdictPublished
		if err := t.publish(f, models.Conclude(done), now); err != nil {
			return err
		}
		_, err = t.finish(k, models.TaskResult{To: models.TaskSucceeded}, now)
		return err
	})
	return out, err
}

// lockProcess takes owner guard, file and task of a processing file. ok is false when the
// lease is not the caller's any more, or the file has moved on.
func (t tx) lockProcess(k models.Task) (models.File, bool, error) {
	id := models.FileID(k.Target)
	if err := t.lockGuard(id); err != nil {
		return models.File{}, false, err
	}
	f, err := t.lockFile(id)
	if err != nil {
		return f, false, err
	}
	ok, err := t.held(k)
	return f, ok && f.State == models.FileProcessing, err
}

// publish moves a processed file to where its chain's verdict says.
func (t tx) publish(f models.File, v models.StepResult, now time.Time) error {
	actor := models.ActorStep
	if v.Name != "" {
		actor += ":" + v.Name
	}
	if v.Verdict == models.StepDelete {
		return t.failFile(f, models.CodeForbidden, v.Name+": "+v.Reason, actor, now)
	}
	to, told := models.FileActive, models.EventFileActive
	if v.Verdict == models.StepBlock {
		to, told = models.FileBlocked, models.EventFileBlocked
	}
	if err := t.must(`UPDATE files SET state = @to, activated_at = @activated, reason = @reason, updated_at = @now WHERE id = @id AND state = 'processing'`,
		args{"id": f.ID, "to": to, "activated": nullTime(activatedAt(to, now)), "reason": null(v.Reason), "now": now}, "publish file"); err != nil {
		return err
	}
	if err := t.moved(f.ID, step(now, "file", string(f.ID), models.FileProcessing, to, actor, v.Reason)); err != nil {
		return err
	}
	if to == models.FileActive {
		if err := t.attachDerived(f.ID, actor, now); err != nil {
			return err
		}
	}
	f, err := t.file(models.Whose{}, f.ID)
	if err != nil {
		return err
	}
	return t.tell(told, f, now)
}

// FailStep ends an attempt at a step that failed. When it was the last, what the steps
// before it said still stands: a block is a block. Otherwise the file waits, processing,
// for a person.
func (s *Store) FailStep(ctx context.Context, k models.Task, why string, now time.Time) (ok bool, err error) {
	err = s.within(ctx, "fail step", func(t tx) error {
		f, held, err := t.lockProcess(k)
		if ok = held; err != nil || !held {
			return err
		}
		r := models.AfterFailure(k, why, now)
		if r.To == models.TaskFailed {
			done, err := t.stepResults(f.ID)
			if err != nil {
				return err
			}
			if v := models.Conclude(done); v.Verdict != models.StepPass {
				if err := t.publish(f, v, now); err != nil {
					return err
				}
			}
		}
		_, err = t.finish(k, r, now)
		return err
	})
	return ok, err
}

// WaitStep notes that a step answers later: the lease is prolonged until then, and the
// token's hash kept. ok is false when the lease was lost.
func (s *Store) WaitStep(ctx context.Context, w models.StepWait, now time.Time) (ok bool, err error) {
	err = s.within(ctx, "wait for step", func(t tx) error {
		ok, err = t.one(`UPDATE tasks SET lease_until = @until, updated_at = @now WHERE `+leaseGuard,
			leaseArgs(w.Task, args{"until": w.Until, "now": now}))
		if err != nil || !ok {
			return err
		}
		_, err = t.exec(`INSERT INTO step_waits (task_id, lease_version, step, name, token_hash) VALUES (@id, @fence, @step, @name, @hash)
			ON CONFLICT (task_id) DO UPDATE SET lease_version = EXCLUDED.lease_version, step = EXCLUDED.step, name = EXCLUDED.name, token_hash = EXCLUDED.token_hash`,
			args{"id": w.Task.ID, "fence": w.Task.LeaseVersion, "step": w.Step, "name": w.Name, "hash": w.TokenHash})
		return err
	})
	return ok, err
}

// Wait returns the step that a task waits for, NOT_FOUND if it waits for none, or has
// another lease by now.
func (s *Store) Wait(ctx context.Context, id models.TaskID) (models.StepWait, error) {
	var row struct {
		Task      taskRow `gorm:"embedded"`
		Step      int
		Name      string
		TokenHash []byte
	}
	n, err := s.alone(ctx).read(&row, `SELECT `+taskColumns+`, w.step, w.name, w.token_hash
		FROM step_waits w JOIN tasks t ON t.id = w.task_id AND t.lease_version = w.lease_version AND t.state = 'running' WHERE w.task_id = @id`, args{"id": id})
	if err == nil && n == 0 {
		err = models.NotFound("task")
	}
	return models.StepWait{Task: row.Task.model(), Step: row.Step, Name: row.Name, TokenHash: row.TokenHash}, wrap("step wait", err)
}

// Answered returns what the steps of a process task have said, in all rounds, each with the
// hash of the token that it was called with.
func (s *Store) Answered(ctx context.Context, id models.TaskID) ([]models.StepSaid, error) {
	var rows []models.StepSaid
	_, err := s.alone(ctx).read(&rows, `SELECT s.verdict, s.reason, s.token_hash FROM step_results s
		JOIN tasks t ON t.target = s.file_id AND t.kind = 'process' WHERE t.id = @id AND s.token_hash IS NOT NULL`, args{"id": id})
	return rows, wrap("step results", err)
}
