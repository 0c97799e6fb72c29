package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/client/wire"
	"berth/models"
)

// transfer sends and completes until the server has nothing more to ask for.
func (j *job) transfer(ctx context.Context, todo []int) error {
	defer j.release()
	j.signer = &signer{c: j.c, ctx: ctx, upload: j.up.ID}
	for round := 1; ; round++ {
		err := j.sendAll(ctx, todo)
		if errors.Is(err, errVanished) {
			err = nil // ended, or completed by another: completing tells which
		}
		if err != nil {
			return err
		}
		if err := j.src.verify(); err != nil {
			return err
		}
		up, err := j.complete(ctx)
		if err == nil {
			j.up = up
			return nil
		}
		var e *Error
		if !errors.As(err, &e) || round >= mendRounds {
			return err
		}
		if todo = j.toMend(ctx, e); len(todo) == 0 {
			return err
		}
		if !j.src.again() && j.held == nil {
			return fmt.Errorf("%w: and a stream cannot be read again", err)
		}
		j.note("the server asks for %d of %d parts again: %s", len(todo), j.geo.PartCount, e.Code)
		for _, n := range todo {
			j.first = nil
			if j.o.Moved != nil {
				j.o.Moved(-j.geo.PartLength(j.src.size, n))
			}
		}
		if err := sleep(ctx, j.c.retry.wait(round, 0)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// toMend is which parts an answer to complete asks for again.
func (j *job) toMend(ctx context.Context, e *Error) []int {
	switch e.Code {
	case models.CodeMissingParts, models.CodePartCorrupt:
	case models.CodeSizeMismatch:
		if j.geo.Method == models.MethodSingle {
			return nil
		}
	default:
		return nil
	}
	// The answer names a bounded number of parts; count says how many there are.
	todo := e.partNumbers(j.geo.PartCount, "parts")
	var count int
	_ = json.Unmarshal(e.Details["count"], &count)
	if len(todo) > 0 && len(todo) >= count {
		return todo
	}
	skipped := j.skipped
	lacks, err := j.missing(ctx, false)
	j.skipped = skipped // of the beginning
	if err != nil {
		return todo
	}
	todo = append(todo, lacks...)
	slices.Sort(todo)
	return slices.Compact(todo)
}

// complete says that all is sent, and returns the upload once it is completed or
// committed. An answer that was lost is asked for again: what the upload came to is the
// answer, so that no key has to keep it.
func (j *job) complete(ctx context.Context) (*wire.Upload, error) {
	up, err := j.c.complete(ctx, j.up.ID, j.completeRequest(), "")
	for n := 1; ; n++ {
		switch Code(err) {
		case "":
			if err != nil {
				return nil, err
			}
		case models.CodeSessionClosed, models.CodeBusy, models.CodeNotReady, models.CodeIdempotencyInProgress:
			if up, err = j.c.Upload(ctx, j.up.ID); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
		switch models.UploadState(up.State) {
		case models.UploadCommitted, models.UploadCompleted:
			return up, nil
		case models.UploadCompleting:
			if err := sleep(ctx, pollWait(n)); err != nil {
				return nil, context.Cause(ctx)
			}
			up, err = j.c.Upload(ctx, j.up.ID)
		case models.UploadInit, models.UploadUploading:
			// The attempt of somebody else was given up: ours now.
			if n > mendRounds {
				return nil, &StateError{up.ID, up.State, up.Reason}
			}
			if err := sleep(ctx, pollWait(n)); err != nil {
				return nil, context.Cause(ctx)
			}
			up, err = j.c.complete(ctx, j.up.ID, j.completeRequest(), "")
		default:
			return nil, &StateError{up.ID, up.State, up.Reason}
		}
	}
}

func (j *job) completeRequest() wire.CompleteRequest {
	lengths := make([]int64, len(j.digests))
	for i := range lengths {
		lengths[i] = j.geo.PartLength(j.src.size, i+1)
	}
	c, ok := whole(j.alg, j.typ, j.digests, lengths)
	if !ok {
		return wire.CompleteRequest{}
	}
	return wire.CompleteRequest{Checksum: &wire.Checksum{Algorithm: string(c.Algorithm), Type: string(c.Type), Value: c.Value}}
}

// pollWait grows from 50 ms to 2 s.
func pollWait(n int) time.Duration {
	return min(2*time.Second, 50*time.Millisecond<<min(n-1, 10))
}

// await returns the file once it is active; nil if its commit is deferred.
func (j *job) await(ctx context.Context) (*wire.File, error) {
	if models.UploadState(j.up.State) == models.UploadCompleted {
		return nil, nil
	}
	wait := j.o.Wait
	if wait <= 0 {
		wait = DefaultWait
	}
	deadline := time.Now().Add(wait)
	f := j.up.File
	for n := 1; ; n++ {
		if f != nil {
			switch models.FileState(f.State) {
			case models.FileActive:
				j.up.File = f
				return f, nil
			case models.FilePreparing, models.FileProcessing:
			default:
				return nil, &StateError{f.ID, f.State, f.Reason}
			}
			if time.Now().After(deadline) {
				j.state.remove() // nothing more is to be sent
				return nil, fmt.Errorf("%w: %s is %s after %v", ErrNotActive, f.ID, f.State, wait)
			}
			if err := sleep(ctx, pollWait(n)); err != nil {
				return nil, context.Cause(ctx)
			}
		}
		var err error
		if f, err = j.c.File(ctx, j.up.FileID); err != nil {
			return nil, err
		}
	}
}

// leave decides what an upload that failed here leaves at the server: nothing, if
// no later run could go on with it.
func (j *job) leave(ctx context.Context, err error) {
	cancelled := ctx.Err() != nil
	changed := errors.Is(err, ErrChanged)
	var ended *StateError
	switch {
	case errors.Is(err, ErrNotActive) || errors.As(err, &ended):
		j.state.remove() // it has ended by itself
	case cancelled && !j.o.AbortOnCancel && j.src.again():
		// Kept until its deadline: only who asks for it throws work away.
	case !cancelled && !changed && j.state != nil:
		// A later run goes on.
	case j.resumed && changed:
		// Nobody asked for the earlier work to be thrown away.
	default:
		if open(j.up.State) {
			j.abort(ctx, j.up.ID)
			j.state.remove()
		}
	}
}

func open(state string) bool {
	s := models.UploadState(state)
	return s == models.UploadInit || s == models.UploadUploading
}

// abortTimeout bounds the good manners of a client that is on its way out.
const abortTimeout = 10 * time.Second

func (j *job) abort(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if _, err := j.c.Abort(ctx, id); err != nil && Code(err) != models.CodeNotFound && Code(err) != models.CodeSessionClosed && Code(err) != models.CodeSessionExpired {
		j.note("the upload %s could not be aborted and stays until its deadline: %v", id, err)
	}
}
