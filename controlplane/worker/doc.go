// Package worker owns the loops in the background, one file and one RunOnce each: reap,
// repair, process, publish. A loop wakes when it is told that work is due, when the next due time comes, or
// at a slow tick; RunOnce does one batch and returns counts, so that tests and hands run
// the same code.
//
// It declares the methods that it needs of the database and of the stores, and imports
// models only.
package worker
