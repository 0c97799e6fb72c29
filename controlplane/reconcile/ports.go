package reconcile

import (
	"context"
	"iter"
	"time"

	"berth/models"
)

// Records is what reconcile needs of the database.
type Records interface {
	BeginReconciliation(ctx context.Context, r models.Reconciliation) (ok bool, err error)
	RenewReconciliation(ctx context.Context, id models.RunID, until time.Time) (ok bool, err error)
	FinishReconciliation(ctx context.Context, r models.Reconciliation) (ok bool, err error)
	Reconciliations(ctx context.Context, store models.StoreName, before models.RunID, limit int) ([]models.Reconciliation, error)
	HasReplicas(ctx context.Context, store models.StoreName) (bool, error)

	KnownKeys(ctx context.Context, store models.StoreName) iter.Seq2[models.KnownKey, error]
	KnownAt(ctx context.Context, store models.StoreName, keys []string) (map[string]models.KnownKey, error)

	Condemn(ctx context.Context, run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) (places []int, err error)
	Removed(ctx context.Context, run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) error
	Spare(ctx context.Context, run models.RunID, store models.StoreName, fs []models.Finding, now time.Time) error
	NoteForeign(ctx context.Context, f models.ForeignVersion, now time.Time) error
	EnsureReap(ctx context.Context, id models.ReplicaID, now time.Time) error

	Drift(ctx context.Context, store models.StoreName, limited []string, after models.Drift, rows int) (found []models.Drift, next models.Drift, more bool, err error)
	MendDrift(ctx context.Context, d models.Drift, limited []string) (found models.Drift, ok bool, err error)
}

// Objects is what reconcile needs of a store. Listings are in the order of the keys'
// bytes, and of one key the newest version first.
type Objects interface {
	ListVersions(ctx context.Context, prefix string) iter.Seq2[models.ObjectVersion, error]
	ListMultiparts(ctx context.Context, prefix string) iter.Seq2[models.OpenMultipart, error]
	Inventory(ctx context.Context, manifest, prefix string) (versions iter.Seq2[models.ObjectVersion, error], at time.Time, err error)
	Head(ctx context.Context, key, versionID string) (models.Object, error)
	DeleteVersions(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error)
	AbortMultipart(ctx context.Context, key, s3UploadID string) error
}
