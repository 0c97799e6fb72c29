package store

import (
	"context"
	"errors"
	"time"

	"berth/models"
)

// whoseClause narrows a statement to a caller's rows; the system has no owner.
func whoseClause(alias string, w models.Whose, a args) string {
	if w == (models.Whose{}) {
		return ""
	}
	a["tenant"], a["owner"] = w.Tenant, w.Owner
	if w.All {
		delete(a, "owner")
		return " AND " + alias + ".tenant = @tenant"
	}
	return " AND " + alias + ".tenant = @tenant AND " + alias + ".owner = @owner"
}

// Upload returns one upload and its file, NOT_FOUND if absent or another's.
func (s *Store) Upload(ctx context.Context, w models.Whose, id models.UploadID) (models.Upload, models.File, error) {
	u, f, err := s.alone(ctx).upload(w, id)
	return u, f, wrap("upload", err)
}

func (t tx) upload(w models.Whose, id models.UploadID) (models.Upload, models.File, error) {
	var r bothRows
	a := args{"id": id}
	n, err := t.read(&r, `SELECT `+uploadColumns+`, `+fileColumnsToo+` FROM uploads u JOIN files f ON f.id = u.file_id
		WHERE u.id = @id`+whoseClause("u", w, a), a)
	if err == nil && n == 0 {
		err = models.NotFound("upload")
	}
	if err != nil {
		return models.Upload{}, models.File{}, err
	}
	return r.Upload.model(), r.File.model(), nil
}

// UploadOf finds a caller's upload by what S3 calls it: key and multipart upload id, both
// of the same upload ("" for a single PUT). Any other combination is NOT_FOUND.
func (s *Store) UploadOf(ctx context.Context, w models.Whose, stores []models.StoreName, key, s3UploadID string) (models.UploadID, error) {
	var row struct{ ID string }
	n, err := s.alone(ctx).read(&row, `SELECT u.id FROM uploads u WHERE u.store = ANY(CAST(@stores AS text[])) AND u.key = @key
			AND COALESCE(u.s3_upload_id, '') = @s3 AND u.tenant = @tenant AND u.owner = @owner`,
		args{"stores": textArray(stores), "key": key, "s3": s3UploadID, "tenant": w.Tenant, "owner": w.Owner})
	if err == nil && n != 1 {
		err = models.NotFound("upload")
	}
	return models.UploadID(row.ID), wrap("upload of key", err)
}

// UploadsAt returns the uploads whose keys in a store these are. Unknown keys are left out.
func (s *Store) UploadsAt(ctx context.Context, store models.StoreName, keys []string) (map[string]models.Upload, error) {
	var rows []uploadRow
	if _, err := s.alone(ctx).read(&rows, `SELECT `+uploadColumns+` FROM uploads u
		WHERE u.store = @store AND u.key = ANY(CAST(@keys AS text[]))`, args{"store": store, "keys": textArray(keys)}); err != nil {
		return nil, wrap("uploads by key", err)
	}
	out := make(map[string]models.Upload, len(rows))
	for i := range rows {
		out[rows[i].Key] = rows[i].model()
	}
	return out, nil
}

// Begin records the multipart upload that S3 made: init → uploading. ok is false when
// the upload has moved on meanwhile; the caller then aborts what it made.
// signedUntil is when the URLs end that are signed with it, zero for none.
func (s *Store) Begin(ctx context.Context, u models.Upload, s3UploadID string, signedUntil time.Time, actor string, now time.Time) (ok bool, err error) {
	err = s.within(ctx, "begin upload", func(t tx) error {
		ok, err = t.one(`UPDATE uploads SET state = 'uploading', s3_upload_id = @s3, signed_until = @until, updated_at = @now
			WHERE id = @id AND state = 'init'`, args{"id": u.ID, "s3": s3UploadID, "until": nullTime(signedUntil), "now": now})
		if err != nil || !ok {
			return err
		}
		return t.moved(u.FileID, step(now, "upload", string(u.ID), models.UploadInit, models.UploadUploading, actor, ""))
	})
	return ok, err
}

// Contest says, before a multipart is begun for an upload that is begun already by another
// request, that two of them may come to be: the reap task then is not cancelled by the
// activation, and looks for the one that is left over. ok is false when the upload is not
// init any more: nothing may be begun then.
func (s *Store) Contest(ctx context.Context, id models.UploadID, now time.Time) (ok bool, err error) {
	ok, err = s.alone(ctx).one(`UPDATE uploads SET contested = true, updated_at = @now WHERE id = @id AND state = 'init'`, args{"id": id, "now": now})
	return ok, wrap("contest upload", err)
}

// Pins returns the part checksums that were signed into an upload's URLs, by number.
func (s *Store) Pins(ctx context.Context, id models.UploadID) ([]models.Pin, error) {
	var pins []models.Pin
	_, err := s.alone(ctx).read(&pins, `SELECT number, digest FROM pins WHERE upload_id = @id ORDER BY number`, args{"id": id})
	return pins, wrap("pins", err)
}

// errSign says why signing stored nothing.
var errSign = errors.New("sign")

// Sign stores, before any URL leaves the house, the pins and the latest expiry, and
// slides the session's end. conflicts are the parts already pinned to other bytes; ok is
// false when the session does not take parts any more. In both cases nothing is stored.
func (s *Store) Sign(ctx context.Context, g models.Signing) (conflicts []int, ok bool, err error) {
	err = s.within(ctx, "sign", func(t tx) error {
		conflicts, ok = nil, false
		a := args{"id": g.ID, "until": g.SignedUntil, "expires": g.ExpiresAt, "now": g.Now}
		ok, err = t.one(`UPDATE uploads u SET signed_until = GREATEST(COALESCE(u.signed_until, @until), @until),
				expires_at = LEAST(u.hard_expires_at, GREATEST(u.expires_at, @expires)), updated_at = @now
			WHERE u.id = @id AND u.state = 'uploading' AND u.expires_at > @now`+whoseClause("u", g.Whose, a), a)
		if err != nil || !ok || len(g.Pins) == 0 {
			return err
		}
		numbers := make([]int, len(g.Pins))
		digests := make([][]byte, len(g.Pins))
		for i, p := range g.Pins {
			numbers[i], digests[i] = p.Number, p.Digest
		}
		p := args{"id": g.ID, "numbers": intArray(numbers), "digests": byteaArray(digests)}
		n, err := t.exec(`INSERT INTO pins (upload_id, number, digest)
			SELECT @id, n, d FROM unnest(CAST(@numbers AS int[]), CAST(@digests AS bytea[])) AS x (n, d)
			ON CONFLICT (upload_id, number) DO NOTHING`, p)
		if err != nil || n == int64(len(g.Pins)) {
			return err
		}
		if _, err := t.read(&conflicts, `SELECT p.number FROM pins p
			JOIN unnest(CAST(@numbers AS int[]), CAST(@digests AS bytea[])) AS x (n, d) ON p.number = x.n
			WHERE p.upload_id = @id AND p.digest <> x.d ORDER BY p.number`, p); err != nil {
			return err
		}
		if len(conflicts) > 0 {
			return errSign
		}
		return nil
	})
	if errors.Is(err, errSign) {
		return conflicts, false, nil
	}
	return conflicts, ok, err
}

// Touch says that more parts than ever were seen at S3: that is progress, and the session's
// end slides, up to its hard one.
func (s *Store) Touch(ctx context.Context, id models.UploadID, seen int, expires, now time.Time) error {
	_, err := s.alone(ctx).exec(`UPDATE uploads SET expires_at = LEAST(hard_expires_at, GREATEST(expires_at, @expires)), parts_seen = @seen, updated_at = @now
		WHERE id = @id AND state = 'uploading' AND expires_at > @now AND parts_seen < @seen`, args{"id": id, "seen": seen, "expires": expires, "now": now})
	return wrap("touch upload", err)
}

// BeginComplete takes the right to call S3's Complete: uploading → completing, or over
// from a completing whose lease is dead. The attempt number of the upload it returns
// fences what follows. ok is false when the guard said no; the upload is then as it stands.
func (s *Store) BeginComplete(ctx context.Context, u models.Upload, lease, now time.Time, actor string) (up models.Upload, ok bool, err error) {
	err = s.within(ctx, "begin complete", func(t tx) error {
		var r uploadRow
		n, err := t.read(&r, `UPDATE uploads u SET state = 'completing', attempt = u.attempt + 1, lease_until = @lease, updated_at = @now
			WHERE u.id = @id AND u.method = 'multipart' AND (u.state = 'uploading' OR (u.state = 'completing' AND u.lease_until <= @now))
			RETURNING `+uploadColumns, args{"id": u.ID, "lease": lease, "now": now})
		if err != nil {
			return err
		}
		if ok = n == 1; !ok {
			up, _, err = t.upload(models.Whose{}, u.ID)
			return err
		}
		up = r.model()
		return t.moved(u.FileID, step(now, "upload", string(u.ID), u.State, models.UploadCompleting, actor, ""))
	})
	return up, ok, err
}

// RenewComplete prolongs the lease of an attempt that is still the upload's. ok is false
// when it is not.
func (s *Store) RenewComplete(ctx context.Context, u models.Upload, lease time.Time) (ok bool, err error) {
	ok, err = s.alone(ctx).one(`UPDATE uploads SET lease_until = @lease WHERE id = @id AND state = 'completing' AND attempt = @attempt`,
		args{"id": u.ID, "attempt": u.Attempt, "lease": lease})
	return ok, wrap("renew complete", err)
}

// Yield gives back the right to complete, fenced by the attempt: completing →
// uploading. expires is where the session's end slides to, so that the client can mend.
func (s *Store) Yield(ctx context.Context, u models.Upload, why string, expires, now time.Time) (ok bool, err error) {
	err = s.within(ctx, "yield complete", func(t tx) error {
		ok, err = t.one(`UPDATE uploads SET state = 'uploading', lease_until = NULL, updated_at = @now,
				expires_at = LEAST(hard_expires_at, GREATEST(expires_at, @expires))
			WHERE id = @id AND state = 'completing' AND attempt = @attempt`,
			args{"id": u.ID, "attempt": u.Attempt, "expires": expires, "now": now})
		if err != nil || !ok {
			return err
		}
		return t.moved(u.FileID, step(now, "upload", string(u.ID), models.UploadCompleting, models.UploadUploading, "complete", why))
	})
	return ok, err
}
