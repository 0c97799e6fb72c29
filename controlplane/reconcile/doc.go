// Package reconcile compares what the rows say with what a store holds, three ways:
// rows, object versions with their delete markers, open multipart uploads. It reports
// what does not agree and, asked to, mends it.
//
// All three are read as streams in the order of the keys' bytes and walked side by side,
// so that memory does not grow with the bucket. What the walk finds is a suspicion only:
// rows and store move while they are read, and an inventory is a day old. Each suspicion
// is looked at again, in small batches, against the rows and the store as they are now;
// only then is it a finding. Before anything is removed the reference check runs once
// more, in the transaction that notes the removal (Records.Condemn). What is younger than
// the cut-off by the store's own clock is never called left behind, and the cut-off has a
// floor that nobody can lower.
//
// A run holds a lease. One that dies leaves its row and what it had done; the next run
// marks it failed and begins again: every step can be repeated.
//
// It imports models only, and declares what it needs.
package reconcile
