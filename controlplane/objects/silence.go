package objects

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// silence is the longest that a store may stay silent within one call, where Config does
// not say: before its answer's header, and between two pieces of the body. S3 sends white
// space while it works on a Complete.
const silence = time.Minute

// errSilent ends a call whose store said nothing for too long. It is a timeout to the
// SDK's retryer.
var errSilent error = silentError{}

type silentError struct{}

func (silentError) Error() string   { return "the store went silent in the middle of a call" }
func (silentError) Timeout() bool   { return true }
func (silentError) Temporary() bool { return true }

// attentive ends calls in which the store moves no byte for most. The time that our side
// takes between two reads does not count, and a call has no bound as a whole: a large
// object may be read for hours.
type attentive struct {
	next http.RoundTripper
	most time.Duration
}

func (a attentive) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	w := &watch{most: a.most, cancel: cancel, ctx: ctx}
	w.timer = time.AfterFunc(a.most, func() { cancel(errSilent) })
	out := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		// What is taken from the request's body is sent: the store reads.
		out.Body = &sent{ReadCloser: r.Body, watch: w}
	}
	resp, err := a.next.RoundTrip(out)
	w.timer.Stop()
	if err != nil {
		err = w.cause(err)
		cancel(nil)
		return nil, err
	}
	if resp.Body == nil || resp.Body == http.NoBody {
		cancel(nil)
		return resp, nil
	}
	resp.Body = &heard{ReadCloser: resp.Body, watch: w}
	return resp, nil
}

// watch is the timer of one call.
type watch struct {
	most   time.Duration
	timer  *time.Timer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// cause tells silence from other ends.
func (w *watch) cause(err error) error {
	if errors.Is(context.Cause(w.ctx), errSilent) {
		return errSilent
	}
	return err
}

// sent is the request's body as the transport takes it.
type sent struct {
	io.ReadCloser
	watch *watch
}

func (b *sent) Read(p []byte) (int, error) {
	b.watch.timer.Reset(b.watch.most)
	return b.ReadCloser.Read(p)
}

// heard is the answer's body.
type heard struct {
	io.ReadCloser
	watch *watch
}

func (b *heard) Read(p []byte) (int, error) {
	b.watch.timer.Reset(b.watch.most)
	n, err := b.ReadCloser.Read(p)
	b.watch.timer.Stop()
	switch {
	case errors.Is(err, io.EOF):
		b.watch.cancel(nil)
	case err != nil:
		err = b.watch.cause(err)
	}
	return n, err
}

func (b *heard) Close() error {
	err := b.ReadCloser.Close()
	b.watch.timer.Stop()
	b.watch.cancel(nil)
	return err
}
