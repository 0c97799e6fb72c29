package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/client/wire"
	"berth/models"
)

// PutOptions say what becomes of the bytes.
type PutOptions struct {
	Collection  string
	Name        string // "": the file's own name; streams need one
	ContentType string // "": the server's default
	Metadata    json.RawMessage
	Commit      string // "auto", "deferred", or "": the collection's
	Parent      string // the file this one is derived from
	Algorithm   models.Algorithm

	// Continue takes over an open upload of the same content, if there is one.
	Continue bool
	// Declare reads the whole file once before anything is sent, so that its checksum
	// can be stated at open: then a file that is there already need not be sent. Files
	// up to 16 MiB are always declared.
	Declare bool

	// StateDir is where PutFile keeps what a later run needs to go on; "": nowhere.
	StateDir string
	// Restart forgets what an earlier run left and begins anew.
	Restart bool
	// AbortOnCancel gives the upload up at the server when ctx is cancelled. Without
	// it the session stays until its deadline.
	AbortOnCancel bool

	// Wait bounds the time from the last byte until the file is active; 0: 10 minutes.
	Wait time.Duration

	// Opened is told of the upload, and of the bytes that S3 holds already.
	Opened func(up wire.Upload, held int64)
	// Moved is told of bytes as they leave; less than 0 when they must leave again.
	// It is called by several goroutines.
	Moved func(delta int64)
	// Note is told, in a sentence, what a person may want to know.
	Note func(string)
}

// PutResult is what came of it.
type PutResult struct {
	Upload  wire.Upload
	File    *wire.File // nil if the commit is deferred
	Instant bool       // the server had the file: nothing was sent
	Resumed bool       // an earlier session was continued
	Sent    int64      // bytes sent by this call
	Held    int64      // bytes that S3 held already
}

// DefaultWait is PutOptions.Wait if none is given.
const DefaultWait = 10 * time.Minute

// PutFile sends the file at path and returns when it is active, or, if the commit is
// deferred, verified. With a StateDir it goes on where an earlier call for the same
// path and collection was killed, and returns ErrChanged if the file is not the one
// whose upload was begun.
func (c *Client) PutFile(ctx context.Context, path string, o PutOptions) (*PutResult, error) {
	res, err := c.putFile(ctx, path, o)
	if err != nil {
		return res, fmt.Errorf("put %s: %w", path, err)
	}
	return res, nil
}

func (c *Client) putFile(ctx context.Context, path string, o PutOptions) (*PutResult, error) {
	// Looked at before it is opened: a pipe without a writer would not open.
	if fi, err := os.Stat(path); err != nil {
		return nil, noPath(err)
	} else if !fi.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.Open(path) // #nosec G304 -- the caller's file
	if err != nil {
		return nil, noPath(err)
	}
	defer f.Close()
	src, err := fileSource(f)
	if err != nil {
		return nil, noPath(err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = filepath.Base(abs)
	}
	j := c.newJob(src, o)
	// What fits one buffer is sent at once or not at all: there is nothing to resume.
	if o.StateDir != "" && src.size > c.sizes.small {
		j.stateFile = statePath(o.StateDir, c.BaseURL(), o.Collection, abs)
		j.fresh = putState{Version: stateVersion, Server: c.BaseURL(), Collection: o.Collection, Path: abs, File: *src.stamp, file: j.stateFile}
	}
	return j.run(ctx)
}

// noPath takes the path out, which the caller of putFile adds.
func noPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Put sends size bytes of r, which must not change meanwhile.
func (c *Client) Put(ctx context.Context, r io.ReaderAt, size int64, o PutOptions) (*PutResult, error) {
	res, err := c.newJob(&source{size: size, at: r}, o).run(ctx)
	if err != nil {
		return res, fmt.Errorf("put: %w", err)
	}
	return res, nil
}

// PutReader sends exactly size bytes of a stream. What fails for good is aborted: a
// stream cannot be resumed.
func (c *Client) PutReader(ctx context.Context, r io.Reader, size int64, o PutOptions) (*PutResult, error) {
	res, err := c.newJob(&source{size: size, r: r}, o).run(ctx)
	if err != nil {
		return res, fmt.Errorf("put: %w", err)
	}
	return res, nil
}

// habits is what a client has learnt of a collection from the server's answers.
type habits struct {
	algorithm models.Algorithm
	single    int64 // bytes; no file above it was ever sent by one PUT
}

func (c *Client) habitsOf(collection string) habits {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.learnt[collection]
	if !ok {
		h = habits{single: c.sizes.small}
	}
	return h
}

func (c *Client) learn(up *wire.Upload, asked models.Algorithm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.learnt[up.Collection]
	if !ok {
		h = habits{single: c.sizes.small}
	}
	if asked == "" && known(models.Algorithm(up.Checksum.Algorithm)) {
		h.algorithm = models.Algorithm(up.Checksum.Algorithm)
	}
	if models.Method(up.Method) == models.MethodMultipart {
		h.single = min(h.single, up.Size-1)
	}
	c.learnt[up.Collection] = h
}
