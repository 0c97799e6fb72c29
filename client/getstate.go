package client

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

// getState is which ranges of a .part file are whole. What an earlier run read is
// hashed again from the disk at the end, so a state that is wrong costs a repeated
// read and never a wrong file.
type getState struct {
	Version   int    `json:"version"`
	FileID    string `json:"file_id"`
	VersionID string `json:"version_id"`
	Size      int64  `json:"size"`     // bytes
	Checksum  string `json:"checksum"` // algorithm, type and value
	Range     int64  `json:"range"`    // bytes; the last is shorter
	Done      []byte `json:"done"`     // a bit a range, the lowest first

	mu    sync.Mutex
	file  string
	saved time.Time
}

func (r *reading) checksumText() string {
	return r.url.Checksum.Algorithm + " " + r.url.Checksum.Type + " " + r.url.Checksum.Value
}

func (r *reading) rangeOf() int64 {
	if len(r.ranges) == 0 {
		return 0
	}
	return r.ranges[0].size
}

func newGetState(file string, r *reading) *getState {
	return &getState{
		Version: stateVersion, FileID: r.id, VersionID: r.url.VersionID, Size: r.url.Size,
		Checksum: r.checksumText(), Range: r.rangeOf(), Done: make([]byte, bitmapSize(r)), file: file, saved: time.Now(),
	}
}

// loadGetState returns nil if there is none that can be read.
func loadGetState(file string) *getState {
	raw, err := os.ReadFile(file) // #nosec G304 -- beside the target
	if err != nil {
		return nil
	}
	s := &getState{}
	if json.Unmarshal(raw, s) != nil || s.Version != stateVersion {
		return nil
	}
	s.file = file
	return s
}

// of tells whether it is of exactly what is read now. A file without a checksum is
// never resumed: nothing would tell.
func (s *getState) of(r *reading) bool {
	return s != nil && r.alg != "" && s.FileID == r.id && s.VersionID == r.url.VersionID && s.Size == r.url.Size &&
		s.Checksum == r.checksumText() && s.Range == r.rangeOf() && len(s.Done) == bitmapSize(r)
}

func bitmapSize(r *reading) int { return (len(r.ranges) + 7) / 8 }

func (s *getState) has(i int) bool { return s != nil && s.Done[i/8]&(1<<(i%8)) != 0 }

// saveEvery bounds how often the state is written; what is lost is read again.
const saveEvery = 300 * time.Millisecond

// add notes that a range is whole, and writes that down now and then.
func (s *getState) add(i int, now time.Time) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Done[i/8] |= 1 << (i % 8)
	if now.Sub(s.saved) < saveEvery {
		return nil
	}
	s.saved = now
	return writeAtomically(s.file, s)
}

// save writes it down now.
func (s *getState) save() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return writeAtomically(s.file, s)
}

func (s *getState) remove() {
	if s != nil {
		_ = os.Remove(s.file)
	}
}
