package store

import (
	"context"
	"fmt"
	"time"

	"berth/models"
)

// Attest records S3's word: the one door to completed (F1). In one transaction it moves
// upload, replica and file on, cancels the reap task and writes the event. ok is false
// when the upload was not waiting for it any more; nothing is changed then.
func (s *Store) Attest(ctx context.Context, a models.Attestation) (ok bool, err error) {
	err = s.within(ctx, "attest", func(t tx) error {
		ok = false
		u, _, err := t.upload(models.Whose{}, a.UploadID)
		if err != nil {
			return err
		}
		f, err := t.lockFile(u.FileID)
		if err != nil {
			return err
		}
		ok, err = t.one(`UPDATE uploads SET state = 'completed', lease_until = NULL, version_id = @version, etag = @etag,
				attested_algorithm = @alg, attested_type = @type, attested_value = @value,
				completed_at = @now, updated_at = @now
			WHERE id = @id AND state IN `+from(models.Uploads, models.UploadCompleted),
			args{"id": u.ID, "version": a.Object.VersionID, "etag": a.Object.ETag, "alg": a.Checksum.Algorithm,
				"type": a.Checksum.Type, "value": a.Checksum.Value, "now": a.Now})
		if err != nil || !ok {
			return err
		}
		if err := t.moved(f.ID, withVersion(step(a.Now, "upload", string(u.ID), u.State, models.UploadCompleted, a.Actor, ""), a.Object.VersionID)); err != nil {
			return err
		}
		if err := t.must(`UPDATE replicas SET state = 'ready', version_id = @version, etag = @etag, updated_at = @now
			WHERE id = @id AND state IN `+from(models.Replicas, models.ReplicaReady),
			args{"id": u.ReplicaID, "version": a.Object.VersionID, "etag": a.Object.ETag, "now": a.Now}, "replica to ready"); err != nil {
			return err
		}
		if err := t.moved(f.ID, withVersion(step(a.Now, "replica", string(u.ReplicaID), models.ReplicaWriting, models.ReplicaReady, a.Actor, ""), a.Object.VersionID)); err != nil {
			return err
		}
		if err := t.must(`UPDATE files SET version_id = @version, etag = @etag, checksum_algorithm = @alg, checksum_type = @type,
				checksum_value = @value, declared = @declared, updated_at = @now
			WHERE id = @id AND state = 'preparing'`,
			args{"id": f.ID, "version": a.Object.VersionID, "etag": a.Object.ETag, "alg": a.Checksum.Algorithm,
				"type": a.Checksum.Type, "value": a.Checksum.Value, "declared": a.Declared, "now": a.Now}, "version of file"); err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM pins WHERE upload_id = @id`, args{"id": u.ID}); err != nil {
			return err
		}
		if u.Commit == models.CommitDeferred {
			return nil
		}
		return t.attach(u, a.Steps, a.Actor, a.Now)
	})
	return ok, err
}

// Reject closes an upload whose bytes are not those that were declared: its file fails,
// the quota is released, the object is reaped now.
func (s *Store) Reject(ctx context.Context, r models.Rejection) (ok bool, err error) {
	err = s.within(ctx, "reject", func(t tx) error {
		ok = false
		u, _, err := t.upload(models.Whose{}, r.UploadID)
		if err != nil {
			return err
		}
		if err := t.lockGuard(u.FileID); err != nil {
			return err
		}
		f, err := t.lockFile(u.FileID)
		if err != nil {
			return err
		}
		ok, err = t.one(`UPDATE uploads SET state = 'rejected', lease_until = NULL, reason_code = @code, reason = @reason,
				closed_at = @now, updated_at = @now
			WHERE id = @id AND state IN `+from(models.Uploads, models.UploadRejected),
			args{"id": u.ID, "code": r.Code, "reason": r.Reason, "now": r.Now})
		if err != nil || !ok {
			return err
		}
		if err := t.moved(f.ID, withVersion(step(r.Now, "upload", string(u.ID), u.State, models.UploadRejected, r.Actor, r.Reason), r.VersionID)); err != nil {
			return err
		}
		return t.failFile(f, r.Code, r.Reason, r.Actor, r.Now)
	})
	return ok, err
}

// CloseUpload ends an upload that will not become a file: its file fails, the quota is
// released, what lies at S3 is reaped now. ok is false when the guard said no.
func (s *Store) CloseUpload(ctx context.Context, c models.Closing) (ok bool, err error) {
	err = s.within(ctx, "close upload", func(t tx) error {
		ok, err = t.close(c)
		return err
	})
	return ok, err
}

func (t tx) close(c models.Closing) (bool, error) {
	u, _, err := t.upload(c.Whose, c.ID)
	if err != nil {
		return false, err
	}
	if err := t.lockGuard(u.FileID); err != nil {
		return false, err
	}
	f, err := t.lockFile(u.FileID)
	if err != nil {
		return false, err
	}
	a := args{"id": u.ID, "to": c.To, "code": c.Code, "reason": c.Reason, "now": c.Now}
	guard := ""
	if c.PastDeadline {
		// A completing with a living lease is S3's Complete in flight: not ours to end.
		guard = ` AND u.expires_at <= @now AND (u.lease_until IS NULL OR u.lease_until <= @now)`
	}
	ok, err := t.one(`UPDATE uploads u SET state = @to, lease_until = NULL, reason_code = @code, reason = @reason,
			closed_at = @now, updated_at = @now
		WHERE u.id = @id`+whoseClause("u", c.Whose, a)+guard+` AND u.state IN `+from(models.Uploads, c.To), a)
	if err != nil || !ok {
		return ok, err
	}
	if err := t.moved(f.ID, step(c.Now, "upload", string(u.ID), u.State, c.To, c.Actor, c.Reason)); err != nil {
		return false, err
	}
	return true, t.failFile(f, c.Code, c.Reason, c.Actor, c.Now)
}

// Commit attaches a completed upload: the deferred half of Attest. ok is false when it
// does not rest in completed, or is past its end.
func (s *Store) Commit(ctx context.Context, c models.Committing) (ok bool, err error) {
	err = s.within(ctx, "commit", func(t tx) error {
		ok = false
		u, _, err := t.upload(c.Whose, c.ID)
		if err != nil {
			return err
		}
		f, err := t.lockFile(u.FileID)
		if err != nil {
			return err
		}
		u, _, err = t.upload(c.Whose, c.ID) // as it stands under the lock
		if err != nil {
			return err
		}
		if ok = u.State == models.UploadCompleted && c.Now.Before(u.ExpiresAt); !ok {
			return nil
		}
		if err := t.must(`UPDATE files SET name = @name, content_type = COALESCE(@type, content_type),
				metadata = COALESCE(CAST(@metadata AS jsonb), metadata), updated_at = @now WHERE id = @id AND state = 'preparing'`,
			args{"id": f.ID, "name": c.Name, "type": null(c.ContentType), "metadata": null(string(c.Metadata)), "now": c.Now},
			"describe file"); err != nil {
			return err
		}
		return t.attach(u, c.Steps, c.Actor, c.Now)
	})
	return ok, err
}

// attach makes a completed upload committed and its file visible, or hands it to the
// processing chain. The reap task is cancelled here, in the same transaction: from now
// on a living file references the version.
func (t tx) attach(u models.Upload, steps bool, actor string, now time.Time) error {
	if err := t.must(`UPDATE uploads SET state = 'committed', closed_at = @now, updated_at = @now
		WHERE id = @id AND state IN `+from(models.Uploads, models.UploadCommitted), args{"id": u.ID, "now": now}, "upload to committed"); err != nil {
		return err
	}
	if err := t.moved(u.FileID, step(now, "upload", string(u.ID), models.UploadCompleted, models.UploadCommitted, actor, "")); err != nil {
		return err
	}
	to := models.FileActive
	if steps {
		to = models.FileProcessing
	}
	if err := t.must(`UPDATE files SET state = @to, activated_at = @activated, updated_at = @now
		WHERE id = @id AND state = 'preparing'`,
		args{"id": u.FileID, "to": to, "activated": nullTime(activatedAt(to, now)), "now": now}, "file to "+string(to)); err != nil {
		return err
	}
	if err := t.moved(u.FileID, step(now, "file", string(u.FileID), models.FilePreparing, to, actor, "")); err != nil {
		return err
	}
	if err := t.cancelTasks(models.TaskReap, string(u.ReplicaID), u.FileID, actor, now); err != nil {
		return err
	}
	if steps {
		return t.insertTask(models.Task{ID: models.NewTaskID(), Kind: models.TaskProcess, Target: string(u.FileID),
			RunAt: now, MaxAttempts: models.DefaultMaxAttempts, CreatedAt: now}, u.FileID)
	}
	f, err := t.file(models.Whose{}, u.FileID)
	if err != nil {
		return err
	}
	return t.tell(models.EventFileActive, f, now)
}

func activatedAt(to models.FileState, now time.Time) time.Time {
	if to == models.FileActive {
		return now
	}
	return time.Time{}
}

// failFile fails a file that never became active, releases what it reserved, and has
// its replicas reaped now. The caller holds the owner guard and the file.
func (t tx) failFile(f models.File, code models.Code, reason, actor string, now time.Time) error {
	if err := t.must(`UPDATE files SET state = 'failed', reason_code = @code, reason = @reason, guarded = false, updated_at = @now
		WHERE id = @id AND state IN `+from(models.Files, models.FileFailed),
		args{"id": f.ID, "code": code, "reason": reason, "now": now}, "file to failed"); err != nil {
		return err
	}
	if err := t.moved(f.ID, step(now, "file", string(f.ID), f.State, models.FileFailed, actor, reason)); err != nil {
		return err
	}
	if err := t.release(f); err != nil {
		return err
	}
	if _, err := t.exec(`DELETE FROM pins WHERE upload_id = @id`, args{"id": f.UploadID}); err != nil {
		return err
	}
	if err := t.dropReplicas(f.ID, actor, now); err != nil {
		return err
	}
	f.State, f.ReasonCode, f.Reason = models.FileFailed, code, reason
	return t.tell(models.EventFileFailed, f, now)
}

// dropReplicas sends every replica of a file on its way out, each with a reap task due
// now. The caller holds the file.
func (t tx) dropReplicas(file models.FileID, actor string, now time.Time) error {
	var rs []replicaRow
	if _, err := t.read(&rs, `SELECT `+replicaColumns+` FROM replicas r WHERE r.file_id = @file ORDER BY r.id FOR UPDATE`,
		args{"file": file}); err != nil {
		return err
	}
	for i := range rs {
		r := rs[i].model()
		for _, next := range models.WayOut(r.State) {
			if err := t.moveReplica(r, next, actor, "", now); err != nil {
				return err
			}
			r.State = next
		}
		if r.State == models.ReplicaDeletePending {
			if err := t.reapNow(r, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveReplica is the guarded transition of one replica. The caller holds the file.
func (t tx) moveReplica(r models.Replica, to models.ReplicaState, actor, why string, now time.Time) error {
	if !models.Replicas.May(r.State, to) {
		return fmt.Errorf("replica %s may not go from %s to %s", r.ID, r.State, to)
	}
	var deleted any
	if to == models.ReplicaDeleted {
		deleted = now
	}
	if err := t.must(`UPDATE replicas SET state = @to, reason = @why, deleted_at = @deleted, updated_at = @now WHERE id = @id AND state = @from`,
		args{"id": r.ID, "from": r.State, "to": to, "why": null(why), "deleted": deleted, "now": now}, "replica to "+string(to)); err != nil {
		return err
	}
	return t.moved(r.FileID, withVersion(step(now, "replica", string(r.ID), r.State, to, actor, why), r.VersionID))
}

// release gives back what a file had reserved. The caller holds the owner guard.
func (t tx) release(f models.File) error {
	if !f.Guarded {
		return nil
	}
	return t.must(`UPDATE quotas SET files = files - 1, bytes = bytes - @size
		WHERE tenant = @tenant AND owner = @owner AND collection = @collection`,
		args{"tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "size": f.Size}, "release quota")
}

// lockGuard takes the owner guard of a file, if the file is counted there: before the
// file itself, as in open.
func (t tx) lockGuard(file models.FileID) error {
	_, err := t.exec(`SELECT 1 FROM quotas q JOIN files f ON f.tenant = q.tenant AND f.owner = q.owner AND f.collection = q.collection
		WHERE f.id = @id AND f.guarded FOR UPDATE OF q`, args{"id": file})
	return err
}

// lockFile locks a file and returns it as it stands.
func (t tx) lockFile(id models.FileID) (models.File, error) {
	var r fileRow
	n, err := t.read(&r, `SELECT `+fileColumns+` FROM files f WHERE f.id = @id FOR UPDATE`, args{"id": id})
	if err == nil && n == 0 {
		err = models.NotFound("file")
	}
	return r.model(), err
}

// must runs a guarded statement whose guard the locks held make certain. No row is then
// a broken invariant: the transaction is undone and the error says which.
func (t tx) must(q string, a args, what string) error {
	ok, err := t.one(q, a)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !ok {
		return fmt.Errorf("%s: the guard said no although the locks are held", what)
	}
	return nil
}

func withVersion(e models.HistoryEntry, version string) models.HistoryEntry {
	e.VersionID = version
	return e
}
