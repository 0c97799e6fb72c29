package store

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"berth/models"
)

// AttestMany is Attest for a batch, in one transaction and three statements: events come in
// bursts, and a transaction for each of them costs more than S3's own answers. It takes
// what needs nothing settled late (no owner guard, a declared size); what it does not take,
// or finds otherwise than it was verified, is left out of the answer for Attest to do by
// itself. Files are locked in the order of their ids, so that two batches cannot wait for
// each other.
func (s *Store) AttestMany(ctx context.Context, as []models.Attestation, now time.Time) (done map[models.UploadID]models.AttestOutcome, err error) {
	return s.attestTogether(ctx, as, true, now)
}

// attestTogether leaves out, where it may not wait, the uploads that others hold.
func (s *Store) attestTogether(ctx context.Context, as []models.Attestation, wait bool, now time.Time) (done map[models.UploadID]models.AttestOutcome, err error) {
	err = s.within(ctx, "attest many", func(t tx) error {
		done, err = t.attestMany(as, wait, now)
		return err
	})
	switch {
	case errors.Is(err, errUneven):
		return nil, nil // one of them is not as the others: each by itself will tell which
	case err != nil:
		return nil, err // all of it is undone: nothing of it may be taken for done
	}
	return done, nil
}

var errUneven = errors.New("the batch's rows do not move together")

func (t tx) attestMany(as []models.Attestation, wait bool, now time.Time) (map[models.UploadID]models.AttestOutcome, error) {
	byID := make(map[string]models.Attestation, len(as))
	ids := make([]string, len(as))
	for i, a := range as {
		ids[i] = string(a.UploadID)
		byID[ids[i]] = a
	}
	var rows []bothRows // as they are once they are locked
	lock := ` FOR UPDATE OF f, u`
	if !wait {
		lock += ` SKIP LOCKED`
	}
	if _, err := t.read(&rows, `SELECT `+uploadColumns+`, `+fileColumnsToo+` FROM files f JOIN uploads u ON u.file_id = f.id
		WHERE u.id = ANY(CAST(@ids AS text[])) ORDER BY f.id`+lock, args{"ids": textArray(ids)}); err != nil {
		return nil, err
	}
	pins, foreign, err := t.beside(ids) // only now: the locks may have been waited for
	if err != nil {
		return nil, err
	}
	done := make(map[models.UploadID]models.AttestOutcome, len(rows))
	b := &batch{actor: as[0].Actor}
	for i := range rows {
		u, f, a := rows[i].Upload.model(), rows[i].File.model(), byID[rows[i].Upload.ID]
		switch {
		case !models.Uploads.May(u.State, models.UploadCompleted):
			done[u.ID] = models.AttestLost
		case a.Actor != b.actor: // one is written into the history of all
		case f.Guarded || u.Undeclared || u.Contested || f.State != models.FilePreparing || !stands(u, pins[u.ID], a):
		default:
			if err := b.add(u, f, a, foreign[u.ID], now); err != nil {
				return nil, err
			}
			done[u.ID] = models.Attested
		}
	}
	if b.n == 0 {
		return done, nil
	}
	return done, t.moveMany(b, now)
}

// stands judges once more, under the locks, what was attested: what is declared or pinned
// of an upload may have changed since it was looked at, and nothing may change it now.
func stands(u models.Upload, pins []models.Pin, a models.Attestation) bool {
	want, conflict := models.Expected(&u, pins)
	v := models.Verify(&u, want, a.Object)
	return v.OK && !conflict && v.Checksum == a.Checksum
}

// batch is the columns of the uploads to move, as arrays.
type batch struct {
	n                                                          int
	actor                                                      string
	id, file, replica, was, version, etag, alg, typ, value, to []string
	size, declared, taskID, eventID, payload, trace            []string
	cleared                                                    []string // replicas that have nothing to be reaped any more
}

// add takes one more upload. foreign says that a version that is not ours waits under its
// key to be reaped.
func (b *batch) add(u models.Upload, f models.File, a models.Attestation, foreign bool, now time.Time) error {
	to, payload := models.FilePreparing, []byte("{}") // deferred: the file waits for its commit
	if u.Commit == models.CommitAuto {
		to = models.FileActive
		if a.Steps {
			to = models.FileProcessing
		}
	}
	if to == models.FileActive {
		f.Size, f.VersionID, f.Checksum = a.Object.Size, a.Object.VersionID, a.Checksum
		var err error
		if payload, err = eventPayload(f, now); err != nil {
			return err
		}
	}
	b.n++
	b.id, b.file, b.replica = append(b.id, string(u.ID)), append(b.file, string(u.FileID)), append(b.replica, string(u.ReplicaID))
	b.was, b.to = append(b.was, string(u.State)), append(b.to, string(to))
	b.version, b.etag = append(b.version, a.Object.VersionID), append(b.etag, a.Object.ETag)
	b.alg, b.typ, b.value = append(b.alg, string(a.Checksum.Algorithm)), append(b.typ, string(a.Checksum.Type)), append(b.value, a.Checksum.Value)
	b.size, b.declared = append(b.size, strconv.FormatInt(a.Object.Size, 10)), append(b.declared, strconv.FormatBool(a.Declared))
	if to != models.FilePreparing && !foreign {
		b.cleared = append(b.cleared, string(u.ReplicaID))
	}
	b.taskID, b.eventID = append(b.taskID, string(models.NewTaskID())), append(b.eventID, string(models.NewEventID()))
	b.payload, b.trace = append(b.payload, string(payload)), append(b.trace, a.Traceparent)
	return nil
}

// moveMany makes the transitions of a batch in one statement. Each part hangs on the
// guarded update of the upload; that all of them moved as many rows is checked, or all is
// undone.
func (t tx) moveMany(b *batch, now time.Time) error {
	var n struct{ Uploads, Replicas, Files, Events, Wanted int }
	if _, err := t.read(&n, `WITH w AS MATERIALIZED (
			SELECT * FROM unnest(CAST(@id AS text[]), CAST(@file AS text[]), CAST(@replica AS text[]), CAST(@was AS text[]), CAST(@to AS text[]),
				CAST(@version AS text[]), CAST(@etag AS text[]), CAST(@alg AS text[]), CAST(@type AS text[]), CAST(@value AS text[]),
				CAST(@size AS bigint[]), CAST(@declared AS boolean[]), CAST(@task AS text[]), CAST(@event AS text[]), CAST(@payload AS jsonb[]),
				CAST(@trace AS text[]))
			AS x (id, file, replica, was, "to", version, etag, alg, type, value, size, declared, task, event, payload, trace)),
		up AS (UPDATE uploads u SET state = CASE w."to" WHEN 'preparing' THEN 'completed' ELSE 'committed' END, lease_until = NULL,
				version_id = w.version, etag = w.etag, size = w.size, attested_algorithm = w.alg, attested_type = w.type, attested_value = w.value,
				completed_at = @now, updated_at = @now, closed_at = CASE w."to" WHEN 'preparing' THEN NULL ELSE CAST(@now AS timestamptz) END
			FROM w WHERE u.id = w.id AND u.state = w.was RETURNING w.*),
		rp AS (UPDATE replicas r SET state = 'ready', version_id = up.version, etag = up.etag, size = up.size, updated_at = @now
			FROM up WHERE r.id = up.replica AND r.state IN `+from(models.Replicas, models.ReplicaReady)+` RETURNING r.id),
		fi AS (UPDATE files f SET state = up."to", version_id = up.version, etag = up.etag, size = up.size, checksum_algorithm = up.alg,
				checksum_type = up.type, checksum_value = up.value, declared = up.declared, updated_at = @now,
				activated_at = CASE up."to" WHEN 'active' THEN CAST(@now AS timestamptz) END
			FROM up WHERE f.id = up.file AND f.state = 'preparing' RETURNING f.id),
		pn AS (DELETE FROM pins p USING up WHERE p.upload_id = up.id),
		-- by their names, not joined: an estimate gone wrong would walk all pending tasks
		old AS MATERIALIZED (SELECT k.id, k.state, k.file_id FROM tasks k
			WHERE k.kind = 'reap' AND k.target = ANY(CAST(@cleared AS text[])) AND k.state IN ('pending', 'running') FOR UPDATE),
		ts AS (UPDATE tasks k SET state = 'cancelled', lease_owner = NULL, lease_until = NULL, closed_at = @now, updated_at = @now
			FROM old WHERE k.id = old.id),
		nt AS (INSERT INTO tasks (id, kind, target, file_id, state, run_at, max_attempts, created_at, updated_at)
			SELECT up.task, 'process', up.file, up.file, 'pending', @now, @attempts, @now, @now FROM up WHERE up."to" = 'processing'),
		ob AS (INSERT INTO outbox (id, type, file_id, tenant, payload, state, not_before, traceparent, created_at)
			SELECT up.event, 'file.active', up.file, up.payload->>'tenant', up.payload, 'pending', @now, NULLIF(up.trace, ''), @now FROM up WHERE up."to" = 'active' RETURNING id),
		hi AS (INSERT INTO history (at, file_id, what, subject, from_state, to_state, actor, why, version_id)
			SELECT @now, h.file, h.what, h.subject, h.f, h.t, @actor, h.why, h.version FROM (
				SELECT 1 AS o, file, 'upload' AS what, id AS subject, was AS f, 'completed' AS t, '' AS why, version FROM up
				UNION ALL SELECT 2, file, 'replica', replica, 'writing', 'ready', '', version FROM up
				UNION ALL SELECT 3, file, 'upload', id, 'completed', 'committed', '', '' FROM up WHERE "to" <> 'preparing'
				UNION ALL SELECT 4, file, 'file', file, 'preparing', "to", '', '' FROM up WHERE "to" <> 'preparing'
				UNION ALL SELECT 5, file_id, 'task', id, state, 'cancelled', 'reap', '' FROM old) h ORDER BY h.file, h.o)
		SELECT (SELECT count(*) FROM up) AS uploads, (SELECT count(*) FROM rp) AS replicas, (SELECT count(*) FROM fi) AS files,
			(SELECT count(*) FROM ob) AS events, (SELECT count(*) FROM up WHERE "to" = 'active') AS wanted`,
		args{"id": textArray(b.id), "file": textArray(b.file), "replica": textArray(b.replica), "was": textArray(b.was), "to": textArray(b.to),
			"version": textArray(b.version), "etag": textArray(b.etag), "alg": textArray(b.alg), "type": textArray(b.typ), "value": textArray(b.value),
			"size": textArray(b.size), "declared": textArray(b.declared), "actor": b.actor, "cleared": textArray(b.cleared), "task": textArray(b.taskID),
			"event": textArray(b.eventID), "payload": textArray(b.payload), "trace": textArray(b.trace),
			"attempts": models.DefaultMaxAttempts, "now": now}); err != nil {
		return err
	}
	if n.Uploads != b.n || n.Replicas != b.n || n.Files != b.n || n.Events != n.Wanted {
		return errUneven
	}
	return nil
}

// PinsOf is Pins for many uploads.
func (s *Store) PinsOf(ctx context.Context, ids []models.UploadID) (map[models.UploadID][]models.Pin, error) {
	pins, err := s.alone(ctx).pinsOf(ids)
	return pins, wrap("pins of uploads", err)
}

func (t tx) pinsOf(ids []models.UploadID) (map[models.UploadID][]models.Pin, error) {
	var rows []struct {
		UploadID string
		Number   int
		Digest   []byte
	}
	if _, err := t.read(&rows, `SELECT upload_id, number, digest FROM pins WHERE upload_id = ANY(CAST(@ids AS text[])) ORDER BY upload_id, number`,
		args{"ids": textArray(ids)}); err != nil {
		return nil, err
	}
	out := make(map[models.UploadID][]models.Pin)
	for _, r := range rows {
		id := models.UploadID(r.UploadID)
		out[id] = append(out[id], models.Pin{Number: r.Number, Digest: r.Digest})
	}
	return out, nil
}

// beside reads what belongs to uploads and is not in their rows: their pins, and whether a
// version that is not theirs waits under their keys to be reaped.
func (t tx) beside(ids []string) (pins map[models.UploadID][]models.Pin, foreign map[models.UploadID]bool, err error) {
	var rows []struct {
		UploadID string
		Number   int // 0 stands for a foreign version
		Digest   []byte
	}
	if _, err := t.read(&rows, `SELECT p.upload_id, p.number, p.digest FROM pins p WHERE p.upload_id = ANY(CAST(@ids AS text[]))
		UNION ALL SELECT u.id, 0, NULL FROM uploads u WHERE u.id = ANY(CAST(@ids AS text[]))
			AND EXISTS (SELECT 1 FROM foreign_versions v WHERE v.store = u.store AND v.key = u.key AND v.reaped_at IS NULL)
		ORDER BY 1, 2`, args{"ids": textArray(ids)}); err != nil {
		return nil, nil, err
	}
	pins, foreign = map[models.UploadID][]models.Pin{}, map[models.UploadID]bool{}
	for _, r := range rows {
		if id := models.UploadID(r.UploadID); r.Number == 0 {
			foreign[id] = true
		} else {
			pins[id] = append(pins[id], models.Pin{Number: r.Number, Digest: r.Digest})
		}
	}
	return pins, foreign, nil
}

// eventPayload is what an event says of its file.
func eventPayload(f models.File, now time.Time) ([]byte, error) {
	return json.Marshal(map[string]any{
		"file_id": f.ID, "tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "name": f.Name,
		"size": f.Size, "content_type": f.ContentType, "version_id": f.VersionID,
		"checksum": map[string]any{"algorithm": f.Checksum.Algorithm, "type": f.Checksum.Type, "value": f.Checksum.Value},
		"reason":   f.ReasonCode, "parent_id": f.Parent, "at": now.UTC(),
	})
}
