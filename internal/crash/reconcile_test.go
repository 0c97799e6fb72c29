package crash_test

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"berth/controlplane/reconcile"
	"berth/internal/stack"
	"berth/models"
)

// reconciles is one run of reconcile, with or without repair.
func (p *process) reconciles(ctx context.Context, repair bool) (models.ReconcileReport, error) {
	r := &reconcile.Runner{Store: stack.Main, Prefix: "b/", Records: p.store, Objects: p.objects, Now: p.reaper.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: reconcile.NewMetrics(nil)}
	return r.Run(ctx, reconcile.Options{Repair: repair})
}

func mends(ctx context.Context, _ *state, p *process) error {
	_, err := p.reconciles(ctx, true)
	return err
}

// mendsAgain is the next day's run: it ends the one that died, mends what is left, and then
// there is nothing left to find.
func mendsAgain(r *run) {
	r.t.Helper()
	r.w.clock.Advance(6 * time.Minute)
	r.ok(mends(r.p.ctx, nil, r.p))
	r.ok(r.p.reap())
	report, err := r.p.reconciles(r.p.ctx, false)
	r.ok(err)
	if !report.Clean() {
		r.t.Errorf("a run after the repair finds %+v", report.Findings)
	}
	want(r.t, r.w, 0, "SELECT count(*) FROM condemned c JOIN reconciliations r ON r.id = c.run_id WHERE r.finished_at IS NULL")
	want(r.t, r.w, 0, "SELECT count(*) FROM reconciliations WHERE state = 'running'")
}

// leftover is what is seeded beside a living file, and grows old with it.
func leftover(seed func(r *run)) func(r *run) {
	return func(r *run) {
		r.t.Helper()
		r.active(request("limited", small))
		seed(r)
		r.w.clock.Advance(25 * time.Hour)
		r.ok(r.p.reap())
	}
}

// orphaned runs seed with a key of our shape that no row knows.
func orphaned(r *run, seed func(r *run)) {
	living := r.s.Key
	r.s.Key = "b/plain/" + strings.Repeat("0f", 16) + ".pdf"
	seed(r)
	r.s.Key = living
}

func orphanObjects(r *run) {
	orphaned(r, func(r *run) {
		r.put("one", "")
		r.put("another", "")
		r.marker()
	})
}

func orphanMultipart(r *run) {
	begin := func(r *run) {
		r.t.Helper()
		_, err := r.w.s3.Client().CreateMultipartUpload(r.t.Context(), &s3.CreateMultipartUploadInput{Bucket: &r.w.s3.Bucket, Key: &r.s.Key})
		r.ok(err)
	}
	orphaned(r, begin)
	begin(r) // and under the living key
}

func foreignVersions(r *run) {
	r.put("evil", "")
	r.marker()
}

// leftBehind is a replica that should be gone, whose task was lost.
func leftBehind(r *run) {
	r.t.Helper()
	living := r.s
	r.active(request("limited", small))
	r.ok(deletes(r.p.ctx, &r.s, r.p))
	_, err := r.w.pool.Exec(r.t.Context(), "DELETE FROM tasks WHERE file_id = $1", string(r.s.File))
	r.ok(err)
	r.s = living
}

func drift(r *run) {
	r.t.Helper()
	for _, q := range []string{"UPDATE quotas SET files = files + 1, bytes = bytes + 5, open = open + 1",
		"UPDATE store_usage_slots SET bytes = bytes - 7 WHERE ctid = (SELECT min(ctid) FROM store_usage_slots)"} {
		_, err := r.w.pool.Exec(r.t.Context(), q)
		r.ok(err)
	}
}

// reconcileFlows are those of a run that mends, with each kind of leftover there.
func reconcileFlows() []flow {
	mending := func(name string, uploads int, last string, seed func(r *run)) flow {
		return flow{name: "reconcile: mend " + name, prepare: leftover(seed), act: mends, again: mendsAgain, uploads: uploads,
			files: []string{last}, broken: true}
	}
	all := mending("all at once", 2, "deleted", func(r *run) {
		orphanObjects(r)
		orphanMultipart(r)
		foreignVersions(r)
		leftBehind(r)
		drift(r)
	})
	all.heavy = true
	return []flow{
		mending("orphan objects", 1, "active", orphanObjects),
		mending("orphan multiparts", 1, "active", orphanMultipart),
		mending("foreign versions", 1, "active", foreignVersions),
		mending("what was left behind", 2, "deleted", leftBehind),
		mending("counters", 1, "active", drift),
		all,
	}
}
