package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"berth/models"
)

// BeginReconciliation takes the one place of a running reconciliation of a store. A run
// whose lease is dead is marked failed first. ok is false when another runs.
func (s *Store) BeginReconciliation(ctx context.Context, r models.Reconciliation) (ok bool, err error) {
	err = s.within(ctx, "begin reconciliation", func(t tx) error {
		var dead []struct{ ID string }
		if _, err := t.read(&dead, `UPDATE reconciliations SET state = 'failed', last_error = 'died: its lease ran out', finished_at = @now, lease_until = NULL
			WHERE store = @store AND state = 'running' AND lease_until <= @now RETURNING id`, args{"store": r.Store, "now": r.StartedAt}); err != nil {
			return err
		}
		ok, err = t.one(`INSERT INTO reconciliations (id, store, source, repair, state, cutoff, started_at, lease_until)
			VALUES (@id, @store, @source, @repair, 'running', @cutoff, @now, @until)
			ON CONFLICT (store) WHERE state = 'running' DO NOTHING`,
			args{"id": r.ID, "store": r.Store, "source": r.Source, "repair": r.Repair, "cutoff": r.Cutoff, "now": r.StartedAt,
				"until": r.LeaseUntil})
		return err
	})
	return ok, err
}

// RenewReconciliation prolongs a run's lease and keeps what it has found so far. ok is
// false when the run was given up for dead.
func (s *Store) RenewReconciliation(ctx context.Context, id models.RunID, until time.Time) (ok bool, err error) {
	ok, err = s.alone(ctx).one(`UPDATE reconciliations SET lease_until = @until WHERE id = @id AND state = 'running'`,
		args{"id": id, "until": until})
	return ok, wrap("renew reconciliation", err)
}

// FinishReconciliation ends a run with its report. ok is false when the run was given up
// for dead before.
func (s *Store) FinishReconciliation(ctx context.Context, r models.Reconciliation) (ok bool, err error) {
	report, err := json.Marshal(r.Report)
	if err != nil {
		return false, fmt.Errorf("store: finish reconciliation: %w", err)
	}
	ok, err = s.alone(ctx).one(`UPDATE reconciliations SET state = @to, report = CAST(@report AS jsonb), last_error = @error, finished_at = @now, lease_until = NULL
		WHERE id = @id AND state = 'running'`,
		args{"id": r.ID, "to": r.State, "report": string(report), "error": null(r.LastError), "now": r.FinishedAt})
	return ok, wrap("finish reconciliation", err)
}

// Reconciliations lists the runs of a store ("" for all), newest first; before is
// exclusive, "" begins at the newest.
func (s *Store) Reconciliations(ctx context.Context, store models.StoreName, before models.RunID, limit int) ([]models.Reconciliation, error) {
	var rows []struct {
		ID, Store, Source      string
		Repair                 bool
		State                  string
		Cutoff                 time.Time
		Report                 []byte
		LastError              string
		StartedAt              time.Time
		FinishedAt, LeaseUntil *time.Time
	}
	if _, err := s.alone(ctx).read(&rows, `SELECT id, store, source, repair, state, cutoff, report, COALESCE(last_error, '') AS last_error,
			started_at, finished_at, lease_until
		FROM reconciliations WHERE (@store = '' OR store = @store) AND (@before = '' OR id < @before) ORDER BY started_at DESC, id DESC LIMIT @limit`,
		args{"store": store, "before": before, "limit": limit}); err != nil {
		return nil, wrap("reconciliations", err)
	}
	out := make([]models.Reconciliation, len(rows))
	for i, r := range rows {
		out[i] = models.Reconciliation{ID: models.RunID(r.ID), Store: models.StoreName(r.Store), Source: models.ReconcileSource(r.Source),
			Repair: r.Repair, State: models.RunState(r.State), Cutoff: r.Cutoff.UTC(), LastError: r.LastError,
			StartedAt: r.StartedAt.UTC(), FinishedAt: timeOf(r.FinishedAt), LeaseUntil: timeOf(r.LeaseUntil)}
		if err := json.Unmarshal(r.Report, &out[i].Report); err != nil {
			return nil, fmt.Errorf("store: reconciliations: report of %s: %w", r.ID, err)
		}
	}
	return out, nil
}

// HasReplicas tells whether any row is of a store.
func (s *Store) HasReplicas(ctx context.Context, store models.StoreName) (bool, error) {
	var row struct{ Any bool }
	_, err := s.alone(ctx).read(&row, `SELECT EXISTS (SELECT 1 FROM replicas WHERE store = @store) AS any`, args{"store": store})
	return row.Any, wrap("replicas of a store", err)
}
