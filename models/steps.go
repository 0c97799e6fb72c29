package models

import (
	"strings"
	"time"
)

// StepVerdict is what a step says of a file.
type StepVerdict string

const (
	StepPass   StepVerdict = "pass"
	StepBlock  StepVerdict = "block"  // not readable but by unblocking
	StepDelete StepVerdict = "delete" // not to be kept
)

// StepAnswer is what a step said, or that it will say it later.
type StepAnswer struct {
	Verdict StepVerdict
	Reason  string
	// Later says that the verdict comes by the lease token, within Within.
	Later  bool
	Within time.Duration
}

// StepResult is a recorded verdict.
type StepResult struct {
	Step    int // how many have spoken before it in this round
	Name    string
	Verdict StepVerdict
	Reason  string
}

// StepSaid is a recorded verdict, with the SHA-256 of the lease token that its step was
// called with.
type StepSaid struct {
	Verdict   StepVerdict
	Reason    string
	TokenHash []byte
}

// ProcessView is what a claimed process task works on, read under the locks.
type ProcessView struct {
	Decision Decision
	Why      string // it was refused
	File     File
	Replica  Replica
	Done     []StepResult // of this round, in order
}

// NextStep is the place in the chain of the first step without a verdict; ok is false when
// the chain is through: every step has spoken, or one of them said delete. Steps are known
// by their names: the chain may be another by now than it was when the first one spoke.
func NextStep(done []StepResult, chain []string) (next int, ok bool) {
	spoken := make(map[string]bool, len(done))
	for _, r := range done {
		if r.Verdict == StepDelete {
			return 0, false
		}
		spoken[r.Name] = true
	}
	for i, name := range chain {
		if !spoken[name] {
			return i, true
		}
	}
	return len(chain), false
}

// StepNames are the names of a chain's steps, in order.
func StepNames(chain []Step) []string {
	out := make([]string, len(chain))
	for i, s := range chain {
		out[i] = s.Name
	}
	return out
}

// Conclude is the verdict of a whole chain. They accumulate: the hardest stands, whatever
// came after it.
func Conclude(done []StepResult) StepResult {
	rank := map[StepVerdict]int{StepPass: 0, StepBlock: 1, StepDelete: 2}
	out := StepResult{Verdict: StepPass}
	for _, r := range done {
		if rank[r.Verdict] > rank[out.Verdict] {
			out = r
		}
	}
	return out
}

// StepWait is a step that answers later: fenced by the lease that it was called under.
type StepWait struct {
	Task      Task
	Step      int
	Name      string
	TokenHash []byte // SHA-256 of the lease token
	Until     time.Time
}

// Verdicted is what became of a verdict that was handed in.
type Verdicted string

const (
	VerdictNoted     Verdicted = "noted"     // there are more steps
	VerdictPublished Verdicted = "published" // it was the last: the file moved on
	VerdictStale     Verdicted = "stale"     // the lease is another's by now, or the file moved on
)

// CleanReason is a reason from outside as it is kept: on one line, of at most 300
// characters, without control characters.
func CleanReason(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if len(out) == 300 {
			break
		}
		if r < ' ' || r == 0x7f || r == 0xfffd {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out)
}

// LeaseToken is what a step is given: the task's id and a secret, in one word, so that the
// token says which task it is for wherever it is shown.
func LeaseToken(id TaskID, secret string) string { return string(id) + "." + secret }

// SplitLeaseToken tells the task of a lease token; ok is false for other tokens.
func SplitLeaseToken(token string) (id TaskID, ok bool) {
	task, _, found := strings.Cut(token, ".")
	id, err := ParseTaskID(task)
	return id, found && err == nil
}
