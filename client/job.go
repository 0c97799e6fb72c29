package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"berth/client/wire"
	"berth/models"
)

// job is one Put: open or go on, send what is missing, complete, mend, wait.
type job struct {
	c   *Client
	o   PutOptions
	src *source

	stateFile string
	fresh     putState // what a new state begins with
	state     *putState

	up      *wire.Upload
	geo     models.Geometry
	alg     models.Algorithm
	typ     models.ChecksumType
	digests [][]byte // raw, by part number - 1; nil: not known
	stated  bool     // the whole checksum was declared at open
	signer  *signer

	held    *[]byte    // a small file that is read already
	heldSum []byte     // its digest, of alg
	first   *signedURL // from the answer to open, good for held
	resumed bool
	sent    atomic.Int64
	skipped int64 // bytes
}

func (c *Client) newJob(src *source, o PutOptions) *job { return &job{c: c, o: o, src: src} }

// mendRounds is how often parts that the server misses or refuses are sent again.
const mendRounds = 4

func (j *job) run(ctx context.Context) (res *PutResult, err error) {
	if j.src.size < 0 {
		return nil, errors.New("the size is negative")
	}
	if j.o.Algorithm != "" && !slices.Contains(models.Algorithms, j.o.Algorithm) {
		return nil, fmt.Errorf("unknown checksum algorithm %q", j.o.Algorithm)
	}
	defer j.release()
	todo, err := j.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			j.leave(ctx, err)
			res = j.result(nil)
		}
	}()
	if j.o.Opened != nil {
		j.o.Opened(*j.up, j.skipped)
	}
	if !j.up.Instant && models.UploadState(j.up.State) != models.UploadCommitted && models.UploadState(j.up.State) != models.UploadCompleted {
		if err := j.transfer(ctx, todo); err != nil {
			return nil, err
		}
	}
	file, err := j.await(ctx)
	if err != nil {
		return nil, err
	}
	j.state.remove()
	return j.result(file), nil
}

func (j *job) result(f *wire.File) *PutResult {
	return &PutResult{Upload: *j.up, File: f, Instant: j.up.Instant, Resumed: j.resumed, Sent: j.sent.Load(), Held: j.skipped}
}

func (j *job) note(format string, args ...any) {
	if j.o.Note != nil {
		j.o.Note(fmt.Sprintf(format, args...))
	}
}

// moved counts bytes that left, or, below 0, that must leave again.
func (j *job) moved(n int64) {
	j.sent.Add(n)
	if j.o.Moved != nil {
		j.o.Moved(n)
	}
}

// begin finds or opens the upload and says which parts are to be sent.
func (j *job) begin(ctx context.Context) ([]int, error) {
	if j.stateFile != "" {
		todo, found, err := j.goOn(ctx)
		if found || err != nil {
			return todo, err
		}
	}
	if err := j.open(ctx); err != nil {
		return nil, err
	}
	if j.state != nil {
		j.state.UploadID, j.state.Algorithm, j.state.PartSize = j.up.ID, j.up.Checksum.Algorithm, j.up.PartSize
		if err := j.state.save(); err != nil {
			j.note("%v: this upload cannot be resumed", err)
			j.state = nil
		}
	}
	if j.up.Resumed && j.geo.Method == models.MethodMultipart {
		j.resumed = true
		return j.missing(ctx, false)
	}
	return j.all(), nil
}

func (j *job) all() []int {
	out := make([]int, j.geo.PartCount)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

// adopt takes the server's geometry and algorithm, and refuses what makes no sense.
func (j *job) adopt(up *wire.Upload) error {
	j.up = up
	j.geo = models.Geometry{Method: models.Method(up.Method), PartSize: up.PartSize, PartCount: up.PartCount}
	j.alg, j.typ = models.Algorithm(up.Checksum.Algorithm), models.ChecksumType(up.Checksum.Type)
	if up.Instant {
		return nil
	}
	n, ok := up.PartCount, known(j.alg) && up.Size == j.src.size
	switch j.geo.Method {
	case models.MethodSingle:
		ok = ok && n == 1
	case models.MethodMultipart:
		ok = ok && n >= 1 && n <= models.MaxParts && up.PartSize > 0 && up.PartSize <= models.MaxPartSize &&
			up.PartSize*int64(n-1) < up.Size && up.Size <= up.PartSize*int64(n)
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("open: the server's plan makes no sense: %s, %d bytes in %d parts of %d, %q",
			up.Method, up.Size, n, up.PartSize, up.Checksum.Algorithm)
	}
	if len(j.digests) != n {
		j.digests = make([][]byte, n)
	}
	return nil
}
