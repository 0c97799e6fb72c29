package controlplane

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"berth/models"
)

const (
	// idempotencyTTL is how long an Idempotency-Key stands for its answer.
	idempotencyTTL = 24 * time.Hour
	// keyLease is how long a request is believed to run before its repetition may run too.
	// It is shorter than the longest Complete: what takes a key bears being run twice, and a
	// process that died must not keep its clients waiting for longer than they try.
	keyLease = 10 * time.Second
	// keyWait bounds what is written of a key after its request is over.
	keyWait = 5 * time.Second
)

// KeyedRequest is a request that has taken its Idempotency-Key. It must be ended by
// FinishKey or DropKey; if it is not, its lease ends.
type KeyedRequest struct{ taking models.KeyTaking }

// TakeKey takes an Idempotency-Key for a request that bears being run again. kept is the
// answer that it has got already; then there is nothing to run, and nothing was taken.
// hash is of what is asked for; what a grant lets its bearer see is added to it, so that
// nobody gets the answer to what is beyond its own.
//
// Open does not come here: it stores its key with its upload, in one transaction.
//
// Codes: IDEMPOTENCY_CONFLICT, IDEMPOTENCY_IN_PROGRESS.
func (s *Service) TakeKey(ctx context.Context, c models.Caller, key string, hash []byte) (req KeyedRequest, kept *models.KeptAnswer, err error) {
	now := s.utc()
	req.taking = models.KeyTaking{Tenant: c.Tenant, Owner: c.Owner, Key: key, Hash: withReach(hash, c.Grant),
		Lease: now.Add(keyLease), Expires: now.Add(idempotencyTTL), Now: now}
	outcome, answer, err := s.records.TakeKey(ctx, req.taking)
	switch {
	case err != nil:
		return req, nil, err
	case outcome == models.KeyTaken:
		return req, nil, nil
	case outcome == models.KeyAnswered:
		return req, &answer, nil
	case outcome == models.KeyRunning:
		return req, nil, errKeyRunning.With("retry_after", half(answer.RunsUntil.Sub(now)))
	}
	return req, nil, errKeyConflict
}

// half is half of a time in whole seconds, at least one: who waits so each time meets the
// end of a lease in a few attempts, and does not wait all of it for one that ends early.
func half(left time.Duration) int { return max(1, int((left/2+time.Second-1)/time.Second)) }

var (
	errKeyRunning  = models.Errorf(models.CodeIdempotencyInProgress, "the first request with this key is still running")
	errKeyConflict = models.Errorf(models.CodeIdempotencyConflict, "the Idempotency-Key was used for another request")
)

// withReach is the hash of a request together with which uploads and files its caller's
// grant reaches. Two grants that reach the same, as one and its renewal do, hash alike.
func withReach(hash []byte, g *models.Grant) []byte {
	if g == nil {
		return hash
	}
	h := sha256.New()
	h.Write(hash)
	parent := models.FileID("")
	if g.Derive != nil {
		parent = g.Derive.Parent
	}
	fmt.Fprintf(h, "%q %q %q", g.Collection, g.Upload, parent)
	return h.Sum(nil)
}

// FinishKey keeps the answer, before it is given: who does not hear it and asks again
// gets this one. If it cannot be kept the repetition runs again.
func (s *Service) FinishKey(ctx context.Context, req KeyedRequest, a models.KeptAnswer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keyWait)
	defer cancel()
	if a.Body == nil {
		a.Body = []byte{}
	}
	if _, err := s.records.FinishKey(ctx, req.taking, a); err != nil {
		s.log.WarnContext(ctx, "the answer to an idempotency key was not kept; its repetition runs again", "err", err)
	}
}

// DropKey gives a key back whose request came to nothing that is worth keeping.
func (s *Service) DropKey(ctx context.Context, req KeyedRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keyWait)
	defer cancel()
	if _, err := s.records.DropKey(ctx, req.taking); err != nil {
		s.log.WarnContext(ctx, "an idempotency key was not given back; its lease ends by itself", "err", err)
	}
}
