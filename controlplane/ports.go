package controlplane

import (
	"context"
	"iter"
	"time"

	"berth/models"
)

// Records is what the use cases need of the database. Each method is one transaction;
// an ok of false means that a guard said no and nothing was changed.
type Records interface {
	Ping(ctx context.Context) error
	Open(ctx context.Context, o models.Opening) (models.OpenOutcome, models.Upload, models.File, error)
	Import(ctx context.Context, i models.Importing) (models.ImportOutcome, models.File, error)
	TakeKey(ctx context.Context, k models.KeyTaking) (models.KeyOutcome, models.KeptAnswer, error)
	FinishKey(ctx context.Context, k models.KeyTaking, a models.KeptAnswer) (ok bool, err error)
	DropKey(ctx context.Context, k models.KeyTaking) (ok bool, err error)
	Upload(ctx context.Context, w models.Whose, id models.UploadID) (models.Upload, models.File, error)
	UploadOf(ctx context.Context, w models.Whose, stores []models.StoreName, key, s3UploadID string) (models.UploadID, error)
	UploadsAt(ctx context.Context, store models.StoreName, keys []string) (map[string]models.Upload, error)
	KnownAt(ctx context.Context, store models.StoreName, keys []string) (map[string]models.KnownKey, error)
	Begin(ctx context.Context, u models.Upload, s3UploadID string, signedUntil time.Time, actor string, now time.Time) (ok bool, err error)
	Contest(ctx context.Context, id models.UploadID, now time.Time) (ok bool, err error)
	Touch(ctx context.Context, id models.UploadID, seen int, expires, now time.Time) error
	Pins(ctx context.Context, id models.UploadID) ([]models.Pin, error)
	Sign(ctx context.Context, g models.Signing) (conflicts []int, ok bool, err error)
	BeginComplete(ctx context.Context, u models.Upload, lease, now time.Time, actor string) (up models.Upload, ok bool, err error)
	RenewComplete(ctx context.Context, u models.Upload, lease time.Time) (ok bool, err error)
	Yield(ctx context.Context, u models.Upload, why string, expires, now time.Time) (ok bool, err error)
	Attest(ctx context.Context, a models.Attestation) (models.AttestOutcome, error)
	AttestMany(ctx context.Context, as []models.Attestation, now time.Time) (map[models.UploadID]models.AttestOutcome, error)
	PinsOf(ctx context.Context, ids []models.UploadID) (map[models.UploadID][]models.Pin, error)
	Reject(ctx context.Context, r models.Rejection) (ok bool, err error)
	Commit(ctx context.Context, c models.Committing) (ok bool, err error)
	CloseUpload(ctx context.Context, c models.Closing) (ok bool, err error)
	File(ctx context.Context, w models.Whose, id models.FileID) (models.File, error)
	Files(ctx context.Context, q models.FileFilter) ([]models.File, error)
	Readable(ctx context.Context, w models.Whose, id models.FileID) (f models.File, r models.Replica, ok bool, err error)
	History(ctx context.Context, w models.Whose, id models.FileID, cursor string, limit int) ([]models.HistoryEntry, string, error)
	Patch(ctx context.Context, w models.Whose, id models.FileID, p models.FilePatch) (models.File, error)
	Delete(ctx context.Context, w models.Whose, id models.FileID, actor string, now time.Time) (models.File, error)
	SetBlocked(ctx context.Context, tenant models.Tenant, id models.FileID, block bool, reason, actor string, now time.Time) (models.File, error)
	NoteForeign(ctx context.Context, f models.ForeignVersion, now time.Time) error
	EnsureReap(ctx context.Context, id models.ReplicaID, now time.Time) error
	Wait(ctx context.Context, id models.TaskID) (models.StepWait, error)
	Answered(ctx context.Context, id models.TaskID) ([]models.StepSaid, error)
	RecordStep(ctx context.Context, k models.Task, r models.StepResult, chain []string, now time.Time) (models.Verdicted, error)
	Tasks(ctx context.Context, tenant models.Tenant, kind models.TaskKind, state models.TaskState, before models.TaskID, limit int) ([]models.Task, error)
	TaskOf(ctx context.Context, tenant models.Tenant, id models.TaskID) error
	Retry(ctx context.Context, id models.TaskID, actor string, now time.Time) (models.Task, error)
	Events(ctx context.Context, tenant models.Tenant, state models.OutboxState, before models.EventID, limit int) ([]models.Event, error)
	ChangeEvent(ctx context.Context, tenant models.Tenant, id models.EventID, to models.OutboxState, now time.Time) (models.OutboxState, error)
	Overdue(ctx context.Context, now time.Time, limit int) ([]models.Upload, error)
	Quiet(ctx context.Context, quiet time.Duration, now time.Time, limit int) ([]models.Upload, error)
	EnsureReaps(ctx context.Context, now time.Time, limit int) (int, error)
}

// Objects is what the use cases need of one store. Its errors are
// *models.ObjectError.
type Objects interface {
	Bucket() string
	CreateMultipart(ctx context.Context, spec models.ObjectSpec) (s3UploadID string, err error)
	ListParts(ctx context.Context, key, s3UploadID string, alg models.Algorithm) iter.Seq2[models.Part, error]
	CompleteMultipart(ctx context.Context, spec models.CompleteSpec) (models.Object, error)
	AbortMultipart(ctx context.Context, key, s3UploadID string) error
	ListMultiparts(ctx context.Context, prefix string) iter.Seq2[models.OpenMultipart, error]
	ListVersions(ctx context.Context, prefix string) iter.Seq2[models.ObjectVersion, error]
	Head(ctx context.Context, key, versionID string) (models.Object, error)
	PresignParts(ctx context.Context, key, s3UploadID string, parts []models.PartToSign, alg models.Algorithm, expires time.Duration, now time.Time) ([]models.SignedPart, time.Time, error)
	PresignPut(ctx context.Context, spec models.ObjectSpec, size int64, digest []byte, expires time.Duration, now time.Time) (models.SignedPart, time.Time, error)
	PresignPost(ctx context.Context, spec models.ObjectSpec, minSize, maxSize int64, digest []byte, expires time.Duration, now time.Time) (models.SignedForm, time.Time, error)
	PresignGet(ctx context.Context, key, versionID, disposition, contentType string, expires time.Duration, now time.Time) (string, time.Time, error)
}
