package parts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Secret returns the secret kept in a file that only we can read, and makes
// file and secret, of so many characters of 5 bits, when there is none.
func Secret(file string, length int) (string, error) {
	switch b, err := os.ReadFile(file); {
	case err == nil:
		return strings.TrimSpace(string(b)), nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("secret: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	var s string
	for len(s) < length {
		s += rand.Text()
	}
	s = s[:length]
	// O_EXCL: of two that start at once, one makes it and the other is told.
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	if _, err := f.WriteString(s + "\n"); err != nil {
		f.Close()
		return "", fmt.Errorf("secret: %w", err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	return s, nil
}
