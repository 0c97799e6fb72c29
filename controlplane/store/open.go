package store

import (
	"bytes"
	"context"
	"errors"

	"berth/models"
)

// Open stores the intent: the idempotency key, the owner's reservation, the file, its
// upload and primary replica, and the reap task that will clean up. Nothing exists at
// S3 yet. What it returns are the rows as stored, or those that it found instead.
func (s *Store) Open(ctx context.Context, o models.Opening) (models.OpenOutcome, models.Upload, models.File, error) {
	var (
		outcome models.OpenOutcome
		up      models.Upload
		file    models.File
	)
	if usual(o) {
		var made bool
		err := s.single(ctx, "open", func(t tx) (err error) {
			made, err = t.insertOpening(o, o.IdempotencyKey != "")
			return err
		})
		if err != nil || made {
			return models.OpenedNew, o.Upload, o.File, err
		}
	}
	err := s.within(ctx, "open", func(t tx) error {
		var err error
		outcome, up, file, err = t.open(o)
		switch outcome {
		case models.OpenedOverQuota, models.OpenedOverGrant, models.OpenedTooMany, models.OpenedDuplicate:
			if err == nil {
				return errRefused // nothing of this stays, the idempotency key least of all: it would stand for no upload
			}
		}
		return err
	})
	if errors.Is(err, errRefused) {
		return outcome, models.Upload{}, file, s.keepAdopted(ctx, o.Collection, o.Upload)
	}
	if violates(err, "files_identity") {
		// The owner guard serializes opens of one identity; the index is the last defence.
		return models.OpenedDuplicate, models.Upload{}, models.File{}, nil
	}
	return outcome, up, file, err
}

// usual tells whether there is nothing to look at or to count before an upload is opened,
// but for its idempotency key.
func usual(o models.Opening) bool {
	return !o.Collection.Guarded() && !(o.Continue && o.Upload.Identity != "") && o.Derive == nil && o.GrantFiles == 0
}

var errRefused = errors.New("refused")

func (t tx) open(o models.Opening) (outcome models.OpenOutcome, up models.Upload, file models.File, err error) {
	if o.IdempotencyKey != "" {
		outcome, up, file, err = t.replay(o)
		if err != nil || outcome != models.OpenedNew {
			return outcome, up, file, err
		}
	}
	if o.Derive != nil {
		if err = t.mayDerive(*o.Derive); err != nil {
			return
		}
	}
	if o.Collection.Guarded() {
		if err = t.guardOwner(o.Upload); err != nil {
			return
		}
	} else if o.Continue && o.Upload.Identity != "" {
		if err = t.guardIdentity(o.Upload); err != nil {
			return
		}
	}
	outcome, up, file, err = t.same(o)
	if err != nil || outcome != models.OpenedNew {
		if err != nil || o.IdempotencyKey == "" {
			return
		}
		switch {
		case outcome == models.OpenedContinued:
			err = t.answered(o, string(up.ID))
		case outcome == models.OpenedDuplicate && o.Collection.Dedupe == models.DedupeReuse && file.State == models.FileActive:
			outcome, err = models.OpenedInstant, t.answered(o, string(file.ID))
		}
		return
	}
	if o.Collection.Guarded() {
		if outcome, err = t.reserve(o); err != nil || outcome != models.OpenedNew {
			return
		}
	}
	if o.GrantFiles > 0 {
		ok, err := t.useGrant(o)
		if err != nil || !ok {
			return models.OpenedOverGrant, up, file, err
		}
	}
	if _, err = t.insertOpening(o, false); err != nil { // its key is taken by now
		return
	}
	return models.OpenedNew, o.Upload, o.File, nil
}

// replay takes the idempotency key, for the upload that is to be opened, or finds what it
// was taken for. A second request with the key waits here for the first one's transaction.
// The key is in the transaction that stores the upload, so that it never stands for nothing.
func (t tx) replay(o models.Opening) (models.OpenOutcome, models.Upload, models.File, error) {
	a := args{"tenant": o.Upload.Tenant, "owner": o.Upload.Owner, "key": o.IdempotencyKey, "hash": o.RequestHash,
		"now": o.Now, "expires": o.IdempotencyExpiry, "upload": o.Upload.ID, "status": answeredNew}
	taken, err := t.one(`INSERT INTO idempotency AS i (tenant, owner, key, request_hash, state, subject, status, locked_until, expires_at)
		VALUES (@tenant, @owner, @key, @hash, 'done', @upload, @status, @now, @expires)
		ON CONFLICT (tenant, owner, key) DO UPDATE
		   SET request_hash = EXCLUDED.request_hash, state = 'done', subject = EXCLUDED.subject, status = EXCLUDED.status, location = '', body = NULL,
		       locked_until = EXCLUDED.locked_until, expires_at = EXCLUDED.expires_at
		 WHERE i.expires_at <= @now`, a)
	if err != nil || taken {
		return models.OpenedNew, models.Upload{}, models.File{}, err
	}
	var row struct {
		RequestHash []byte
		Subject     string
		Status      int
	}
	if _, err := t.read(&row, `SELECT request_hash, COALESCE(subject, '') AS subject, COALESCE(status, 0) AS status FROM idempotency
		WHERE tenant = @tenant AND owner = @owner AND key = @key`, a); err != nil {
		return "", models.Upload{}, models.File{}, err
	}
	if !bytes.Equal(row.RequestHash, o.RequestHash) || row.Subject == "" {
		return models.OpenedConflict, models.Upload{}, models.File{}, nil
	}
	whose := models.Whose{Tenant: o.Upload.Tenant, Owner: o.Upload.Owner}
	if id, err := models.ParseFileID(row.Subject); err == nil {
		file, err := t.file(whose, id)
		return models.OpenedReplayedInstant, models.Upload{}, file, err
	}
	up, file, err := t.upload(whose, models.UploadID(row.Subject))
	if row.Status == answeredContinued {
		return models.OpenedReplayedContinued, up, file, err
	}
	return models.OpenedReplayed, up, file, err
}

// What the first answer to a key was: the repeated one is the same.
const (
	answeredNew       = 201
	answeredContinued = 200
)

// answered notes that an idempotency key stands for an upload or a file that was there
// already, and not for one that was opened.
func (t tx) answered(o models.Opening, id string) error {
	ok, err := t.one(`UPDATE idempotency SET subject = @id, status = @status
		WHERE tenant = @tenant AND owner = @owner AND key = @key AND state = 'done' AND subject = @upload`,
		args{"id": id, "status": answeredContinued, "upload": o.Upload.ID, "tenant": o.Upload.Tenant, "owner": o.Upload.Owner, "key": o.IdempotencyKey})
	if err == nil && !ok {
		err = errors.New("the idempotency key was taken away")
	}
	return err
}

// guardOwner locks the owner's row of the collection, making it if need be. All doors
// that change what an owner has go through it, first. A row that is made counts what the
// owner has from before the collection had a limit.
func (t tx) guardOwner(u models.Upload) error {
	a := args{"tenant": u.Tenant, "owner": u.Owner, "collection": u.Collection}
	var row struct{ Made bool }
	// A row that was there has been locked by then, which its xmax tells.
	if _, err := t.read(&row, `INSERT INTO quotas AS q (tenant, owner, collection, files, bytes)
		VALUES (@tenant, @owner, @collection, 0, 0)
		ON CONFLICT (tenant, owner, collection) DO UPDATE SET files = q.files RETURNING xmax = 0 AS made`, a); err != nil || !row.Made {
		return err
	}
	n, err := t.adopt(a)
	if err != nil || n == 0 {
		return err
	}
	_, _, err = t.countAgain(a)
	return err
}

// guardIdentity has opens that would continue each other wait for each other, where there
// is no owner guard that they meet at. It lasts as long as the transaction.
func (t tx) guardIdentity(u models.Upload) error {
	_, err := t.exec(`SELECT pg_advisory_xact_lock(hashtextextended(jsonb_build_array(
		CAST(@tenant AS text), CAST(@owner AS text), CAST(@collection AS text), CAST(@identity AS text))::text, 0))`,
		args{"tenant": u.Tenant, "owner": u.Owner, "collection": u.Collection, "identity": u.Identity})
	return err
}

// reserve checks and takes in one statement: it, not the look before it, decides.
func (t tx) reserve(o models.Opening) (models.OpenOutcome, error) {
	a := args{"tenant": o.Upload.Tenant, "owner": o.Upload.Owner, "collection": o.Upload.Collection, "size": o.Upload.Size,
		"max_files": o.Collection.MaxFiles, "max_bytes": o.Collection.MaxBytes, "max_open": o.Collection.MaxOpen}
	ok, err := t.one(`UPDATE quotas SET files = files + 1, bytes = bytes + @size, open = open + 1
		WHERE tenant = @tenant AND owner = @owner AND collection = @collection
		  AND (CAST(@max_files AS bigint) = 0 OR files + 1 <= @max_files) AND (CAST(@max_bytes AS bigint) = 0 OR bytes + @size <= @max_bytes)
		  AND (CAST(@max_open AS bigint) = 0 OR open + 1 <= @max_open)`, a)
	if err != nil || ok {
		return models.OpenedNew, err
	}
	var held struct{ Open int64 }
	if _, err := t.read(&held, `SELECT open FROM quotas WHERE tenant = @tenant AND owner = @owner AND collection = @collection`, a); err != nil {
		return "", err
	}
	if o.Collection.MaxOpen > 0 && held.Open >= o.Collection.MaxOpen {
		return models.OpenedTooMany, nil
	}
	return models.OpenedOverQuota, nil
}

// useGrant counts one upload against a grant that limits how many it opens.
func (t tx) useGrant(o models.Opening) (bool, error) {
	return t.one(`INSERT INTO grant_uses AS g (tenant, owner, grant_id, files, expires_at)
		VALUES (@tenant, @owner, @id, 1, @expires)
		ON CONFLICT (tenant, owner, grant_id) DO UPDATE SET files = g.files + 1, expires_at = GREATEST(g.expires_at, EXCLUDED.expires_at)
		 WHERE g.files < @max`,
		args{"tenant": o.Upload.Tenant, "owner": o.Upload.Owner, "id": o.GrantID, "max": o.GrantFiles, "expires": o.GrantEnds})
}

// same looks for what is already there: a living file of the same identity where the
// collection dedupes, or an open upload of it where the caller asks to continue: never a
// step's, whose file is derived and not the owner's to send. An open upload that is past its end is closed on the way, so that it is in nobody's way.
func (t tx) same(o models.Opening) (models.OpenOutcome, models.Upload, models.File, error) {
	if o.Upload.Identity == "" || (o.Collection.Dedupe == models.DedupeNone && !o.Continue) {
		return models.OpenedNew, models.Upload{}, models.File{}, nil
	}
	a := args{"tenant": o.Upload.Tenant, "owner": o.Upload.Owner, "collection": o.Upload.Collection,
		"identity": o.Upload.Identity}
	var u uploadRow
	n, err := t.read(&u, `SELECT `+uploadColumns+` FROM uploads u
		WHERE u.tenant = @tenant AND u.owner = @owner AND u.collection = @collection AND u.identity = @identity
		  AND u.identity IS NOT NULL AND u.state IN ('init', 'uploading', 'completing', 'completed')
		  AND NOT EXISTS (SELECT 1 FROM files d WHERE d.id = u.file_id AND d.parent_id IS NOT NULL)
		ORDER BY u.created_at DESC, u.id DESC LIMIT 1`, a)
	if err != nil {
		return "", models.Upload{}, models.File{}, err
	}
	if n == 1 {
		up := u.model()
		if models.Closed(&up, o.Now) == nil {
			f, err := t.file(models.Whose{}, up.FileID)
			return models.OpenedContinued, up, f, err
		}
		if _, err := t.close(models.Closing{ID: up.ID, To: models.UploadExpired, Code: models.CodeSessionExpired,
			Reason: "the upload has expired", PastDeadline: true, Actor: o.Actor, Now: o.Now}); err != nil {
			return "", models.Upload{}, models.File{}, err
		}
	}
	if o.Collection.Dedupe == models.DedupeNone {
		return models.OpenedNew, models.Upload{}, models.File{}, nil
	}
	f, found, err := t.living(o.Upload.Tenant, o.Upload.Owner, o.Upload.Collection, o.Upload.Identity)
	if err != nil || !found {
		return models.OpenedNew, models.Upload{}, models.File{}, err
	}
	return models.OpenedDuplicate, models.Upload{}, f, nil
}

// living finds the living file of an identity. The caller holds the owner guard.
func (t tx) living(tenant models.Tenant, owner models.Owner, collection, identity string) (models.File, bool, error) {
	if identity == "" {
		return models.File{}, false, nil
	}
	var f fileRow
	n, err := t.read(&f, `SELECT `+fileColumns+` FROM files f
		WHERE f.tenant = @tenant AND f.owner = @owner AND f.collection = @collection AND f.identity = @identity
		  AND f.identity IS NOT NULL AND f.`+livingFile,
		args{"tenant": tenant, "owner": owner, "collection": collection, "identity": identity})
	return f.model(), n == 1, err
}

// insertOpening stores file, primary replica, upload and reap task, and what it did into
// the history, in one statement: an open is mostly this. Keyed, it takes the idempotency key
// too; made is false where that was taken already, and then nothing is stored.
func (t tx) insertOpening(o models.Opening, keyed bool) (made bool, err error) {
	f, r, u, k := o.File, o.Replica, o.Upload, o.Reap
	var parent, fence any
	if o.Derive != nil {
		parent, fence = o.Derive.Parent, o.Derive.Fence
	}
	var living any // the identity, where it must be one file's
	if o.Collection.Dedupe != models.DedupeNone {
		living = null(u.Identity)
	}
	key := `i AS (SELECT 1)`
	if keyed {
		key = `i AS (INSERT INTO idempotency (tenant, owner, key, request_hash, state, subject, status, locked_until, expires_at)
			VALUES (@tenant, @owner, @idempotency, @hash, 'done', @upload, @answer, @now, @key_expires) ON CONFLICT DO NOTHING RETURNING 1)`
	}
	n, err := t.exec(`WITH `+key+`, f AS (INSERT INTO files (id, tenant, owner, collection, name, size, part_size, content_type, metadata, state,
				checksum_algorithm, checksum_type, checksum_value, declared, identity, upload_id, parent_id, derived_fence, guarded, created_at, updated_at)
			SELECT @file, @tenant, @owner, @collection, @name, @size, @part_size, @content_type, @metadata, @file_state,
				@alg, @type, @value, @declared, @living, @upload, @parent, @fence, @guarded, @now, @now FROM i),
		r AS (INSERT INTO replicas (id, file_id, store, key, is_primary, state, size, created_at, updated_at)
			SELECT @replica, @file, @store, @key, true, @replica_state, @size, @now, @now FROM i),
		u AS (INSERT INTO uploads (id, tenant, owner, collection, file_id, replica_id, state, method, size,
				part_size, part_count, checksum_algorithm, checksum_type, checksum_value, commit_mode, identity, store, key,
				content_type, undeclared, grace, signed_until, expires_at, hard_expires_at, traceparent, created_at, updated_at)
			SELECT @upload, @tenant, @owner, @collection, @file, @replica, @state, @method, @size, @part_size, @part_count,
				@u_alg, @u_type, @u_value, @commit, @identity, @store, @key, @u_content_type, @undeclared, make_interval(secs => @grace),
				@signed, @expires, @hard, @traceparent, @now, @now FROM i),
		k AS (INSERT INTO tasks (id, kind, target, file_id, state, run_at, max_attempts, created_at, updated_at)
			SELECT @task, 'reap', @replica, @file, 'pending', @run_at, @attempts, @now, @now FROM i)
		INSERT INTO history (at, file_id, what, subject, to_state, actor)
		SELECT @now, @file, x.what, x.subject, x."to", @actor FROM (VALUES (1, 'file', CAST(@file AS text), CAST(@file_state AS text)),
			(2, 'replica', @replica, @replica_state), (3, 'upload', @upload, @state)) x (o, what, subject, "to"), i ORDER BY x.o`,
		args{"idempotency": o.IdempotencyKey, "hash": o.RequestHash, "answer": answeredNew, "key_expires": nullTime(o.IdempotencyExpiry), "file": f.ID, "tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "name": f.Name, "size": f.Size,
			"part_size": f.PartSize, "content_type": f.ContentType, "metadata": string(f.Metadata), "file_state": f.State,
			"alg": f.Checksum.Algorithm, "type": f.Checksum.Type, "value": f.Checksum.Value, "declared": f.Declared,
			"living": living, "parent": parent, "fence": fence, "guarded": o.Collection.Guarded(),
			"replica": r.ID, "store": r.Store, "key": r.Key, "replica_state": r.State,
			"upload": u.ID, "state": u.State, "method": u.Method, "part_count": u.PartCount, "u_alg": u.Checksum.Algorithm,
			"u_type": u.Checksum.Type, "u_value": u.Checksum.Value, "commit": u.Commit, "identity": null(u.Identity),
			"u_content_type": u.ContentType, "undeclared": u.Undeclared, "grace": o.Grace.Seconds(), "signed": nullTime(u.SignedUntil),
			"expires": u.ExpiresAt, "hard": u.HardExpires, "traceparent": null(u.Traceparent),
			"task": k.ID, "run_at": k.RunAt, "attempts": k.MaxAttempts, "actor": o.Actor, "now": o.Now})
	return n > 0, err
}

func (t tx) insertTask(k models.Task, file models.FileID) error {
	_, err := t.exec(`INSERT INTO tasks (id, kind, target, file_id, state, run_at, max_attempts, created_at, updated_at)
		VALUES (@id, @kind, @target, @file, 'pending', @run_at, @max, @now, @now)`,
		args{"id": k.ID, "kind": k.Kind, "target": k.Target, "file": file, "run_at": k.RunAt, "max": k.MaxAttempts,
			"now": k.CreatedAt})
	return err
}
