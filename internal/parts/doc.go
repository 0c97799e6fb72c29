// Package parts starts and stops the real programs that Berth stands on, for
// the tests and for the local cloud: PostgreSQL, versitygw as S3, kumo as SQS,
// and the bridge that carries versitygw's notifications into a queue.
//
// It owns how each part is found, configured, awaited and ended; it knows
// nothing of Berth itself and imports no other room. Only cmd/berthdev and
// internal/testkit may import it.
//
// # A child never outlives its parent
//
// Every child is started from a goroutine that is locked to its OS thread and
// stays there until the child has ended, with PR_SET_PDEATHSIG set. Linux sends
// that signal when the *thread* that forked the child ends, not the process, so
// without the lock the runtime could retire the thread and kill a healthy child.
// With it, a child ends when the parent ends, also by SIGKILL. Elsewhere than on
// Linux a killed parent leaves its children, and only Stop ends them.
//
// # Order
//
// SQS, then the bridge, then S3: versitygw posts a test event when it starts and
// exits if nobody answers.
package parts
