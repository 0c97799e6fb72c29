package client

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// putState is what a later run needs to go on with an upload. It holds no secret:
// without a token an upload id opens nothing. What is sent already is not in it; S3
// knows that.
type putState struct {
	Version    int       `json:"version"`
	Server     string    `json:"server"`
	Collection string    `json:"collection"`
	Path       string    `json:"path"` // absolute
	File       stamp     `json:"file"`
	OpenKey    string    `json:"open_key"` // idempotency key of the open, stored before it is sent
	UploadID   string    `json:"upload_id,omitempty"`
	Algorithm  string    `json:"algorithm,omitempty"`
	PartSize   int64     `json:"part_size,omitempty"` // bytes
	Begun      time.Time `json:"begun"`

	file string // where it lies
}

const stateVersion = 1

// openKeyLife is how long an open that may or may not have arrived is repeated under
// its own key.
const openKeyLife = time.Hour

// DefaultStateDir is where the state of uploads lies: "berth" in the user's cache.
func DefaultStateDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("state: %w", err)
	}
	return filepath.Join(dir, "berth"), nil
}

// statePath is the state's file of one (server, collection, path).
func statePath(dir, server, collection, path string) string {
	h := sha256.Sum256([]byte(server + "\x00" + collection + "\x00" + path))
	return filepath.Join(dir, hex.EncodeToString(h[:16])+".json")
}

// loadState returns nil if there is none, or none that can be read: then the upload
// begins anew, which costs time and no file.
func loadState(path string) (*putState, error) {
	raw, err := os.ReadFile(path) // #nosec G304 -- made by statePath
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	var s putState
	if json.Unmarshal(raw, &s) != nil || s.Version != stateVersion {
		return nil, nil
	}
	s.file = path
	return &s, nil
}

func (s *putState) save() error {
	if s == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := writeAtomically(s.file, s); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

func (s *putState) remove() {
	if s != nil {
		_ = os.Remove(s.file)
	}
}

// writeAtomically puts v as JSON at path, readable by its owner only, whole or not at all.
func writeAtomically(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
