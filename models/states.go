package models

// UploadState is where one session of sending stands.
type UploadState string

const (
	UploadInit       UploadState = "init"       // quota reserved, nothing known at S3
	UploadUploading  UploadState = "uploading"  // multipart begun, or the single PUT signed
	UploadCompleting UploadState = "completing" // S3's Complete in flight
	UploadCompleted  UploadState = "completed"  // attested, version recorded, not attached
	UploadCommitted  UploadState = "committed"
	UploadRejected   UploadState = "rejected" // verification failed
	UploadAborted    UploadState = "aborted"
	UploadExpired    UploadState = "expired"
)

// FileState is where the record that the user keeps stands. Only active is readable.
type FileState string

const (
	FilePreparing    FileState = "preparing"
	FileProcessing   FileState = "processing"
	FileActive       FileState = "active"
	FileBlocked      FileState = "blocked"
	FileFailed       FileState = "failed"
	FileDeleting     FileState = "deleting"
	FileDeleteFailed FileState = "delete_failed"
	FileDeleted      FileState = "deleted"
)

// ReplicaState is where a file's object in one store stands.
type ReplicaState string

const (
	ReplicaPending       ReplicaState = "pending" // never started
	ReplicaWriting       ReplicaState = "writing"
	ReplicaReady         ReplicaState = "ready"
	ReplicaWriteFailed   ReplicaState = "write_failed"
	ReplicaDeletePending ReplicaState = "delete_pending"
	ReplicaDeleting      ReplicaState = "deleting"
	ReplicaDeleteFailed  ReplicaState = "delete_failed"
	ReplicaDeleted       ReplicaState = "deleted"
)

// TaskState is where one piece of background work stands.
type TaskState string

const (
	TaskPending   TaskState = "pending"
	TaskRunning   TaskState = "running"
	TaskSucceeded TaskState = "succeeded"
	TaskFailed    TaskState = "failed"
	TaskCancelled TaskState = "cancelled"
)

// TaskKind is what a task does.
type TaskKind string

const (
	TaskReplicate TaskKind = "replicate"
	TaskProcess   TaskKind = "process"
	TaskReap      TaskKind = "reap"
)

// TaskKinds are all of them.
var TaskKinds = []TaskKind{TaskReplicate, TaskProcess, TaskReap}

// OutboxState is where an event for others stands.
type OutboxState string

const (
	OutboxPending   OutboxState = "pending"
	OutboxSent      OutboxState = "sent"
	OutboxFailed    OutboxState = "failed"
	OutboxCancelled OutboxState = "cancelled"
)

// EventType names something that happened, told to others at least once.
type EventType string

const (
	EventFileActive    EventType = "file.active"
	EventFileBlocked   EventType = "file.blocked"
	EventFileUnblocked EventType = "file.unblocked"
	EventFileFailed    EventType = "file.failed"
	EventFileDeleted   EventType = "file.deleted"
)

// Method is how the bytes travel.
type Method string

const (
	MethodSingle    Method = "single"
	MethodMultipart Method = "multipart"
)

// CommitMode says whether a verified upload becomes a file by itself.
type CommitMode string

const (
	CommitAuto     CommitMode = "auto"
	CommitDeferred CommitMode = "deferred"
)

// DedupeMode says what a second file of the same identity meets.
type DedupeMode string

const (
	DedupeNone   DedupeMode = "none"
	DedupeReject DedupeMode = "reject"
	DedupeReuse  DedupeMode = "reuse"
)
