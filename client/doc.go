// Package client is the Go SDK: every route that a user of Berth needs, and Put
// and Get, which move a whole file with all of its retries.
//
// It owns what a client must do that the server cannot do for it: read each byte
// once, hash it, have it signed for, send it straight to S3, mend what went wrong,
// go on after a kill, and check what comes back. It imports client/wire, models
// (checksums and limits), the standard library and three small libraries; nothing of the server.
//
// # Memory
//
// A part is read into memory once, hashed there and sent from there, so that a
// retry needs no second read and what was hashed is what is sent. All transfers of
// one Client share a budget of bytes (WithMemory, 5 × 16 MiB by default): a part
// waits until it fits. A part larger than the budget is sent alone.
//
// # What is retried
//
// Network faults, 429, 5xx and BUSY, by capped exponential backoff with full jitter, with
// Retry-After honoured. Every other 4xx is final, but for those that a client can
// mend: an expired URL is signed anew, bytes that were damaged on the way are sent
// again, parts that the server misses or finds corrupt are sent again. Requests that
// change something carry one Idempotency-Key per logical operation, kept across its
// retries; but for the complete of a Put, whose repetition tells what the upload came to.
package client
