package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/models"
)

// reconcileBatch is how many rows are read at once.
const reconcileBatch = 1000

const knownColumns = replicaColumns + `, COALESCE(r.reason, '') AS why, f.state AS file_state,
	COALESCE(u.id, '') AS upload_id, COALESCE(u.state, '') AS upload_state, COALESCE(u.s3_upload_id, '') AS s3_upload_id`

const knownFrom = ` FROM replicas r JOIN files f ON f.id = r.file_id LEFT JOIN uploads u ON u.file_id = r.file_id AND u.replica_id = r.id `

type knownRow struct {
	Replica     replicaRow `gorm:"embedded"`
	Why         string
	FileState   string
	UploadID    string
	UploadState string
	S3UploadID  string `gorm:"column:s3_upload_id"`
}

func (r *knownRow) model() models.KnownKey {
	return models.KnownKey{Replica: r.Replica.model(), Reason: r.Why, FileState: models.FileState(r.FileState),
		UploadID: models.UploadID(r.UploadID), UploadState: models.UploadState(r.UploadState), S3UploadID: r.S3UploadID}
}

// KnownKeys lists what the rows say of a store's keys, in the order of the keys' bytes,
// as S3 lists them (replicas.key has the collation "C"). It reads in batches, each a
// statement of its own: no snapshot is held open, and memory does not grow. It ends at
// the first error.
func (s *Store) KnownKeys(ctx context.Context, store models.StoreName) iter.Seq2[models.KnownKey, error] {
	return func(yield func(models.KnownKey, error) bool) {
		after := ""
		for {
			var rows []knownRow
			if _, err := s.alone(ctx).read(&rows, `SELECT `+knownColumns+knownFrom+`
				WHERE r.store = @store AND r.key > @after ORDER BY r.key LIMIT @limit`,
				args{"store": store, "after": after, "limit": reconcileBatch}); err != nil {
				yield(models.KnownKey{}, wrap("known keys", err))
				return
			}
			for i := range rows {
				if !yield(rows[i].model(), nil) {
					return
				}
			}
			if len(rows) < reconcileBatch {
				return
			}
			after = rows[len(rows)-1].Replica.Key
		}
	}
}

// KnownAt is what the rows say of some keys, now. Unknown keys are left out.
func (s *Store) KnownAt(ctx context.Context, store models.StoreName, keys []string) (map[string]models.KnownKey, error) {
	// What PostgreSQL cannot store is no row's.
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !utf8.ValidString(k) || strings.ContainsRune(k, 0) })
	var rows []knownRow
	if _, err := s.alone(ctx).read(&rows, `SELECT `+knownColumns+knownFrom+`
		WHERE r.store = @store AND r.key = ANY(CAST(@keys AS text[]))`, args{"store": store, "keys": textArray(keys)}); err != nil {
		return nil, wrap("rows by key", err)
	}
	out := make(map[string]models.KnownKey, len(rows))
	for i := range rows {
		out[rows[i].Replica.Key] = rows[i].model()
	}
	return out, nil
}

// errRunLost ends a transaction of a run that is no longer running.
var errRunLost = errors.New("the run was given up for dead, and another may be at it")

// heldRun locks a run and refuses unless it still runs: what holds it is the fence of all
// that it changes.
func (t tx) heldRun(id models.RunID) error {
	ok, err := t.one(`UPDATE reconciliations SET lease_until = lease_until WHERE id = @id AND state = 'running'`, args{"id": id})
	if err == nil && !ok {
		err = errRunLost
	}
	return err
}

// Condemn notes, in the history, versions and multipart uploads that are about to be
// removed, and returns the places of those that may be. It is the reference check (F1),
// in the transaction that notes: a version under a key of which any row stands that is
// not deleted, is not removed by reconcile; a multipart upload is not while a session
// may still complete it. A condemned version cannot be registered until Spare, or until
// its run has ended for CondemnedFor: imports wait for this transaction, and are then
// refused. That includes one that looked at the object before it was deleted, and what a
// run may still delete that was stopped, and has been given up for dead.
func (s *Store) Condemn(ctx context.Context, run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) (places []int, err error) {
	err = s.within(ctx, "condemn", func(t tx) error {
		places = nil
		if err := t.heldRun(run); err != nil {
			return err
		}
		// Imports look for condemned versions under this lock, shared, before they insert.
		if _, err := t.exec(`SELECT pg_advisory_xact_lock(hashtext('berth condemned'), hashtext(@store))`, args{"store": store}); err != nil {
			return err
		}
		a := findingArgs(run, store, fs, now)
		var rows []struct{ N int }
		if _, err := t.read(&rows, `WITH x AS MATERIALIZED (`+findingRows+`),
			allowed AS MATERIALIZED (SELECT x.* FROM x WHERE CASE WHEN x.s3_upload_id = ''
				THEN NOT EXISTS (SELECT 1 FROM replicas r WHERE r.store = @store AND r.key = x.key AND r.state <> 'deleted')
				ELSE NOT EXISTS (SELECT 1 FROM uploads u WHERE u.store = @store AND u.key = x.key AND u.state IN `+list(openUploads...)+`
					AND (u.s3_upload_id IS NULL OR u.s3_upload_id = x.s3_upload_id)) END),
			doom AS (INSERT INTO condemned (store, key, version_id, run_id)
				SELECT @store, key, version_id, @run FROM allowed WHERE s3_upload_id = ''
				ON CONFLICT (store, key, version_id) DO UPDATE SET run_id = EXCLUDED.run_id),
			told AS (INSERT INTO history (at, file_id, what, subject, from_state, to_state, actor, why, version_id)
				SELECT @now, file_id, 'object', subject, '', CASE WHEN s3_upload_id = '' THEN 'deleting' ELSE 'aborting' END, @actor, why, version_id FROM allowed)
			SELECT n FROM allowed ORDER BY n`, a); err != nil {
			return err
		}
		for _, r := range rows {
			places = append(places, r.N)
		}
		return nil
	})
	return places, err
}

// Removed notes in the history what is gone.
func (s *Store) Removed(ctx context.Context, run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) error {
	_, err := s.alone(ctx).exec(`INSERT INTO history (at, file_id, what, subject, from_state, to_state, actor, why, version_id)
		SELECT @now, x.file_id, 'object', x.subject, CASE WHEN x.s3_upload_id = '' THEN 'deleting' ELSE 'aborting' END,
		       CASE WHEN x.s3_upload_id = '' THEN 'deleted' ELSE 'aborted' END, @actor, x.why, x.version_id
		  FROM (`+findingRows+`) x ORDER BY x.n`, findingArgs(run, store, fs, now))
	return wrap("note removals", err)
}

// Spare lifts the condemnation of what could not be removed.
func (s *Store) Spare(ctx context.Context, run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) error {
	_, err := s.alone(ctx).exec(`DELETE FROM condemned c USING (`+findingRows+`) x
		WHERE c.store = @store AND c.key = x.key AND c.version_id = x.version_id AND c.run_id = @run AND x.s3_upload_id = ''`,
		findingArgs(run, store, fs, now))
	return wrap("spare", err)
}

// CondemnedFor is how long after the end of its run a version stays condemned.
const CondemnedFor = 24 * time.Hour

// openUploads are the states in which a session may still complete its multipart.
var openUploads = []models.UploadState{models.UploadInit, models.UploadUploading, models.UploadCompleting, models.UploadCompleted}

// findingRows are findings as a table: their places from 0, and what the history says of
// them. What belongs to no file stands under the run, by its key.
const findingRows = `SELECT (n - 1)::int AS n, key, version_id, s3_upload_id, why, COALESCE(NULLIF(file_id, ''), @run) AS file_id,
	COALESCE(NULLIF(replica_id, ''), key) AS subject
	FROM unnest(CAST(@keys AS text[]), CAST(@versions AS text[]), CAST(@multiparts AS text[]), CAST(@files AS text[]),
		CAST(@replicas AS text[]), CAST(@why AS text[])) WITH ORDINALITY AS z (key, version_id, s3_upload_id, file_id, replica_id, why, n)`

func findingArgs(run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) args {
	col := func(of func(f *models.Finding) string) string {
		out := make([]string, len(fs))
		for i := range fs {
			out[i] = of(&fs[i])
		}
		return textArray(out)
	}
	return args{"run": run, "store": store, "now": now, "actor": models.ActorReconcile,
		"keys":       col(func(f *models.Finding) string { return f.Key }),
		"versions":   col(func(f *models.Finding) string { return f.VersionID }),
		"multiparts": col(func(f *models.Finding) string { return f.S3UploadID }),
		"files":      col(func(f *models.Finding) string { return string(f.FileID) }),
		"replicas":   col(func(f *models.Finding) string { return string(f.ReplicaID) }),
		"why": col(func(f *models.Finding) string {
			why := f.Why
			if f.Marker {
				why = "delete marker: " + why
			}
			if f.S3UploadID != "" {
				why = "multipart upload " + f.S3UploadID + ": " + why
			}
			return string(f.Kind) + ": " + why + ", " + strconv.FormatInt(f.Size, 10) + " bytes"
		}),
	}
}
