package httpapi

import (
	"context"
	"time"

	"berth/controlplane"
	"berth/models"
)

// Service is the use cases that the API needs. Each decides by the caller's tenant,
// owner and grant; the scope was checked before it is called.
type Service interface {
	Open(ctx context.Context, caller models.Caller, req controlplane.OpenRequest) (controlplane.UploadView, error)
	Upload(ctx context.Context, caller models.Caller, id models.UploadID) (controlplane.UploadView, error)
	Sign(ctx context.Context, caller models.Caller, id models.UploadID, req controlplane.SignRequest) (controlplane.Signed, error)
	Parts(ctx context.Context, caller models.Caller, id models.UploadID) (controlplane.PartList, error)
	Complete(ctx context.Context, caller models.Caller, id models.UploadID, req controlplane.CompleteRequest) (controlplane.UploadView, error)
	Commit(ctx context.Context, caller models.Caller, id models.UploadID, req controlplane.CommitRequest) (models.File, error)
	Abort(ctx context.Context, caller models.Caller, id models.UploadID) (controlplane.UploadView, error)

	TakeKey(ctx context.Context, caller models.Caller, key string, hash []byte) (controlplane.KeyedRequest, *models.KeptAnswer, error)
	FinishKey(ctx context.Context, req controlplane.KeyedRequest, a models.KeptAnswer)
	DropKey(ctx context.Context, req controlplane.KeyedRequest)

	Form(ctx context.Context, caller models.Caller, id models.UploadID) (models.SignedForm, time.Time, error)
	UploadOf(ctx context.Context, caller models.Caller, key, s3UploadID string) (models.UploadID, error)
	Bucket(store models.StoreName) string

	Files(ctx context.Context, caller models.Caller, q controlplane.FileQuery) (controlplane.FilePage, error)
	File(ctx context.Context, caller models.Caller, id models.FileID) (models.File, error)
	History(ctx context.Context, caller models.Caller, id models.FileID, cursor string, limit int) (controlplane.HistoryPage, error)
	ContentURL(ctx context.Context, caller models.Caller, id models.FileID) (controlplane.ReadURL, error)
	Patch(ctx context.Context, caller models.Caller, id models.FileID, req controlplane.PatchRequest) (models.File, error)
	Delete(ctx context.Context, caller models.Caller, id models.FileID) (models.File, error)
	Block(ctx context.Context, caller models.Caller, id models.FileID, reason string) (models.File, error)
	Unblock(ctx context.Context, caller models.Caller, id models.FileID) (models.File, error)

	Tasks(ctx context.Context, caller models.Caller, q controlplane.TaskQuery) (controlplane.TaskPage, error)
	RetryTask(ctx context.Context, caller models.Caller, id models.TaskID) (models.Task, error)
	Events(ctx context.Context, caller models.Caller, state models.OutboxState, cursor string, limit int) (controlplane.EventPage, error)
	RetryEvent(ctx context.Context, caller models.Caller, id models.EventID) error
	CancelEvent(ctx context.Context, caller models.Caller, id models.EventID) error
	Import(ctx context.Context, caller models.Caller, req controlplane.ImportRequest) (f models.File, before bool, err error)
	// LeaseCaller is who shows a lease token.
	LeaseCaller(ctx context.Context, id models.TaskID, token string) (models.Caller, error)
	// StepResult has no caller: the lease token is its credential.
	StepResult(ctx context.Context, id models.TaskID, token string, a models.StepAnswer) error
}

// Authenticator turns a bearer token into its caller. Its error says nothing that a
// stranger may not know and holds nothing of the token.
type Authenticator interface {
	Verify(ctx context.Context, token string) (models.Caller, error)
}

// Notify takes one webhook body of a store and returns when the work that it caused
// is committed. An INVALID_REQUEST means that the body will never be understood;
// every other error passes, and the store is to send it again.
type Notify func(ctx context.Context, store models.StoreName, body []byte) error
