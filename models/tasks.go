package models

import (
	"math/rand/v2"
	"time"
)

// Claiming asks for tasks of one kind.
type Claiming struct {
	Kind  TaskKind
	Task  TaskID // only this one, if it may be claimed; "": any
	Owner string // of the lease: names one worker process
	Until time.Time
	Limit int
	Now   time.Time
}

// Decision is what a worker may do with a task that it has claimed, once it has looked
// again under the locks: the world may have moved since the task was made.
type Decision string

const (
	Allowed   Decision = "allowed"
	Ignored   Decision = "ignored"   // nothing to do, or the thing is still needed
	Postponed Decision = "postponed" // not yet
	Refused   Decision = "refused"   // only by hand
	LeaseLost Decision = "lease_lost"
)

// ReapPlan is what a reap task may remove, decided under the locks.
type ReapPlan struct {
	Decision Decision
	At       time.Time // when to look again, if postponed
	Why      string

	Replica Replica
	FileID  FileID
	// Keep is the version that must stay; "" removes all of the key.
	Keep string
	// Foreign are the noted versions that this sweep is to end. One that is noted while it
	// runs may have come after the key was listed: it needs another.
	Foreign []string
	// S3UploadID is the multipart upload that is known, "" if none.
	S3UploadID string
	// SweepAgain is when the key must be looked at once more before the replica counts as
	// deleted: a signed URL, or a call that was in flight, may still land. Zero: never.
	SweepAgain time.Time
}

// ReapView is what DecideReap looks at: the rows as they stand under the locks.
type ReapView struct {
	File    File
	Replica Replica
	Upload  *Upload // of a primary replica; nil for an import and for secondary replicas
	Grace   time.Duration
	Manual  bool
	// Detached says that the replica was forgotten on purpose: what lies there stays.
	Detached bool
}

// DecideReap is the reference check (F1, F2): what a living file references stays,
// whatever the task says; what an open session may still become stays until the session
// is closed; the rest goes.
func DecideReap(v ReapView, now time.Time) ReapPlan {
	p := ReapPlan{Replica: v.Replica, FileID: v.File.ID}
	decide := func(d Decision, why string) ReapPlan {
		p.Decision, p.Why = d, why
		return p
	}
	if u := v.Upload; u != nil && u.Open() {
		p.At = u.ExpiresAt.Add(v.Grace)
		if !now.Before(p.At) {
			p.At = now.Add(time.Minute) // repair is about to close it
		}
		return decide(Postponed, "the upload is open")
	}
	switch v.Replica.State {
	case ReplicaDeleted:
		if v.Detached {
			return decide(Ignored, "the replica was detached")
		}
		return decide(Allowed, "something was heard of the key after its deletion")
	case ReplicaReady:
		if v.Replica.VersionID == "" {
			return decide(Refused, "the recorded version is not known")
		}
		p.Keep = v.Replica.VersionID
		return decide(Allowed, "only versions that are not the recorded one")
	case ReplicaDeleteFailed:
		if !v.Manual {
			return decide(Refused, "the last deletion failed: by hand only")
		}
	case ReplicaDeletePending, ReplicaDeleting:
	default:
		p.At = now.Add(time.Minute)
		return decide(Postponed, "the replica is "+string(v.Replica.State))
	}
	switch v.File.State {
	case FileFailed, FileDeleting, FileDeleteFailed, FileDeleted:
	case FilePreparing, FileProcessing, FileActive, FileBlocked:
		if v.Replica.Primary {
			return decide(Refused, "a living file has it as its primary replica")
		}
	}
	if u := v.Upload; u != nil {
		p.S3UploadID = u.S3UploadID
		if u.State != UploadCommitted {
			// A Create or Complete that was in flight when the session was closed may land late.
			p.SweepAgain = u.ClosedAt.Add(v.Grace)
		}
		if late := u.SignedUntil.Add(v.Grace); u.Method == MethodSingle && !u.SignedUntil.IsZero() && late.After(p.SweepAgain) {
			p.SweepAgain = late
		}
		if !p.SweepAgain.After(now) {
			p.SweepAgain = time.Time{}
		}
	}
	return decide(Allowed, "nothing references it")
}

// Backoff is how long to wait after the nth failed attempt (from 1): 2^n seconds, at
// most an hour, with up to a quarter of jitter either way, so that what failed together
// does not come back together.
func Backoff(n int) time.Duration {
	const most = time.Hour
	d := most
	if n < 12 {
		d = min(time.Second<<max(n, 0), most)
	}
	return d - d/4 + rand.N(d/2) // #nosec G404 -- jitter
}

// TaskResult is how an attempt ended.
type TaskResult struct {
	To      TaskState // succeeded, pending (again at RunAt), or failed
	RunAt   time.Time
	Err     string // what went wrong; "" if nothing did
	Counted bool   // pending without Counted takes the attempt back: it was only not yet
}

// AfterFailure decides whether a failed attempt is tried again. A manual retry stops
// after its one attempt.
func AfterFailure(t Task, err string, now time.Time) TaskResult {
	if t.Manual || t.Attempts >= t.MaxAttempts {
		return TaskResult{To: TaskFailed, Err: err, Counted: true}
	}
	return TaskResult{To: TaskPending, RunAt: now.Add(Backoff(t.Attempts)), Err: err, Counted: true}
}

// ReapOutcome is what a reaper did at the store.
type ReapOutcome struct {
	Versions  int   // versions and markers deleted
	Bytes     int64 // of them
	Multipart int   // multipart uploads aborted
	// Failure is why the key is not clean: "" if it is.
	Failure string
	// Final says that trying again by itself is no use: a lock, or a refusal.
	Final bool
}

// TaskStats is a kind and state of tasks, counted.
type TaskStats struct {
	Kind   TaskKind
	State  TaskState
	Count  int64
	Oldest time.Time // run_at of the oldest pending, lease end of the oldest running
}

// SweepCounts is what one pass of repair did.
type SweepCounts struct {
	Expired   int // sessions closed at their end
	Finished  int // sessions whose bytes were there and were taken
	Rechecked int // quiet sessions looked at
	Returned  int // completings whose attempt died, given back to the client
	Ensured   int // reap tasks that were missing
}
