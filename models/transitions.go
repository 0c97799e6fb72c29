package models

import "slices"

// Machine is a transition table: from each state, the states it may become.
// STATES.md draws them and the schema's CHECK constraints list their states;
// tests hold all three against each other.
type Machine[S ~string] struct {
	Name string
	// Initial are the states a row may be inserted in.
	Initial []S
	// Next lists every state, ends included (with no successor).
	Next map[S][]S
}

// May tells whether a row in state from may become to.
func (m Machine[S]) May(from, to S) bool {
	for _, s := range m.Next[from] {
		if s == to {
			return true
		}
	}
	return false
}

// From returns the states that may become to, sorted: what a
// guarded UPDATE to that state names in its WHERE.
func (m Machine[S]) From(to S) []S {
	var out []S
	for from := range m.Next {
		if m.May(from, to) {
			out = append(out, from)
		}
	}
	slices.Sort(out)
	return out
}

// Ends tells whether nothing follows a state.
func (m Machine[S]) Ends(s S) bool {
	next, known := m.Next[s]
	return known && len(next) == 0
}

// Uploads is the upload's machine. A single PUT starts in uploading (its URL is
// signed in the answer to open) and has no completing; a multipart whose Complete
// was answered ambiguously can be attested from uploading too. completing →
// completing is a take-over of a dead lease.
var Uploads = Machine[UploadState]{
	Name:    "upload",
	Initial: []UploadState{UploadInit, UploadUploading},
	Next: map[UploadState][]UploadState{
		UploadInit:       {UploadUploading, UploadAborted, UploadExpired},
		UploadUploading:  {UploadCompleting, UploadCompleted, UploadRejected, UploadAborted, UploadExpired},
		UploadCompleting: {UploadCompleting, UploadUploading, UploadCompleted, UploadRejected, UploadExpired},
		UploadCompleted:  {UploadCommitted, UploadAborted, UploadExpired},
		UploadCommitted:  {},
		UploadRejected:   {},
		UploadAborted:    {},
		UploadExpired:    {},
	},
}

// Files is the file's machine. A file that a step blocks goes from processing to
// blocked and never looks active; it becomes active, with its one event, if it is
// unblocked.
var Files = Machine[FileState]{
	Name:    "file",
	Initial: []FileState{FilePreparing, FileActive}, // active: an import, after a HEAD
	Next: map[FileState][]FileState{
		FilePreparing:    {FileProcessing, FileActive, FileFailed},
		FileProcessing:   {FileActive, FileBlocked, FileFailed},
		FileActive:       {FileBlocked, FileDeleting},
		FileBlocked:      {FileActive, FileDeleting},
		FileFailed:       {FileDeleting},
		FileDeleting:     {FileDeleted, FileDeleteFailed},
		FileDeleteFailed: {FileDeleting},
		FileDeleted:      {},
	},
}

// Replicas is the replica's machine. A primary replica starts in writing: from the
// commit of open on, a multipart may exist, so it must be looked for. Only a
// never-started pending may go straight to deleted. deleting returns to
// delete_pending when a signed URL still lives and the key must be swept again.
var Replicas = Machine[ReplicaState]{
	Name:    "replica",
	Initial: []ReplicaState{ReplicaPending, ReplicaWriting, ReplicaReady}, // ready: an import
	Next: map[ReplicaState][]ReplicaState{
		ReplicaPending:       {ReplicaWriting, ReplicaDeleted},
		ReplicaWriting:       {ReplicaReady, ReplicaWriteFailed},
		ReplicaReady:         {ReplicaDeletePending},
		ReplicaWriteFailed:   {ReplicaWriting, ReplicaDeletePending},
		ReplicaDeletePending: {ReplicaDeleting},
		ReplicaDeleting:      {ReplicaDeleted, ReplicaDeleteFailed, ReplicaDeletePending},
		ReplicaDeleteFailed:  {ReplicaDeletePending, ReplicaDeleted}, // deleted: terminated by hand
		ReplicaDeleted:       {},
	},
}

// Tasks is the task's machine. running → running is a take-over of a dead lease;
// running → pending is a retry or a postponement; failed → pending a manual retry.
var Tasks = Machine[TaskState]{
	Name:    "task",
	Initial: []TaskState{TaskPending},
	Next: map[TaskState][]TaskState{
		TaskPending:   {TaskRunning, TaskCancelled},
		TaskRunning:   {TaskRunning, TaskPending, TaskSucceeded, TaskFailed, TaskCancelled},
		TaskFailed:    {TaskPending, TaskCancelled},
		TaskSucceeded: {},
		TaskCancelled: {},
	},
}

// Outbox is the outbox event's machine. failed → pending is a manual retry.
var Outbox = Machine[OutboxState]{
	Name:    "outbox",
	Initial: []OutboxState{OutboxPending},
	Next: map[OutboxState][]OutboxState{
		OutboxPending:   {OutboxSent, OutboxFailed, OutboxCancelled},
		OutboxFailed:    {OutboxPending, OutboxCancelled},
		OutboxSent:      {},
		OutboxCancelled: {},
	},
}
