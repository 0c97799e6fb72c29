package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"berth/client/wire"
)

// GetOptions say how a file is read.
type GetOptions struct {
	// Force lets GetFile replace what is at the path.
	Force bool
	// Restart forgets what an earlier call had read.
	Restart bool
	// Opened is told of what is to be read, and of the bytes that are here already.
	Opened func(u wire.ContentURL, held int64)
	// Moved is told of bytes as they arrive; less than 0 when they must come again.
	// It is called by several goroutines.
	Moved func(delta int64)
}

// GetResult is what was read and checked.
type GetResult struct {
	Size      int64 // bytes
	VersionID string
	Checksum  wire.Checksum // as attested by S3 and found here; no Value: nothing to check by
	Path      string        // of GetFile
	Held      int64         // bytes that an earlier call had read
}

// Suffixes of what GetFile keeps beside its target until that is whole.
const (
	partSuffix  = ".part"
	stateSuffix = ".part.json"
)

// GetFile reads a file straight from S3 to path, in parallel ranges. It writes to
// path.part, goes on where an earlier call for the same version was killed, and puts
// the file in place only when its checksum is right. It never replaces a file unless
// Force is set.
func (c *Client) GetFile(ctx context.Context, fileID, path string, o GetOptions) (*GetResult, error) {
	res, err := c.getFile(ctx, fileID, path, o)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", fileID, err)
	}
	return res, nil
}

func (c *Client) getFile(ctx context.Context, fileID, path string, o GetOptions) (*GetResult, error) {
	if !o.Force {
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s: %w", path, ErrExists)
		}
	}
	r, err := c.openReading(ctx, fileID, o)
	if err != nil {
		return nil, err
	}
	part := path + partSuffix
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o666) // #nosec G302,G304 -- the umask decides, as for any download
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := lockFile(f); err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", part)
	}
	st := loadGetState(path + stateSuffix)
	if o.Restart || !st.of(r) {
		st = newGetState(path+stateSuffix, r)
		if err := f.Truncate(0); err != nil {
			return nil, err
		}
	}
	if err := f.Truncate(r.url.Size); err != nil { // also tells early that there is no room
		return nil, err
	}
	r.state = st
	if err := r.read(ctx, f); err != nil {
		if errors.Is(err, ErrCorrupt) {
			_ = os.Remove(part)
			st.remove()
		}
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := place(part, path, o.Force); err != nil {
		return nil, err
	}
	st.remove()
	res := r.result()
	res.Path = path
	return res, nil
}

// place gives the finished file its name. Without force that is done by a link,
// which fails if the name was taken meanwhile.
func place(part, path string, force bool) error {
	if force {
		return os.Rename(part, path)
	}
	err := os.Link(part, path)
	switch {
	case err == nil:
		return os.Remove(part)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	// No links on this file system: look, then rename.
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	return os.Rename(part, path)
}

// Get reads a file to w, in parallel ranges, and checks it. On an error w may hold
// anything. If w can be read as well (io.ReaderAt), large files with a checksum that
// only runs from the beginning are read in parallel too.
func (c *Client) Get(ctx context.Context, fileID string, w io.WriterAt, o GetOptions) (*GetResult, error) {
	r, err := c.openReading(ctx, fileID, o)
	if err == nil {
		err = r.read(ctx, w)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", fileID, err)
	}
	return r.result(), nil
}

// GetStream reads a file to w from its beginning to its end, and checks it: only a
// nil error means that what was written is right.
func (c *Client) GetStream(ctx context.Context, fileID string, w io.Writer, o GetOptions) (*GetResult, error) {
	r, err := c.openReading(ctx, fileID, o)
	if err == nil {
		r.parallel = 1
		err = r.read(ctx, &inOrder{w: w})
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", fileID, err)
	}
	return r.result(), nil
}

// inOrder is a WriterAt that can only go on.
type inOrder struct {
	w   io.Writer
	off int64
}

func (s *inOrder) WriteAt(p []byte, off int64) (int, error) {
	if off != s.off {
		return 0, errors.New("a stream cannot go back")
	}
	n, err := s.w.Write(p)
	s.off += int64(n)
	return n, err
}

// PathFor is where a file of that name goes in a folder.
func PathFor(dir, name string) string { return filepath.Join(dir, LocalName(name)) }
