package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"berth/client/wire"
	"berth/models"

	"golang.org/x/sync/errgroup"
)

// open begins the upload. What is small is read and hashed first, so that the answer
// to open brings the one URL that is needed, for exactly those bytes.
func (j *job) open(ctx context.Context) error {
	h := j.c.habitsOf(j.o.Collection)
	guess := j.o.Algorithm
	if guess == "" {
		guess = h.algorithm
	}
	req := wire.OpenRequest{
		Collection: j.o.Collection, Name: j.o.Name, Size: j.src.size, ContentType: j.o.ContentType,
		Metadata: j.o.Metadata, Commit: j.o.Commit, Continue: j.o.Continue, Parent: j.o.Parent,
	}
	var plain *wire.Checksum // what is stated if the value is refused
	if j.o.Algorithm != "" {
		plain = &wire.Checksum{Algorithm: string(j.o.Algorithm)}
	}
	req.Checksum = plain
	hashed := guess
	if hashed == "" {
		hashed = models.SHA256 // the usual one
	}
	switch {
	case j.src.size <= h.single:
		if err := j.hold(ctx); err != nil {
			return err
		}
		j.heldSum = sum(hashed, *j.held)
		req.Checksum = &wire.Checksum{Algorithm: string(hashed), Type: string(models.FullObject), Value: encode(j.heldSum)}
	case j.o.Declare && j.src.again():
		c, err := j.foresee(ctx, hashed)
		if err != nil {
			return err
		}
		if c != nil {
			req.Checksum = c
		}
	}
	if guess == "" && req.Checksum != nil {
		// Not asked for and not known: the collection's. A value of another algorithm
		// is refused by its length, and then nothing is stated.
		req.Checksum.Algorithm = ""
	}
	asked := time.Now()
	up, ahead, err := j.c.open(ctx, req, j.openKey())
	j.stated = req.Checksum != nil && req.Checksum.Value != ""
	if j.stated && refusesChecksum(err) {
		// Another algorithm or geometry than was thought. Nothing has been opened.
		if j.state != nil {
			j.newState("")
		}
		req.Checksum, j.stated = plain, false
		j.digests = nil
		asked = time.Now()
		up, ahead, err = j.c.open(ctx, req, j.openKey())
	}
	if err != nil {
		if j.state != nil && final4xx(err) {
			j.state.remove() // nothing was opened
		}
		return err
	}
	j.c.learn(up, j.o.Algorithm)
	if err := j.adopt(up); err != nil {
		return err
	}
	if up.Instant {
		j.skipped = up.Size
		return nil
	}
	if j.held != nil && (j.geo.Method != models.MethodSingle || hashed != j.alg) {
		j.heldSum = nil
	}
	if j.held != nil && j.geo.Method != models.MethodSingle {
		j.unhold()
	}
	if j.heldSum != nil && j.stated && len(up.Parts) == 1 && up.PartsExpireAt != nil && pins(up.Parts[0], j.alg, j.heldSum) {
		j.first = &signedURL{up.Parts[0], asked, up.PartsExpireAt.Add(-ahead)}
	}
	return nil
}

// refusesChecksum tells whether an open was refused for what it stated of the
// content. An answer that names no field may mean it.
func refusesChecksum(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Code != models.CodeInvalidRequest {
		return false
	}
	field, ok := e.Details["field"]
	return !ok || strings.Contains(string(field), "checksum")
}

// final4xx: the server has said no, and there is no upload.
func final4xx(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status >= 400 && e.Status < 500 && !passing(e.Status) && e.Status != http.StatusUnauthorized
}

// pins tells whether S3 will take no other bytes by this URL.
func pins(p wire.SignedPart, a models.Algorithm, digest []byte) bool {
	for k, v := range p.Headers {
		if http.CanonicalHeaderKey(k) == http.CanonicalHeaderKey(a.Header()) {
			return v == encode(digest)
		}
	}
	return false
}

func (j *job) openKey() string {
	if j.state != nil {
		return j.state.OpenKey
	}
	return NewIdempotencyKey()
}

// hold reads a small file whole.
func (j *job) hold(ctx context.Context) error {
	buf, err := j.c.borrow(ctx, j.src.size)
	if err != nil {
		return err
	}
	if err := j.src.read(*buf, 0); err != nil {
		j.c.giveBack(buf)
		return err
	}
	j.held = buf
	return nil
}

// unhold gives up what is held for being sent in parts after all; a stream must not
// lose it.
func (j *job) unhold() {
	if !j.src.again() {
		j.src.r = io.MultiReader(bytes.NewReader(bytes.Clone(*j.held)), j.src.r)
	}
	j.release()
}

func (j *job) release() {
	if j.held != nil {
		j.c.giveBack(j.held)
		j.held = nil
	}
}

// foresee hashes the file as the server would have it cut by default. nil: it
// cannot be said before the server's plan is known.
func (j *job) foresee(ctx context.Context, a models.Algorithm) (*wire.Checksum, error) {
	geo, err := models.Plan(j.src.size, 0, 0)
	if err != nil {
		return nil, nil // the server will say so
	}
	digests, lengths := make([][]byte, geo.PartCount), make([]int64, geo.PartCount)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(j.c.parallel)
	for i := range geo.PartCount {
		lengths[i] = geo.PartLength(j.src.size, i+1)
		g.Go(func() error {
			buf, err := j.c.borrow(ctx, lengths[i])
			if err != nil {
				return err
			}
			defer j.c.giveBack(buf)
			if err := j.src.read(*buf, int64(i)*geo.PartSize); err != nil {
				return err
			}
			digests[i] = sum(a, *buf)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	c, ok := whole(a, a.TypeFor(geo.Method), digests, lengths)
	if !ok {
		return nil, nil
	}
	j.digests = digests
	return &wire.Checksum{Algorithm: string(a), Type: string(c.Type), Value: c.Value}, nil
}
