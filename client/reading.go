package client

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"berth/client/wire"
	"berth/models"

	"golang.org/x/sync/errgroup"
)

// Ranges of a parallel read.
const (
	rangeBuffer = 256 << 10 // bytes
	maxRanges   = 4096
)

// reading is one Get: URL, ranges, digests.
type reading struct {
	c        *Client
	o        GetOptions
	id       string
	url      wire.ContentURL // of the beginning: what all later ones must agree with
	alg      models.Algorithm
	typ      models.ChecksumType
	parallel int
	state    *getState // of GetFile

	ranges  []span
	digests [][]byte // of the ranges; nil: to be hashed from what was written
	held    int64

	mu      sync.Mutex
	current *readURL
	asking  chan struct{} // open while a new URL is asked for
}

type span struct{ off, size int64 }

type readURL struct {
	wire.ContentURL
	signed, until time.Time
}

func (u *readURL) fresh(now time.Time) bool {
	return (&signedURL{signed: u.signed, until: u.until}).fresh(now)
}

// openReading asks for the first URL and plans the ranges.
func (c *Client) openReading(ctx context.Context, id string, o GetOptions) (*reading, error) {
	r := &reading{c: c, o: o, id: id, parallel: c.parallel}
	asked := time.Now()
	u, ahead, err := c.contentURL(ctx, id)
	if err != nil {
		return nil, err
	}
	if u.Size < 0 || u.Size > models.MaxObjectSize || (u.Method != "" && u.Method != http.MethodGet) {
		return nil, errors.New("read: the server's answer makes no sense")
	}
	r.url = *u
	r.current = &readURL{*u, asked, u.ExpiresAt.Add(-ahead)}
	r.alg, r.typ = models.Algorithm(u.Checksum.Algorithm), models.ChecksumType(u.Checksum.Type)
	if !known(r.alg) || u.Checksum.Value == "" {
		r.alg = ""
	}
	return r, r.plan()
}

// plan cuts the file. The ranges of a composite checksum are its parts, so that each
// is hashed as it arrives; CRCs combine over any ranges. A SHA-256 of a whole file only
// runs from the beginning: a file of moderate size is one range, a larger one is hashed
// from what was written.
func (r *reading) plan() error {
	const mib = 1 << 20
	size := max(r.c.sizes.span, (r.url.Size/maxRanges+mib-1)/mib*mib)
	switch {
	case r.alg == "":
	case r.typ == models.Composite:
		if size = r.url.PartSize; size <= 0 {
			return errors.New("read: the checksum is over parts whose size the server does not tell")
		}
	case !r.alg.Linear() && r.url.Size <= r.c.sizes.whole:
		size = r.c.sizes.whole
	}
	if r.url.Size/size > models.MaxParts {
		return errors.New("read: the server's answer makes no sense: too many parts")
	}
	for off := int64(0); off < r.url.Size; off += size {
		r.ranges = append(r.ranges, span{off, min(size, r.url.Size-off)})
	}
	r.digests = make([][]byte, len(r.ranges))
	return nil
}

// combines tells whether the ranges' digests make the digest of the whole.
func (r *reading) combines() bool {
	return r.typ == models.Composite || r.alg.Linear() || len(r.ranges) <= 1
}

// read brings the ranges into w and checks the whole.
func (r *reading) read(ctx context.Context, w io.WriterAt) error {
	file, rereadable := w.(io.ReaderAt)
	var running hash.Hash // of the whole, where it can be had in no other way
	if r.alg != "" && !r.combines() && !rereadable {
		running, r.parallel = newHash(r.alg), 1
	}
	var todo []int
	for i, s := range r.ranges {
		if r.state.has(i) {
			r.held += s.size
		} else {
			todo = append(todo, i)
		}
	}
	if r.o.Opened != nil {
		r.o.Opened(r.url, r.held)
	}
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for range min(r.parallel, len(todo)) {
		g.Go(func() error {
			buf := make([]byte, rangeBuffer)
			for {
				k := int(next.Add(1)) - 1
				if k >= len(todo) {
					return nil
				}
				i, h := todo[k], running
				if h == nil && r.alg != "" && r.combines() {
					h = newHash(r.alg)
				}
				if err := r.fetch(gctx, r.ranges[i], w, h, buf); err != nil {
					return err
				}
				if h != nil && running == nil {
					r.digests[i] = h.Sum(nil)
				}
				if err := r.state.add(i, time.Now()); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return errors.Join(err, r.state.save())
	}
	if r.alg == "" {
		return nil
	}
	got := models.Checksum{}
	if running != nil {
		got.Value = encode(running.Sum(nil))
	} else {
		var err error
		if got, err = r.checksum(file); err != nil {
			return err
		}
	}
	if got.Value != r.url.Checksum.Value {
		return fmt.Errorf("%w: %s of what was read is %s, it should be %s", ErrCorrupt, r.alg, got.Value, r.url.Checksum.Value)
	}
	return nil
}

// checksum is that of the whole, from the ranges' digests where this call has read
// them, from the file where not.
func (r *reading) checksum(file io.ReaderAt) (models.Checksum, error) {
	pieces, digests := r.ranges, r.digests
	if !r.combines() || len(pieces) == 0 {
		pieces, digests = []span{{0, r.url.Size}}, [][]byte{nil}
	}
	lengths := make([]int64, len(pieces))
	buf := make([]byte, 1<<20)
	for i, p := range pieces {
		lengths[i] = p.size
		if digests[i] != nil {
			continue
		}
		h := newHash(r.alg)
		if p.size > 0 {
			if _, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(file, p.off, p.size), buf); err != nil {
				return models.Checksum{}, err
			}
		}
		digests[i] = h.Sum(nil)
	}
	c, ok := whole(r.alg, r.typ, digests, lengths)
	if !ok {
		return models.Checksum{}, fmt.Errorf("a %s %s checksum cannot be made of %d ranges", r.typ, r.alg, len(pieces))
	}
	return c, nil
}

func (r *reading) result() *GetResult {
	res := &GetResult{Size: r.url.Size, VersionID: r.url.VersionID, Held: r.held}
	if r.alg != "" {
		res.Checksum = r.url.Checksum
	}
	return res
}

// fetch brings one range. A fault in the middle is gone on from, not begun again; the
// attempts count only while nothing arrives.
func (r *reading) fetch(ctx context.Context, s span, w io.WriterAt, h hash.Hash, buf []byte) error {
	got, refusals, failed := int64(0), 0, 0
	for got < s.size {
		u, err := r.live(ctx)
		if err != nil {
			return err
		}
		n, after, err := r.piece(ctx, u, span{s.off + got, s.size - got}, w, h, buf)
		got += n
		if n > 0 {
			failed, refusals = 0, 0
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if isFinal(err) {
			return err
		}
		switch remedyOf(err) {
		case resign:
			fresh := u.fresh(time.Now())
			r.stale(u)
			if fresh {
				if refusals++; refusals > 1 {
					return err
				}
			}
		case again:
		default:
			return err
		}
		if failed++; failed >= r.c.retry.Attempts {
			return err
		}
		if failed > 1 {
			r.stale(u)
		}
		if refusals == 0 || failed > 1 {
			if err := sleep(ctx, r.c.retry.wait(failed, after)); err != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// piece asks S3 for a range and writes what comes, telling how much that was.
func (r *reading) piece(ctx context.Context, u *readURL, s span, w io.WriterAt, h hash.Hash, buf []byte) (n int64, after time.Duration, err error) {
	op := fmt.Sprintf("bytes %d-%d", s.off, s.off+s.size-1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallAfter, func() { cancel(errStalled) })
	defer stall.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL, nil)
	if err != nil {
		return 0, 0, final("%s: the server gave a bad URL", op)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", s.off, s.off+s.size-1))
	res, err := r.c.s3.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
			err = cause
		}
		return 0, 0, fmt.Errorf("%s: %w", op, bare(err))
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", s.off, s.off+s.size-1, r.url.Size)
		if got := res.Header.Get("Content-Range"); got != want {
			return 0, 0, final("%s: S3 sends %q", op, clip(got, 64))
		}
	case http.StatusOK:
		if s.off != 0 || s.size != r.url.Size || (res.ContentLength >= 0 && res.ContentLength != s.size) {
			return 0, 0, final("%s: S3 does not answer ranges", op)
		}
	default:
		err := s3Error(op, res)
		if err.Status == http.StatusNotFound || err.Status == http.StatusRequestedRangeNotSatisfiable {
			return 0, 0, finalError{err}
		}
		return 0, retryAfter(res.Header, time.Now()), err
	}
	for n < s.size {
		m, err := res.Body.Read(buf[:min(int64(len(buf)), s.size-n)])
		if m > 0 {
			stall.Reset(stallAfter)
			if _, werr := w.WriteAt(buf[:m], s.off+n); werr != nil {
				return n, 0, finalError{werr}
			}
			if h != nil {
				h.Write(buf[:m])
			}
			n += int64(m)
			if r.o.Moved != nil {
				r.o.Moved(int64(m))
			}
		}
		if err != nil && n < s.size {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
				err = cause
			}
			return n, 0, fmt.Errorf("%s: %w", op, bare(err))
		}
	}
	// The end of the body is read, so that the connection is kept.
	_, _ = io.CopyN(io.Discard, res.Body, 1)
	return n, 0, nil
}

// live returns a URL that is good, asking for a new one at most once at a time.
func (r *reading) live(ctx context.Context) (*readURL, error) {
	for {
		r.mu.Lock()
		if u := r.current; u != nil && u.fresh(time.Now()) {
			r.mu.Unlock()
			return u, nil
		}
		if wait := r.asking; wait != nil {
			r.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		asking := make(chan struct{})
		r.asking = asking
		r.mu.Unlock()

		u, err := r.renew(ctx)
		r.mu.Lock()
		r.asking = nil
		if err == nil {
			r.current = u
		}
		r.mu.Unlock()
		close(asking)
		return u, err
	}
}

func (r *reading) renew(ctx context.Context) (*readURL, error) {
	asked := time.Now()
	u, ahead, err := r.c.contentURL(ctx, r.id)
	if err != nil {
		return nil, err
	}
	if u.VersionID != r.url.VersionID || u.Size != r.url.Size || u.Checksum.Value != r.url.Checksum.Value {
		return nil, fmt.Errorf("%w while it was read: the server names another version", ErrChanged)
	}
	return &readURL{*u, asked, u.ExpiresAt.Add(-ahead)}, nil
}

// stale says that a URL was refused; a newer one stays.
func (r *reading) stale(u *readURL) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == u {
		r.current = nil
	}
}
