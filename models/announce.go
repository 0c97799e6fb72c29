package models

import "time"

// ReapMessageType is the type of the messages that announce due reap tasks.
const ReapMessageType = "FILE_DELETE"

// ReapMessage announces a due reap task on a queue. It is a wake-up and no right: whoever
// reads it has to claim the task, and the lease decides. Lost, repeated or forged, it
// removes nothing that the task would not remove by itself.
type ReapMessage struct {
	TaskID TaskID
	FileID FileID
}

// ReapAnswer is what is to become of a message about a reap task. Its zero value
// acknowledges the message: the task is done, or nobody's any more.
type ReapAnswer struct {
	// After is how long from now the message is to come again, though nothing is wrong: the
	// task is not due yet, or another's. Zero: not.
	After time.Duration
	// Poison is why nobody will ever be able to do what the message asks; "" if it is fine.
	Poison string
}

// Announcing asks for reap tasks that are due and not announced, or not lately.
type Announcing struct {
	// Again is how long a task may stay due, once announced, before it is announced anew:
	// what a lost message costs.
	Again time.Duration
	// Window is how many of the tasks due longest are looked at. It bounds the pass, and
	// what waits in the queue: more than that need not be announced to keep workers busy.
	Window int
	Limit  int
	Now    time.Time
}
