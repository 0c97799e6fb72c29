package store

import (
	"context"
	"time"

	"berth/models"
)

// File returns one file, NOT_FOUND if absent or another's.
func (s *Store) File(ctx context.Context, w models.Whose, id models.FileID) (models.File, error) {
	f, err := s.alone(ctx).file(w, id)
	return f, wrap("file", err)
}

func (t tx) file(w models.Whose, id models.FileID) (models.File, error) {
	var r fileRow
	a := args{"id": id}
	n, err := t.read(&r, `SELECT `+fileColumns+` FROM files f WHERE f.id = @id`+whoseClause("f", w, a), a)
	if err == nil && n == 0 {
		err = models.NotFound("file")
	}
	return r.model(), err
}

// Files lists a page, newest first.
func (s *Store) Files(ctx context.Context, q models.FileFilter) ([]models.File, error) {
	a := args{"limit": q.Limit}
	where := `TRUE` + whoseClause("f", q.Whose, a)
	if q.Collection != "" {
		where, a["collection"] = where+" AND f.collection = @collection", q.Collection
	}
	if q.State != "" {
		where, a["state"] = where+" AND f.state = @state", q.State
	}
	if q.Before != "" {
		where, a["before"] = where+" AND f.id < @before", q.Before
	}
	var rows []fileRow
	if _, err := s.alone(ctx).read(&rows, `SELECT `+fileColumns+` FROM files f WHERE `+where+` ORDER BY f.id DESC LIMIT @limit`, a); err != nil {
		return nil, wrap("files", err)
	}
	out := make([]models.File, len(rows))
	for i := range rows {
		out[i] = rows[i].model()
	}
	return out, nil
}

// Readable returns a file and the replica to read it from: ready, the primary first.
// ok is false when it has none.
func (s *Store) Readable(ctx context.Context, w models.Whose, id models.FileID) (f models.File, r models.Replica, ok bool, err error) {
	t := s.alone(ctx)
	if f, err = t.file(w, id); err != nil {
		return f, r, false, wrap("readable", err)
	}
	var row replicaRow
	n, err := t.read(&row, `SELECT `+replicaColumns+` FROM replicas r WHERE r.file_id = @id AND r.state = 'ready'
		ORDER BY r.is_primary DESC, r.id LIMIT 1`, args{"id": id})
	return f, row.model(), n == 1, wrap("readable", err)
}

// Patch changes a name or the metadata of a file that is not on its way out.
func (s *Store) Patch(ctx context.Context, w models.Whose, id models.FileID, p models.FilePatch) (f models.File, err error) {
	err = s.within(ctx, "patch file", func(t tx) error {
		a := args{"id": id, "name": p.Name, "metadata": null(string(p.Metadata)), "now": p.Now}
		ok, err := t.one(`UPDATE files f SET name = COALESCE(@name, f.name), metadata = COALESCE(CAST(@metadata AS jsonb), f.metadata), updated_at = @now
			WHERE f.id = @id`+whoseClause("f", w, a)+` AND f.state IN `+list(models.FilePreparing, models.FileProcessing, models.FileActive, models.FileBlocked), a)
		if err != nil {
			return err
		}
		if f, err = t.file(w, id); err == nil && !ok {
			err = models.Errorf(models.CodeNotReady, "the file is %s", f.State)
		}
		return err
	})
	return f, err
}

// Delete makes a file unreadable at once, releases its quota and has its replicas
// reaped. Repeated, it changes nothing. A file that is still being sent is not deleted
// but aborted: NOT_READY.
func (s *Store) Delete(ctx context.Context, w models.Whose, id models.FileID, actor string, now time.Time) (f models.File, err error) {
	err = s.within(ctx, "delete file", func(t tx) error {
		if _, err := t.file(w, id); err != nil {
			return err
		}
		if err := t.lockGuard(id); err != nil {
			return err
		}
		if f, err = t.lockFile(id); err != nil {
			return err
		}
		switch f.State {
		case models.FileDeleting, models.FileDeleted:
			return nil
		case models.FileActive, models.FileBlocked, models.FileFailed, models.FileDeleteFailed:
		default:
			return models.Errorf(models.CodeNotReady, "the file is %s: abort its upload instead", f.State)
		}
		if err := t.deleteFile(f, actor, now); err != nil {
			return err
		}
		f, err = t.file(w, id)
		return err
	})
	return f, err
}

// deleteFile sends a file on its way out, and with it what is derived from it. The caller
// holds owner guard and file.
func (t tx) deleteFile(f models.File, actor string, now time.Time) error {
	id := f.ID
	was := f.State
	if err := t.must(`UPDATE files SET state = 'deleting', guarded = false, updated_at = @now WHERE id = @id AND state = @was`,
		args{"id": id, "was": was, "now": now}, "file to deleting"); err != nil {
		return err
	}
	if err := t.moved(id, step(now, "file", string(id), was, models.FileDeleting, actor, "")); err != nil {
		return err
	}
	if err := t.release(f); err != nil {
		return err
	}
	if err := t.dropDerived(id, actor, now); err != nil {
		return err
	}
	if err := t.dropReplicas(id, actor, now); err != nil {
		return err
	}
	return t.finishDelete(id, actor, now)
}

// finishDelete moves a deleting file to deleted once none of its replicas is left. The
// caller holds the file.
func (t tx) finishDelete(id models.FileID, actor string, now time.Time) error {
	ok, err := t.one(`UPDATE files SET state = 'deleted', deleted_at = @now, updated_at = @now
		WHERE id = @id AND state = 'deleting' AND NOT EXISTS (SELECT 1 FROM replicas WHERE file_id = @id AND state <> 'deleted')`,
		args{"id": id, "now": now})
	if err != nil || !ok {
		return err
	}
	if err := t.moved(id, step(now, "file", string(id), models.FileDeleting, models.FileDeleted, actor, "")); err != nil {
		return err
	}
	f, err := t.file(models.Whose{}, id)
	if err != nil {
		return err
	}
	return t.tell(models.EventFileDeleted, f, now)
}

// SetBlocked blocks an active file or unblocks a blocked one. A file that was blocked
// before it ever was active becomes active by the unblocking, with its one event.
func (s *Store) SetBlocked(ctx context.Context, tenant models.Tenant, id models.FileID, block bool, reason, actor string, now time.Time) (f models.File, err error) {
	err = s.within(ctx, "block file", func(t tx) error {
		if f, err = t.lockFile(id); err != nil {
			return err
		}
		if f.Tenant != tenant {
			return models.NotFound("file")
		}
		was, to := models.FileActive, models.FileBlocked
		if !block {
			was, to = to, was
		}
		if f.State == to {
			return nil
		}
		if f.State != was {
			return models.Errorf(models.CodeNotReady, "the file is %s", f.State)
		}
		if err := t.must(`UPDATE files SET state = @to, reason = @reason, reason_code = NULL, activated_at = COALESCE(activated_at, @activated), updated_at = @now
			WHERE id = @id AND state = @was`,
			args{"id": id, "to": to, "was": was, "reason": null(reason), "activated": nullTime(activatedAt(to, now)), "now": now}, "block file"); err != nil {
			return err
		}
		if err := t.moved(id, step(now, "file", string(id), was, to, actor, reason)); err != nil {
			return err
		}
		first := f.ActivatedAt.IsZero()
		if f, err = t.file(models.Whose{}, id); err != nil {
			return err
		}
		switch {
		case block:
			return t.tell(models.EventFileBlocked, f, now)
		case first:
			if err := t.attachDerived(f.ID, actor, now); err != nil {
				return err
			}
			return t.tell(models.EventFileActive, f, now)
		default:
			return t.tell(models.EventFileUnblocked, f, now)
		}
	})
	return f, err
}
