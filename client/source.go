package client

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// source is what Put reads: in any order from at, or else once, in order, from r.
type source struct {
	size  int64
	at    io.ReaderAt
	r     io.Reader
	check func() error // ErrChanged, if it is not any more what it was; nil: cannot tell
	stamp *stamp       // of a file: what resuming compares
}

// again tells whether a part can be read once more.
func (s *source) again() bool { return s.at != nil }

// read fills buf from offset off. A source that ends before its size is not what was
// declared.
func (s *source) read(buf []byte, off int64) error {
	var err error
	if s.at != nil {
		var n int
		n, err = s.at.ReadAt(buf, off)
		if n == len(buf) {
			return nil // ReadAt may say io.EOF with a full buffer
		}
	} else {
		_, err = io.ReadFull(s.r, buf)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends before byte %d", ErrChanged, off+int64(len(buf)))
	}
	return err
}

// verify is asked when every byte is read: is it still the same, and is that all?
func (s *source) verify() error {
	if s.check != nil {
		return s.check()
	}
	if s.r == nil {
		return nil
	}
	var one [1]byte
	n, err := io.ReadFull(s.r, one[:])
	if n > 0 {
		return fmt.Errorf("%w: it goes on after %d bytes", ErrChanged, s.size)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// stamp tells one content of a file from another without reading it.
type stamp struct {
	Size  int64  `json:"size"`     // bytes
	MTime int64  `json:"mtime_ns"` // Unix, nanoseconds
	Inode uint64 `json:"inode,omitempty"`
	Dev   uint64 `json:"dev,omitempty"`
}

func stampOf(fi os.FileInfo) stamp {
	s := stamp{Size: fi.Size(), MTime: fi.ModTime().UnixNano()}
	s.Dev, s.Inode = inodeOf(fi)
	return s
}

// sameContent is what must hold; sameFile, what makes looking again needless.
func (s stamp) sameContent(o stamp) bool { return s.Size == o.Size && s.MTime == o.MTime }
func (s stamp) sameFile(o stamp) bool    { return s == o }

var errNotRegular = errors.New("not a regular file")

func fileSource(f *os.File) (*source, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errNotRegular
	}
	st := stampOf(fi)
	return &source{
		size:  fi.Size(),
		at:    f,
		stamp: &st,
		check: func() error {
			now, err := f.Stat()
			if err != nil {
				return err
			}
			if !st.sameContent(stampOf(now)) {
				return fmt.Errorf("%w while it was sent", ErrChanged)
			}
			return nil
		},
	}, nil
}
