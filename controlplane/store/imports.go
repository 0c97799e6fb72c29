package store

import (
	"context"
	"errors"

	"berth/models"
)

// Import registers an object in one transaction: owner guard, duplicate check, quota, file
// and replica as they are to stand, history, and the one event. Nothing is reserved that a
// later step would have to give back. The file that it returns is the one as stored, or
// the one that it found instead.
//
// A key is in one row at most, whatever its state: of two imports of one object the second
// waits for the first and finds it. A version that reconcile has condemned is refused by
// the database; see 00002_reconcile.sql.
func (s *Store) Import(ctx context.Context, i models.Importing) (out models.ImportOutcome, f models.File, err error) {
	// More than once only where another of the same key or identity was undone or deleted
	// meanwhile.
	for range 3 {
		err = s.within(ctx, "import", func(t tx) error {
			out, f, err = t.importObject(i)
			if err == nil && out != models.Imported {
				return errRefused // nothing of this stays
			}
			return err
		})
		switch {
		case errors.Is(err, errRefused):
			return out, f, s.keepAdopted(ctx, i.Collection, models.Upload{Tenant: i.File.Tenant, Owner: i.File.Owner, Collection: i.File.Collection})
		case violates(err, "replicas_not_condemned"):
			return models.ImportCondemned, models.File{}, nil
		case !violates(err, "replicas_key") && !violates(err, "files_identity"):
			return out, f, err
		}
	}
	return "", models.File{}, models.Errorf(models.CodeBusy, "another file of the same object was registered at the same time").Because(err)
}

func (t tx) importObject(i models.Importing) (models.ImportOutcome, models.File, error) {
	f, r := i.File, i.Replica
	whose := models.Upload{Tenant: f.Tenant, Owner: f.Owner, Collection: f.Collection, Size: f.Size}
	if f.Guarded {
		if err := t.guardOwner(whose); err != nil {
			return "", f, err
		}
	}
	if out, old, err := t.registered(i); err != nil || out != "" {
		return out, old, err
	}
	if f.Guarded {
		old, found, err := t.living(f.Tenant, f.Owner, f.Collection, i.Identity)
		if err != nil || found {
			return models.ImportDuplicate, old, err
		}
		ok, err := t.one(`UPDATE quotas SET files = files + 1, bytes = bytes + @size
			WHERE tenant = @tenant AND owner = @owner AND collection = @collection
			  AND (CAST(@max_files AS bigint) = 0 OR files + 1 <= @max_files) AND (CAST(@max_bytes AS bigint) = 0 OR bytes + @size <= @max_bytes)`,
			args{"tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "size": f.Size,
				"max_files": i.Collection.MaxFiles, "max_bytes": i.Collection.MaxBytes})
		if err != nil || !ok {
			return models.ImportOverQuota, models.File{}, err
		}
	}
	if _, err := t.exec(`INSERT INTO files (id, tenant, owner, collection, name, size, part_size, content_type, metadata, state,
			checksum_algorithm, checksum_type, checksum_value, declared, identity, version_id, etag, guarded, created_at, updated_at, activated_at)
		VALUES (@id, @tenant, @owner, @collection, @name, @size, @part_size, @content_type, @metadata, @state,
			@alg, @type, @value, @declared, @identity, @version, @etag, @guarded, @now, @now, @now)`,
		args{"id": f.ID, "tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "name": f.Name, "size": f.Size,
			"part_size": f.PartSize, "content_type": f.ContentType, "metadata": string(f.Metadata), "state": f.State,
			"alg": f.Checksum.Algorithm, "type": f.Checksum.Type, "value": f.Checksum.Value, "declared": f.Declared,
			"identity": null(i.Identity), "version": f.VersionID, "etag": f.ETag, "guarded": f.Guarded, "now": i.Now}); err != nil {
		return "", f, err
	}
	if _, err := t.exec(`INSERT INTO replicas (id, file_id, store, key, is_primary, state, size, version_id, etag, created_at, updated_at)
		VALUES (@id, @file, @store, @key, @primary, @state, @size, @version, @etag, @now, @now)`,
		args{"id": r.ID, "file": r.FileID, "store": r.Store, "key": r.Key, "primary": r.Primary, "state": r.State, "size": r.Size,
			"version": r.VersionID, "etag": r.ETag, "now": i.Now}); err != nil {
		return "", f, err
	}
	for _, e := range []models.HistoryEntry{
		step(i.Now, "replica", string(r.ID), "", r.State, i.Actor, "imported"),
		step(i.Now, "file", string(f.ID), "", f.State, i.Actor, "imported"),
	} {
		if err := t.moved(f.ID, withVersion(e, f.VersionID)); err != nil {
			return "", f, err
		}
	}
	return models.Imported, f, t.tell(models.EventFileActive, f, i.Now)
}

// registered looks whether a row has the key already, and whose it is. "" is none.
func (t tx) registered(i models.Importing) (models.ImportOutcome, models.File, error) {
	var row fileRow
	n, err := t.read(&row, `SELECT `+fileColumns+` FROM replicas r JOIN files f ON f.id = r.file_id WHERE r.store = @store AND r.key = @key`,
		args{"store": i.Replica.Store, "key": i.Replica.Key})
	if err != nil || n == 0 {
		return "", models.File{}, err
	}
	switch f := row.model(); {
	case f.Tenant != i.File.Tenant:
		return models.ImportForeign, models.File{}, nil
	case f.UploadID == "" && f.Owner == i.File.Owner && f.Collection == i.File.Collection && f.VersionID == i.File.VersionID &&
		(f.State == models.FileActive || f.State == models.FileBlocked):
		return models.ImportedBefore, f, nil
	default:
		return models.ImportKnown, f, nil
	}
}
