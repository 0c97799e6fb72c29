package store

import (
	"time"

	"berth/models"
)

// mayDerive holds a step's lease under the lock of the file that it looks at: only while
// that is processed, and the lease alive, may something derived from it be begun.
func (t tx) mayDerive(d models.Derivation) error {
	f, err := t.lockFile(d.Parent)
	if err != nil {
		return err
	}
	var row struct{ ID string }
	n, err := t.read(&row, `SELECT id FROM tasks WHERE id = @id AND lease_version = @fence AND state = 'running' FOR SHARE`,
		args{"id": d.Task, "fence": d.Fence})
	if err != nil {
		return err
	}
	if n == 0 || f.State != models.FileProcessing {
		return models.Errorf(models.CodeSessionClosed, "the lease that this token was given under is over")
	}
	return nil
}

// derived locks what is derived from a file, in the order of their ids, and after the file
// itself: they are younger.
func (t tx) derived(parent models.FileID) ([]models.File, error) {
	var rows []fileRow
	if _, err := t.read(&rows, `SELECT `+fileColumns+` FROM files f WHERE f.parent_id = @id ORDER BY f.id FOR UPDATE`, args{"id": parent}); err != nil {
		return nil, err
	}
	out := make([]models.File, len(rows))
	for i := range rows {
		out[i] = rows[i].model()
	}
	return out, nil
}

// attachDerived makes what the steps derived visible with the file. What is not all there,
// or came under a lease without a verdict, is a stale worker's: it is closed.
func (t tx) attachDerived(parent models.FileID, actor string, now time.Time) error {
	files, err := t.derived(parent)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.State != models.FilePreparing {
			continue
		}
		u, err := t.heldUpload(f.UploadID)
		if err != nil {
			return err
		}
		var row struct{ Accepted bool }
		if _, err := t.read(&row, `SELECT derived_accepted AS accepted FROM files WHERE id = @id`, args{"id": f.ID}); err != nil {
			return err
		}
		if u.State == models.UploadCompleted && row.Accepted {
			if err := t.attach(u, f, false, actor, now); err != nil {
				return err
			}
			continue
		}
		if err := t.closeDerived(f, u, actor, now); err != nil {
			return err
		}
	}
	return nil
}

// dropDerived sends what is derived from a file out with it. The caller holds the file.
func (t tx) dropDerived(parent models.FileID, actor string, now time.Time) error {
	files, err := t.derived(parent)
	if err != nil {
		return err
	}
	for _, f := range files {
		switch f.State {
		case models.FilePreparing:
			u, err := t.heldUpload(f.UploadID)
			if err != nil {
				return err
			}
			if err := t.closeDerived(f, u, actor, now); err != nil {
				return err
			}
		case models.FileActive, models.FileBlocked, models.FileFailed, models.FileDeleteFailed:
			if err := t.deleteFile(f, actor, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeDerived ends an upload whose file will not be attached; the caller holds both. One
// whose Complete is in flight is left to its deadline: nobody attaches it any more.
func (t tx) closeDerived(f models.File, u models.Upload, actor string, now time.Time) error {
	const why = "what it is derived from was settled without it"
	if !models.Uploads.May(u.State, models.UploadAborted) {
		return nil
	}
	if err := t.must(`UPDATE uploads SET state = 'aborted', lease_until = NULL, reason_code = @code, reason = @why, closed_at = @now, updated_at = @now
		WHERE id = @id AND state = @was`, args{"id": u.ID, "was": u.State, "code": models.CodeSessionClosed, "why": why, "now": now}, "close derived upload"); err != nil {
		return err
	}
	if err := t.moved(f.ID, step(now, "upload", string(u.ID), u.State, models.UploadAborted, actor, why)); err != nil {
		return err
	}
	return t.failFile(f, models.CodeSessionClosed, why, actor, now)
}
