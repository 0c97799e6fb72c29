package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth/models"

	"golang.org/x/sync/errgroup"
)

// sendAll sends the parts, several at a time, each read once.
func (j *job) sendAll(ctx context.Context, todo []int) error {
	if len(todo) == 0 {
		return nil
	}
	if j.held != nil {
		return j.sendPart(ctx, 1, *j.held)
	}
	g, ctx := errgroup.WithContext(ctx)
	var next sync.Mutex // a stream is read by one at a time, in order
	take := func() (n int, buf *[]byte, err error) {
		next.Lock()
		defer next.Unlock()
		if len(todo) == 0 || ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
		n, todo = todo[0], todo[1:]
		if buf, err = j.c.borrow(ctx, j.geo.PartLength(j.src.size, n)); err != nil {
			return 0, nil, err
		}
		if !j.src.again() {
			if err = j.src.read(*buf, 0); err != nil {
				j.c.giveBack(buf)
			}
		}
		return n, buf, err
	}
	one := func() (more bool, err error) {
		n, buf, err := take()
		if n == 0 || err != nil {
			return false, err
		}
		defer j.c.giveBack(buf)
		if j.src.again() {
			if err := j.src.read(*buf, int64(n-1)*j.geo.PartSize); err != nil {
				return false, err
			}
		}
		return true, j.sendPart(ctx, n, *buf)
	}
	for range min(j.c.parallel, len(todo)) {
		g.Go(func() error {
			for {
				if more, err := one(); !more || err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// errVanished: S3 knows no such multipart upload any more.
var errVanished = errors.New("the session is gone at S3")

// sendPart hashes a part and sends it until S3 has it.
func (j *job) sendPart(ctx context.Context, n int, buf []byte) error {
	digest := j.heldSum
	if digest == nil {
		digest = sum(j.alg, buf)
	}
	if before := j.digests[n-1]; before != nil && !bytes.Equal(before, digest) {
		return fmt.Errorf("%w while it was sent: part %d has other bytes than before", ErrChanged, n)
	}
	j.digests[n-1] = digest
	checksum := encode(digest)

	url, refusals := j.first, 0
	for attempt := 1; ; attempt++ {
		if url == nil || !url.fresh(time.Now()) {
			var err error
			url, err = j.signer.sign(ctx, n, checksum)
			if err != nil {
				return signFault(n, err)
			}
		}
		after, err := j.c.putPart(ctx, url.part, buf, j.moved)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if isFinal(err) {
			return err
		}
		switch remedyOf(err) {
		case there:
			if j.geo.Method == models.MethodSingle {
				j.moved(int64(len(buf))) // it is there: completing compares it
				return nil
			}
			return err
		case vanished:
			if j.geo.Method == models.MethodMultipart {
				return errVanished
			}
			return err
		case resign:
			// An expired URL costs one more signature; one that is refused while it
			// should be good is asked for once more, and then the refusal stands.
			if !url.expired(time.Now()) {
				if refusals++; refusals > 1 {
					return err
				}
			}
			url = nil
			if attempt >= j.c.retry.Attempts {
				return err
			}
			continue
		case giveUp:
			return err
		}
		if attempt >= j.c.retry.Attempts {
			return err
		}
		if attempt > 1 {
			url = nil // a refusal that cuts the connection looks like the network
		}
		if err := sleep(ctx, j.c.retry.wait(attempt, after)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// signFault says what a refusal to sign means here.
func signFault(n int, err error) error {
	switch Code(err) {
	case models.CodePartConflict:
		return fmt.Errorf("%w since its upload was begun: part %d was signed for with other bytes; restart to send it anew (%w)", ErrChanged, n, err)
	case models.CodeSessionClosed, models.CodeBusy:
		return errVanished // somebody else completes, or has completed
	}
	return err
}
