package store

import (
	"context"
	"fmt"
	"time"

	"berth/models"
)

// Attest records S3's word: the one door to completed (F1). In one transaction it moves
// upload, replica and file on, cancels the reap task and writes the event. What could not
// be settled at open is settled here, under the owner guard: the size that nobody
// declared, the identity that only S3's checksum tells.
func (s *Store) Attest(ctx context.Context, a models.Attestation) (out models.AttestOutcome, err error) {
	if !a.Collection.Guarded() {
		// The usual case: a third of the statements, and fewer where many come at once.
		if out, ok, err := s.convoy.attest(ctx, a); ok || err != nil {
			return out, err
		}
	}
	// What a group does not take, and what another holds: that is waited for here, where
	// nobody waits behind it.
	err = s.within(ctx, "attest", func(t tx) error {
		out, err = t.attest(a)
		return err
	})
	if violates(err, "files_identity") {
		// Two at once, under a policy that was changed meanwhile: the index is the last
		// defence. The next look settles it against the one that won.
		return models.AttestLost, models.Errorf(models.CodeBusy, "another upload of the same file was settled at the same time").Because(err)
	}
	return out, err
}

func (t tx) attest(a models.Attestation) (models.AttestOutcome, error) {
	u, f, err := t.lockUpload(a.UploadID)
	if err != nil {
		return "", err
	}
	if !models.Uploads.May(u.State, models.UploadCompleted) {
		return models.AttestLost, nil
	}
	pins, err := t.pinsOf([]models.UploadID{u.ID})
	if err != nil {
		return "", err
	}
	if !stands(u, pins[u.ID], a) {
		return models.AttestStale, nil
	}
	identity, out, err := t.settleLate(u, f, a)
	if err != nil || out != models.Attested {
		return out, err
	}
	ar := args{"id": u.ID, "version": a.Object.VersionID, "etag": a.Object.ETag, "alg": a.Checksum.Algorithm, "type": a.Checksum.Type,
		"value": a.Checksum.Value, "size": a.Object.Size, "now": a.Now}
	if err := t.must(`UPDATE uploads SET state = 'completed', lease_until = NULL, version_id = @version, etag = @etag, size = @size,
			attested_algorithm = @alg, attested_type = @type, attested_value = @value, completed_at = @now, updated_at = @now
		WHERE id = @id AND state IN `+from(models.Uploads, models.UploadCompleted), ar, "upload to completed"); err != nil {
		return "", err
	}
	if err := t.moved(f.ID, withVersion(step(a.Now, "upload", string(u.ID), u.State, models.UploadCompleted, a.Actor, ""), a.Object.VersionID)); err != nil {
		return "", err
	}
	if err := t.must(`UPDATE replicas SET state = 'ready', version_id = @version, etag = @etag, size = @size, updated_at = @now
		WHERE id = @id AND state IN `+from(models.Replicas, models.ReplicaReady),
		args{"id": u.ReplicaID, "version": a.Object.VersionID, "etag": a.Object.ETag, "size": a.Object.Size, "now": a.Now}, "replica to ready"); err != nil {
		return "", err
	}
	if err := t.moved(f.ID, withVersion(step(a.Now, "replica", string(u.ReplicaID), models.ReplicaWriting, models.ReplicaReady, a.Actor, ""), a.Object.VersionID)); err != nil {
		return "", err
	}
	ar["id"], ar["declared"], ar["identity"] = f.ID, a.Declared, null(identity)
	if err := t.must(`UPDATE files SET version_id = @version, etag = @etag, size = @size, checksum_algorithm = @alg, checksum_type = @type,
			checksum_value = @value, declared = @declared, identity = COALESCE(identity, @identity), updated_at = @now
		WHERE id = @id AND state = 'preparing'`, ar, "version of file"); err != nil {
		return "", err
	}
	if _, err := t.exec(`DELETE FROM pins WHERE upload_id = @id`, args{"id": u.ID}); err != nil {
		return "", err
	}
	if u.Commit == models.CommitDeferred {
		return models.Attested, nil
	}
	return models.Attested, t.attach(u, f, a.Steps, a.Actor, a.Now)
}

// settleLate holds an attested upload against what could not be checked at open. An
// overrun and a duplicate end in rejected, with the code; where the collection reuses, the
// older file is handed over. The identity that it returns is for the file's row.
func (t tx) settleLate(u models.Upload, f models.File, a models.Attestation) (identity string, out models.AttestOutcome, err error) {
	c := a.Collection
	refuse := func(code models.Code, reason string, reused models.FileID) (string, models.AttestOutcome, error) {
		err := t.reject(u, f, models.Rejection{Code: code, Reason: reason, VersionID: a.Object.VersionID, Reused: reused, Actor: a.Actor, Now: a.Now})
		if reused != "" {
			return "", models.AttestHandedOver, err
		}
		return "", models.AttestRefused, err
	}
	if u.Undeclared {
		if err := models.SizeAllowed(c, a.Object.Size); err != nil {
			return refuse(models.ErrorCode(err), models.Sentence(err), "")
		}
	}
	if f.Guarded && c.Dedupe != models.DedupeNone && u.Identity == "" {
		identity = models.IdentityOf(a.Checksum, u.PartSize, a.Object.Size)
		old, found, err := t.living(f.Tenant, f.Owner, f.Collection, identity)
		switch {
		case err != nil:
			return "", "", err
		case found && c.Dedupe == models.DedupeReuse && old.State == models.FileActive:
			return refuse(models.CodeDuplicateFile, "the same file is already there", old.ID)
		case found:
			return refuse(models.CodeDuplicateFile, "the same file is already there", "")
		}
	}
	if u.Undeclared && f.Guarded {
		ok, err := t.one(`UPDATE quotas SET bytes = bytes + @size WHERE tenant = @tenant AND owner = @owner AND collection = @collection
			AND (CAST(@max AS bigint) = 0 OR bytes + @size <= @max)`,
			args{"tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "size": a.Object.Size, "max": c.MaxBytes})
		if err != nil {
			return "", "", err
		}
		if !ok {
			return refuse(models.CodeQuotaExceeded, "the owner may have no more in this collection", "")
		}
	}
	return identity, models.Attested, nil
}

// lockUpload takes owner guard and file of an upload, and the upload, in their order, and
// returns both as they stand then.
func (t tx) lockUpload(id models.UploadID) (models.Upload, models.File, error) {
	u, _, err := t.upload(models.Whose{}, id)
	if err != nil {
		return u, models.File{}, err
	}
	if err := t.lockGuard(u.FileID); err != nil {
		return u, models.File{}, err
	}
	f, err := t.lockFile(u.FileID)
	if err != nil {
		return u, f, err
	}
	u, err = t.heldUpload(id)
	return u, f, err
}

// heldUpload locks an upload whose file the caller holds. That lock alone is not enough:
// Complete begins and is given back without it.
func (t tx) heldUpload(id models.UploadID) (models.Upload, error) {
	var r uploadRow
	_, err := t.read(&r, `SELECT `+uploadColumns+` FROM uploads u WHERE u.id = @id FOR UPDATE`, args{"id": id})
	return r.model(), err
}

// Reject closes an upload whose bytes are not those that were declared: its file fails,
// the quota is released, the object is reaped now. ok is false when it was not waiting for
// a verdict any more.
func (s *Store) Reject(ctx context.Context, r models.Rejection) (ok bool, err error) {
	err = s.within(ctx, "reject", func(t tx) error {
		u, f, err := t.lockUpload(r.UploadID)
		if err != nil {
			return err
		}
		if ok = models.Uploads.May(u.State, models.UploadRejected); !ok {
			return nil
		}
		return t.reject(u, f, r)
	})
	return ok, err
}

// reject is Reject; the caller holds owner guard and file.
func (t tx) reject(u models.Upload, f models.File, r models.Rejection) error {
	if err := t.must(`UPDATE uploads SET state = 'rejected', lease_until = NULL, reason_code = @code, reason = @reason,
			reused_file_id = @reused, closed_at = @now, updated_at = @now
		WHERE id = @id AND state IN `+from(models.Uploads, models.UploadRejected),
		args{"id": u.ID, "code": r.Code, "reason": r.Reason, "reused": null(string(r.Reused)), "now": r.Now}, "upload to rejected"); err != nil {
		return err
	}
	if err := t.moved(f.ID, withVersion(step(r.Now, "upload", string(u.ID), u.State, models.UploadRejected, r.Actor, r.Reason), r.VersionID)); err != nil {
		return err
	}
	return t.failFile(f, r.Code, r.Reason, r.Actor, r.Now)
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
	u, f, err := t.lockUpload(c.ID)
	if err != nil {
		return false, err
	}
	a := args{"id": u.ID, "to": c.To, "code": c.Code, "reason": c.Reason, "now": c.Now}
	guard := ""
	if c.Attempt > 0 {
		a["attempt"] = c.Attempt
		guard += ` AND u.attempt = @attempt`
	}
	if c.PastDeadline {
		// A completing with a living lease is S3's Complete in flight: not ours to end.
		guard += ` AND u.expires_at <= @now AND (u.lease_until IS NULL OR u.lease_until <= @now)`
	}
	if c.From != "" {
		a["from"] = c.From
		guard += ` AND u.state = @from`
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
		u, f, err := t.lockUpload(c.ID)
		if err != nil {
			return err
		}
		if c.Whose != (models.Whose{Tenant: u.Tenant, Owner: u.Owner}) {
			return models.NotFound("upload")
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
		return t.attach(u, f, c.Steps, c.Actor, c.Now)
	})
	return ok, err
}

// attach makes a completed upload committed and its file visible, or hands it to the
// processing chain. The reap task is cancelled here, in the same transaction: from now
// on a living file references the version.
func (t tx) attach(u models.Upload, f models.File, steps bool, actor string, now time.Time) error {
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
	if other, err := t.foreign(models.Replica{Store: u.Store, Key: u.Key}); err != nil {
		return err
	} else if len(other) > 0 { // the task has something to remove, and need not wait for the upload's end any more
		if err := t.reapNow(models.Replica{ID: u.ReplicaID, FileID: u.FileID}, now); err != nil {
			return err
		}
	} else if !u.Contested { // else a second multipart may have been begun, and is to be looked for
		if err := t.cancelTasks(models.TaskReap, string(u.ReplicaID), u.FileID, actor, now); err != nil {
			return err
		}
	}
	if f.Guarded {
		if err := t.unreserve(f, 0, 0); err != nil {
			return err
		}
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
	if err := t.dropDerived(f.ID, actor, now); err != nil {
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

// release gives back what a file had reserved: its place, its bytes and, while it was
// still being prepared, its session. The caller holds the owner guard.
func (t tx) release(f models.File) error {
	if !f.Guarded {
		return nil
	}
	if f.State == models.FilePreparing {
		return t.unreserve(f, 1, f.Size)
	}
	return t.must(`UPDATE quotas SET files = files - 1, bytes = bytes - @size
		WHERE tenant = @tenant AND owner = @owner AND collection = @collection`,
		args{"tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "size": f.Size}, "release quota")
}

// unreserve ends a session in the owner's row, with so many files and bytes given back.
func (t tx) unreserve(f models.File, files, bytes int64) error {
	return t.must(`UPDATE quotas SET files = files - @files, bytes = bytes - @bytes, open = open - 1
		WHERE tenant = @tenant AND owner = @owner AND collection = @collection`,
		args{"tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "files": files, "bytes": bytes}, "end session in quota")
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
