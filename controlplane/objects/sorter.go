package objects

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"berth/models"
)

// sorter puts versions in the order of ListVersions: by key, of one key the newest
// first. It holds at most about most bytes of them; what is more goes, sorted, to files
// in dir, which are then merged.
type sorter struct {
	dir   string
	most  int
	held  []models.ObjectVersion
	bytes int
	runs  []*os.File
}

// entryOverhead is what an entry takes beside its texts, about.
const entryOverhead = 120

// fanIn is how many files are merged at once. More are merged into one first, so that
// neither files nor buffers grow with the inventory.
const fanIn = 128

func (s *sorter) add(v models.ObjectVersion) error {
	s.held = append(s.held, v)
	s.bytes += entryOverhead + len(v.Key) + len(v.VersionID) + len(v.ETag)
	if s.bytes < s.most {
		return nil
	}
	return s.spill()
}

func sortedBefore(a, b *models.ObjectVersion) int {
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	if a.Latest != b.Latest {
		if a.Latest {
			return -1
		}
		return 1
	}
	if c := b.Modified.Compare(a.Modified); c != 0 {
		return c
	}
	return strings.Compare(a.VersionID, b.VersionID)
}

func (s *sorter) spill() error {
	slices.SortFunc(s.held, func(a, b models.ObjectVersion) int { return sortedBefore(&a, &b) })
	err := s.run(func(put func(*models.ObjectVersion) error) error {
		for i := range s.held {
			if err := put(&s.held[i]); err != nil {
				return err
			}
		}
		return nil
	})
	clear(s.held)
	s.held, s.bytes = s.held[:0], 0
	if err == nil && len(s.runs) >= fanIn {
		merged := s.runs
		s.runs = nil
		err = s.run(func(put func(*models.ObjectVersion) error) error { return merge(merged, put) })
		drop(merged)
	}
	return err
}

// run writes one sorted file.
func (s *sorter) run(fill func(put func(*models.ObjectVersion) error) error) error {
	f, err := os.CreateTemp(s.dir, "run-")
	if err != nil {
		return err
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, 64<<10)
	var buf []byte
	if err := fill(func(v *models.ObjectVersion) error {
		buf = encode(buf[:0], v)
		_, err := w.Write(buf)
		return err
	}); err != nil {
		return err
	}
	return w.Flush()
}

var errEnough = errors.New("enough")

// each yields all in order, until yield wants no more.
func (s *sorter) each(yield func(models.ObjectVersion) bool) error {
	if len(s.runs) == 0 {
		slices.SortFunc(s.held, func(a, b models.ObjectVersion) int { return sortedBefore(&a, &b) })
		for _, v := range s.held {
			if !yield(v) {
				return nil
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.held = nil
	err := merge(s.runs, func(v *models.ObjectVersion) error {
		if !yield(*v) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (s *sorter) close() {
	drop(s.runs)
	s.runs, s.held = nil, nil
}

func drop(files []*os.File) {
	for _, f := range files {
		f.Close()
		os.Remove(f.Name())
	}
}

// merge gives the entries of sorted files in order.
func merge(files []*os.File, put func(*models.ObjectVersion) error) error {
	h := make(heads, 0, len(files))
	for _, f := range files {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		r := &head{r: bufio.NewReaderSize(f, 64<<10)}
		switch err := r.next(); {
		case errors.Is(err, io.EOF):
		case err != nil:
			return err
		default:
			h = append(h, r)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		if err := put(&h[0].v); err != nil {
			return err
		}
		switch err := h[0].next(); {
		case errors.Is(err, io.EOF):
			heap.Pop(&h)
		case err != nil:
			return err
		default:
			heap.Fix(&h, 0)
		}
	}
	return nil
}

// head is a sorted file and its first entry that is not yet taken.
type head struct {
	r *bufio.Reader
	v models.ObjectVersion
}

func (h *head) next() (err error) {
	h.v, err = decode(h.r)
	return err
}

type heads []*head

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return sortedBefore(&h[i].v, &h[j].v) < 0 }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)        { *h = append(*h, x.(*head)) }
func (h *heads) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

const (
	flagLatest = 1 << iota
	flagMarker
)

func encode(b []byte, v *models.ObjectVersion) []byte {
	var flags byte
	if v.Latest {
		flags |= flagLatest
	}
	if v.Marker {
		flags |= flagMarker
	}
	b = append(b, flags)
	for _, s := range []string{v.Key, v.VersionID, v.ETag} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, v.Size)
	return binary.AppendVarint(b, v.Modified.UnixMicro())
}

// decode reads what encode wrote; io.EOF at the end, between two entries.
func decode(r *bufio.Reader) (v models.ObjectVersion, err error) {
	flags, err := r.ReadByte()
	if err != nil {
		return v, err
	}
	v.Latest, v.Marker = flags&flagLatest != 0, flags&flagMarker != 0
	for _, s := range []*string{&v.Key, &v.VersionID, &v.ETag} {
		if *s, err = decodeText(r); err != nil {
			return v, cut(err)
		}
	}
	if v.Size, err = binary.ReadVarint(r); err != nil {
		return v, cut(err)
	}
	us, err := binary.ReadVarint(r)
	v.Modified = time.UnixMicro(us).UTC()
	return v, cut(err)
}

func decodeText(r *bufio.Reader) (string, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return "", err
	}
	if n > 1<<20 {
		return "", fmt.Errorf("a text of %d bytes", n)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return string(b), err
}

// cut says that a file of ours ends within an entry.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
