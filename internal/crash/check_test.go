package crash_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"berth/models"
)

// verdict collects what is not as it must be.
type verdict struct{ broken []string }

func (v *verdict) say(format string, args ...any) {
	v.broken = append(v.broken, fmt.Sprintf(format, args...))
}

// mustHold fails the test with all that does not hold.
func mustHold(t testing.TB, w *world, p *process, final bool, when string) {
	t.Helper()
	broken, err := w.check(t.Context(), p, final)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	for _, b := range broken {
		t.Errorf("%s: %s", when, b)
	}
}

type fileRow struct {
	ID, Tenant, Owner, Collection, State, Version, Alg, Typ, Value, Upload string
	Size                                                                   int64
	Guarded, Activated                                                     bool
	Actives, Faileds, Deleteds                                             int
}

type uploadRow struct {
	ID, File, Replica, State, Key, Version string
	Pins, OpenReaps                        int
}

type replicaRow struct {
	ID, File, State, Key, Version string
	OpenReaps                     int
}

// check is the judge: it reads the rows and S3, and says what of F1 to F9 does not hold.
// final adds what holds only after every deadline and grace has passed and all work is
// done. p is only asked whether files can be read.
func (w *world) check(ctx context.Context, p *process, final bool) ([]string, error) {
	v := &verdict{}
	files, err := rows[fileRow](ctx, w, `SELECT f.id, f.tenant, f.owner, f.collection, f.state, COALESCE(f.version_id, ''), f.checksum_algorithm,
		f.checksum_type, f.checksum_value, COALESCE(f.upload_id, ''), f.size, f.guarded, f.activated_at IS NOT NULL,
		(SELECT count(*) FROM outbox o WHERE o.file_id = f.id AND o.type = 'file.active'),
		(SELECT count(*) FROM outbox o WHERE o.file_id = f.id AND o.type = 'file.failed'),
		(SELECT count(*) FROM outbox o WHERE o.file_id = f.id AND o.type = 'file.deleted') FROM files f`)
	if err != nil {
		return nil, err
	}
	uploads, err := rows[uploadRow](ctx, w, `SELECT u.id, u.file_id, u.replica_id, u.state, u.key, COALESCE(u.version_id, ''),
		(SELECT count(*) FROM pins p WHERE p.upload_id = u.id),
		(SELECT count(*) FROM tasks t WHERE t.kind = 'reap' AND t.target = u.replica_id AND t.state IN ('pending', 'running')) FROM uploads u`)
	if err != nil {
		return nil, err
	}
	replicas, err := rows[replicaRow](ctx, w, `SELECT r.id, r.file_id, r.state, r.key, COALESCE(r.version_id, ''),
		(SELECT count(*) FROM tasks t WHERE t.kind = 'reap' AND t.target = r.id AND t.state IN ('pending', 'running')) FROM replicas r`)
	if err != nil {
		return nil, err
	}
	upload, replica := map[string]uploadRow{}, map[string]replicaRow{}
	for _, u := range uploads {
		upload[u.File] = u
	}
	for _, r := range replicas {
		replica[r.File] = r
	}
	for _, f := range files {
		w.checkFile(ctx, v, p, f, upload[f.ID], replica[f.ID], final)
	}
	if err := w.checkHistory(ctx, v, files, uploads, replicas); err != nil {
		return nil, err
	}
	if err := w.checkCounters(ctx, v); err != nil {
		return nil, err
	}
	if final {
		if err := w.checkRest(ctx, v, replicas); err != nil {
			return nil, err
		}
	}
	return v.broken, nil
}

// checkFile is F1, F3, F4, F8 of one file, and that the states of a file, its upload and
// its replica go together.
func (w *world) checkFile(ctx context.Context, v *verdict, p *process, f fileRow, u uploadRow, r replicaRow, final bool) {
	bad := func(format string, args ...any) {
		v.say("file %s (%s), upload %s, replica %s: %s", f.ID, f.State, u.State, r.State, fmt.Sprintf(format, args...))
	}
	state := models.FileState(f.State)
	imported := f.Upload == ""
	attested := state == models.FileActive || state == models.FileBlocked || state == models.FileProcessing
	if attested {
		o, err := w.raw.Head(ctx, r.Key, f.Version)
		switch {
		case models.ObjectKind(err) == models.ObjectAbsent:
			bad("F1: the version %s is not at S3", f.Version)
		case err != nil:
			bad("F1: looking at S3: %v", err)
		default:
			if o.Size != f.Size || string(o.UploadID) != f.Upload {
				bad("F1: S3 holds %d bytes of %s; the file has %d of %s", o.Size, o.UploadID, f.Size, f.Upload)
			}
			found := false
			for _, c := range o.Checksums {
				found = found || c == models.Checksum{Algorithm: models.Algorithm(f.Alg), Type: models.ChecksumType(f.Typ), Value: f.Value}
			}
			if !found {
				bad("F1: S3 attests %v, the file says %s %s %s", o.Checksums, f.Alg, f.Typ, f.Value)
			}
		}
		if r.State != "ready" || r.Version != f.Version || (!imported && (u.Version != f.Version || u.State != "committed")) {
			bad("versions %q, %q, %q", f.Version, u.Version, r.Version)
		}
	}
	if f.Actives > 1 || f.Faileds > 1 || f.Deleteds > 1 || (f.Actives == 1) != f.Activated {
		bad("F3: %d file.active, %d file.failed, %d file.deleted events; activated %v", f.Actives, f.Faileds, f.Deleteds, f.Activated)
	}
	if f.Faileds == 1 && f.Activated {
		bad("F3: both failed and activated")
	}
	if (state == models.FileDeleted) != (f.Deleteds == 1) {
		bad("F3: %d file.deleted events", f.Deleteds)
	}
	if open := len(models.Uploads.Next[models.UploadState(u.State)]) > 0; open {
		if state != models.FilePreparing {
			bad("the upload is open")
		}
		if want := map[bool]string{true: "ready", false: "writing"}[u.State == "completed"]; r.State != want {
			bad("want the replica %s", want)
		}
		if u.OpenReaps != 1 {
			bad("F2: %d open reap tasks; the intent to clean up must be there before anything else", u.OpenReaps)
		}
	} else {
		if u.Pins != 0 {
			bad("%d pins of a closed upload", u.Pins)
		}
		failed := u.State != "committed" && !imported
		switch state {
		case models.FilePreparing:
			bad("the upload is closed")
		case models.FileFailed:
			if !failed && len(collections()[f.Collection].Steps) == 0 { // a step may say delete
				bad("the upload was committed")
			}
		case models.FileActive, models.FileBlocked, models.FileProcessing:
			if failed {
				bad("the upload was not committed")
			}
		}
	}
	if gone := state == models.FileFailed || state == models.FileDeleting; gone && r.State != "deleted" && r.OpenReaps != 1 {
		bad("F2: %d open reap tasks of a replica on its way out", r.OpenReaps)
	}
	w.checkReading(ctx, bad, p, f, final)
}

// checkReading is F4 and F8: only an active file can be read, and only by its owner.
func (w *world) checkReading(ctx context.Context, bad func(string, ...any), p *process, f fileRow, final bool) {
	if p == nil {
		return
	}
	c := caller(f.Owner)
	c.Tenant = models.Tenant(f.Tenant)
	_, err := p.service.ContentURL(ctx, c, models.FileID(f.ID))
	if active := f.State == "active"; active != (err == nil) {
		bad("F4: reading it: %v", err)
	} else if !active && models.ErrorCode(err) != models.CodeNotReady {
		bad("F4: reading it: %v, want NOT_READY", err)
	}
	if !final {
		return
	}
	for _, other := range []models.Caller{caller("nobody"), {Tenant: "other", Owner: c.Owner, Scopes: c.Scopes}} {
		_, e1 := p.service.ContentURL(ctx, other, models.FileID(f.ID))
		_, e2 := p.service.Upload(ctx, other, models.UploadID(f.Upload))
		_, e3 := p.service.Delete(ctx, other, models.FileID(f.ID))
		_, e4 := p.service.Abort(ctx, other, models.UploadID(f.Upload))
		for _, e := range []error{e1, e2, e3, e4} {
			if models.ErrorCode(e) != models.CodeNotFound {
				bad("F8: another's: %v, want NOT_FOUND", e)
			}
		}
	}
}

type historyRow struct {
	What, Subject, From, To string
}

// checkHistory holds the history against the tables of what may become what: each row
// begins where the one before ended, and the last is where the subject stands.
func (w *world) checkHistory(ctx context.Context, v *verdict, files []fileRow, uploads []uploadRow, replicas []replicaRow) error {
	hist, err := rows[historyRow](ctx, w, `SELECT what, subject, from_state, to_state FROM history WHERE what <> 'object' ORDER BY id`)
	if err != nil {
		return err
	}
	last, activated := map[string]string{}, map[string]int{}
	for _, h := range hist {
		legal, chained := false, true
		switch h.What {
		case "file":
			legal = may(models.Files, h)
			if h.To == "active" && h.From != "blocked" {
				activated[h.Subject]++
			}
		case "upload":
			legal = may(models.Uploads, h)
		case "replica":
			legal = may(models.Replicas, h)
		case "task":
			legal, chained = may(models.Tasks, h), false // claims are not in the history
		}
		if !legal {
			v.say("history: %s %s from %q to %q is not among the transitions", h.What, h.Subject, h.From, h.To)
		}
		if chained && last[h.Subject] != h.From {
			v.say("history: %s %s from %q to %q, but it was %q", h.What, h.Subject, h.From, h.To, last[h.Subject])
		}
		last[h.Subject] = h.To
	}
	at := func(id, state string) {
		if last[id] != state {
			v.say("history: %s is %q, its history ends with %q", id, state, last[id])
		}
	}
	for _, f := range files {
		at(f.ID, f.State)
		if activated[f.ID] > 1 {
			v.say("F3: file %s became active %d times", f.ID, activated[f.ID])
		}
	}
	for _, u := range uploads {
		at(u.ID, u.State)
	}
	for _, r := range replicas {
		at(r.ID, r.State)
	}
	return nil
}

func may[S ~string](m models.Machine[S], h historyRow) bool {
	if h.From == "" {
		for _, s := range m.Initial {
			if string(s) == h.To {
				return true
			}
		}
		return false
	}
	return m.May(S(h.From), S(h.To))
}

// checkCounters is F5 and F9.
func (w *world) checkCounters(ctx context.Context, v *verdict) error {
	type quotaRow struct {
		Tenant, Owner, Collection                      string
		Files, Bytes, Open                             int64
		CountedFiles, CountedBytes, CountedOpenUploads int64
	}
	quotas, err := rows[quotaRow](ctx, w, `SELECT COALESCE(q.tenant, c.tenant), COALESCE(q.owner, c.owner), COALESCE(q.collection, c.collection),
			COALESCE(q.files, 0), COALESCE(q.bytes, 0), COALESCE(q.open, 0), COALESCE(c.files, 0), COALESCE(c.bytes, 0), COALESCE(c.open, 0)
		FROM quotas q FULL JOIN (SELECT tenant, owner, collection, count(*) AS files, sum(size)::bigint AS bytes,
			count(*) FILTER (WHERE state = 'preparing') AS open FROM files WHERE guarded GROUP BY 1, 2, 3) c USING (tenant, owner, collection)`)
	if err != nil {
		return err
	}
	for _, q := range quotas {
		if q.Files != q.CountedFiles || q.Bytes != q.CountedBytes || q.Open != q.CountedOpenUploads {
			v.say("F9: quotas of %s in %s say %d files, %d bytes, %d open; the rows %d, %d, %d", q.Owner, q.Collection,
				q.Files, q.Bytes, q.Open, q.CountedFiles, q.CountedBytes, q.CountedOpenUploads)
		}
		col := collections()[q.Collection]
		if (col.MaxFiles > 0 && q.CountedFiles > col.MaxFiles) || (col.MaxBytes > 0 && q.CountedBytes > col.MaxBytes) {
			v.say("F5: %s has %d files of %d bytes in %s", q.Owner, q.CountedFiles, q.CountedBytes, q.Collection)
		}
	}
	guarded, err := rows[fileRow](ctx, w, `SELECT id, tenant, owner, collection, state, '', '', '', '', '', size, guarded, false, 0, 0, 0 FROM files`)
	if err != nil {
		return err
	}
	for _, f := range guarded {
		col := collections()[f.Collection]
		living := f.State == "preparing" || f.State == "processing" || f.State == "active" || f.State == "blocked"
		if want := col.Guarded() && living; want != f.Guarded {
			v.say("F9: file %s (%s) in %s: counted %v, want %v", f.ID, f.State, f.Collection, f.Guarded, want)
		}
	}
	type usageRow struct{ Replicas, Bytes, CountedReplicas, CountedBytes int64 }
	usage, err := rows[usageRow](ctx, w, `SELECT COALESCE((SELECT sum(replicas) FROM store_usage), 0)::bigint, COALESCE((SELECT sum(bytes) FROM store_usage), 0)::bigint,
		(SELECT count(*) FROM replicas WHERE state <> 'deleted'), COALESCE((SELECT sum(size) FROM replicas WHERE state <> 'deleted'), 0)::bigint`)
	if err != nil {
		return err
	}
	if u := usage[0]; u.Replicas != u.CountedReplicas || u.Bytes != u.CountedBytes {
		v.say("F9: store_usage says %d replicas, %d bytes; the rows %d, %d", u.Replicas, u.Bytes, u.CountedReplicas, u.CountedBytes)
	}
	return nil
}

// checkRest is F2, and that nothing waits for anything: S3 holds exactly the versions that
// living files reference.
func (w *world) checkRest(ctx context.Context, v *verdict, replicas []replicaRow) error {
	wanted := map[models.VersionRef]bool{}
	for _, r := range replicas {
		switch r.State {
		case "ready":
			wanted[models.VersionRef{Key: r.Key, VersionID: r.Version}] = true
		case "deleted":
		default:
			v.say("F2: replica %s is still %s", r.ID, r.State)
		}
	}
	for o, err := range w.raw.ListVersions(ctx, "") {
		if err != nil {
			return err
		}
		if !wanted[models.VersionRef{Key: o.Key, VersionID: o.VersionID}] {
			v.say("F2: S3 holds %s, version %s (marker %v), which nothing references", o.Key, o.VersionID, o.Marker)
		}
	}
	for m, err := range w.raw.ListMultiparts(ctx, "") {
		if err != nil {
			return err
		}
		v.say("F2: S3 holds a multipart upload of %s", m.Key)
	}
	for _, q := range []struct{ what, sql string }{
		{"uploads are open", `SELECT count(*) FROM uploads WHERE closed_at IS NULL`},
		{"tasks are open or failed", `SELECT count(*) FROM tasks WHERE state IN ('pending', 'running', 'failed')`},
		{"foreign versions are not reaped", `SELECT count(*) FROM foreign_versions WHERE reaped_at IS NULL`},
		{"files are on their way", `SELECT count(*) FROM files WHERE state IN ('preparing', 'processing', 'deleting', 'delete_failed')`},
	} {
		var n int
		if err := w.pool.QueryRow(ctx, q.sql).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			v.say("after all: %d %s", n, q.what)
		}
	}
	return nil
}

// has tells whether one of the complaints is of a property.
func has(broken []string, property string) bool {
	for _, b := range broken {
		if strings.Contains(b, property) {
			return true
		}
	}
	return false
}
