package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"berth/models"
)

const (
	// lease is how long a run counts as alive without a sign of life.
	lease = 5 * time.Minute
	// batch is how many suspicions are looked at together, and how much is removed at once.
	batch = 500
	// DefaultMost is how many things a run removes at most. A wrong database or a wrong
	// prefix then costs this much, not the bucket.
	DefaultMost = 10_000
)

// Runner reconciles one store.
type Runner struct {
	Store   models.StoreName
	Prefix  string // that Berth owns in the bucket
	Records Records
	Objects Objects
	Limited func() []string // the collections that limit or dedupe now; nil: those that always did
	MinAge  time.Duration   // of a cut-off, where it is more than models.MinReconcileAge
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
}

// Options are what one run is asked for.
type Options struct {
	Repair    bool
	OlderThan time.Duration // 0: models.DefaultReconcileAge
	Inventory string        // the key of a manifest; "": list the bucket
	Most      int64         // removals; 0: DefaultMost
}

func (r *Runner) limited() []string {
	if r.Limited == nil {
		return nil
	}
	return r.Limited()
}

// errLost ends a run that was given up for dead.
var errLost = errors.New("reconcile: the run was given up for dead, and another may be at it")

// Run is one run. The report is of what was found until then, also with an error.
func (r *Runner) Run(ctx context.Context, o Options) (models.ReconcileReport, error) {
	run, err := r.begin(ctx, &o)
	if err != nil {
		return models.ReconcileReport{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go r.live(ctx, run.ID, cancel)

	p := &pass{Runner: r, Options: o, run: run.ID, report: &run.Report, judge: models.Judge{Prefix: r.Prefix, Cutoff: run.Cutoff}}
	err = p.all(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errLost) {
		return run.Report, errLost
	}
	return run.Report, errors.Join(err, r.finish(ctx, run, err))
}

// begin checks what is asked, and takes the store's one place of a running run.
func (r *Runner) begin(ctx context.Context, o *Options) (*models.Reconciliation, error) {
	if o.OlderThan == 0 {
		o.OlderThan = max(models.DefaultReconcileAge, r.MinAge)
	}
	if least := max(models.MinReconcileAge, r.MinAge); o.OlderThan < least {
		return nil, models.Errorf(models.CodeInvalidRequest,
			"older-than: %v is under the minimum of %v: what is just being uploaded would be called an orphan", o.OlderThan, least).
			With("field", "older_than")
	}
	if o.Most == 0 {
		o.Most = DefaultMost
	}
	if o.Repair {
		some, err := r.Records.HasReplicas(ctx, r.Store)
		if err != nil {
			return nil, err
		}
		if !some {
			return nil, models.Errorf(models.CodeInvalidRequest,
				"repair: the database knows nothing of the store %q, so that all in it would be an orphan; is it the right database?", r.Store)
		}
	}
	now := r.utc()
	run := &models.Reconciliation{ID: models.NewRunID(), Store: r.Store, Source: models.SourceListing, Repair: o.Repair,
		State: models.RunRunning, Cutoff: now.Add(-o.OlderThan), StartedAt: now, LeaseUntil: now.Add(lease)}
	if o.Inventory != "" {
		run.Source = models.SourceInventory
	}
	run.Report = models.ReconcileReport{Run: run.ID, Store: run.Store, Source: run.Source, Inventory: o.Inventory, Repair: o.Repair,
		Cutoff: run.Cutoff, StartedAt: now, Findings: map[models.FindingKind]*models.FindingCount{}}
	ok, err := r.Records.BeginReconciliation(ctx, *run)
	if err == nil && !ok {
		err = models.Errorf(models.CodeBusy, "a reconciliation of the store %q is running", r.Store)
	}
	return run, err
}

// live gives signs of life until ctx ends.
func (r *Runner) live(ctx context.Context, id models.RunID, cancel context.CancelCauseFunc) {
	t := time.NewTicker(lease / 5)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if ok, err := r.Records.RenewReconciliation(ctx, id, r.utc().Add(lease)); err == nil && !ok {
			cancel(errLost)
			return
		}
	}
}

// finish stores the outcome, also when the caller wants no more.
func (r *Runner) finish(ctx context.Context, run *models.Reconciliation, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	run.State, run.FinishedAt = models.RunSucceeded, r.utc()
	if err != nil {
		run.State, run.LastError = models.RunFailed, short(err)
	}
	run.Report.Seconds = run.FinishedAt.Sub(run.StartedAt).Seconds()
	r.Metrics.ended(run)
	for kind, c := range run.Report.Findings {
		if kind == models.FindMissingObject || kind == models.FindCorrupt {
			for _, f := range c.Examples {
				r.Log.ErrorContext(ctx, "reconcile: a file's object is not as it should be", "kind", kind, "store", r.Store, "file", f.FileID,
					"file_state", f.FileState, "key", f.Key, "version", f.VersionID, "why", f.Why)
			}
		}
	}
	ok, ferr := r.Records.FinishReconciliation(ctx, *run)
	if ferr == nil && !ok {
		ferr = errLost
	}
	return ferr
}

func (r *Runner) utc() time.Time { return r.Now().UTC().Truncate(time.Microsecond) }

// short is an error's text as it is kept with a run.
func short(err error) string {
	s := err.Error()
	if len(s) > 1000 {
		s = s[:1000]
	}
	return s
}

// pass is the work of one run.
type pass struct {
	*Runner
	Options
	run     models.RunID
	report  *models.ReconcileReport
	judge   models.Judge
	removed int64 // of Most
}

func (p *pass) all(ctx context.Context) error {
	versions := p.Objects.ListVersions(ctx, p.Prefix)
	if p.Inventory != "" {
		var err error
		if versions, p.report.InventoryAt, err = p.Objects.Inventory(ctx, p.Inventory, p.Prefix); err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
	}
	var held []suspicion
	flush := func() error {
		fs, err := p.confirm(ctx, held)
		held = held[:0]
		if err != nil {
			return err
		}
		return p.mend(ctx, fs)
	}
	err := p.walk(p.Records.KnownKeys(ctx, p.Store), versions, p.Objects.ListMultiparts(ctx, p.Prefix), func(s suspicion) error {
		held = append(held, s)
		if len(held) < batch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = p.counters(ctx)
	}
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	return nil
}
