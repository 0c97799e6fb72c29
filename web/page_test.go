package web_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// pageConfig puts the faults between browsers and S3, and adds collections of which
// things can be watched.
func pageConfig(t *testing.T, f **faults) func(map[string]any) {
	return func(c map[string]any) {
		main := c["stores"].(map[string]any)["main"].(map[string]any)
		*f = newFaults(t, main["endpoint"].(string))
		main["public_endpoint"] = (*f).URL
		c["collections"] = map[string]any{
			"default": map[string]any{}, "instant": map[string]any{"dedupe": "reuse"},
			"small": map[string]any{"max_size": "1MiB"},
			"crc64": map[string]any{"algorithm": "crc64nvme"}, "crc32c": map[string]any{"algorithm": "crc32c"},
			"hasty": map[string]any{"url_expiry": "3s"},
			"brief": map[string]any{"deadline": "5s", "hard_deadline": "20s", "grace": "2s"},
		}
	}
}

// artifacts is where screenshots are kept for people to look at.
func artifacts(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../.dev/artifacts")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The upload page in Chromium: large files, faults on the line, odd names, many files.
func TestUploadPageInChromium(t *testing.T) {
	t.Parallel()
	var f *faults
	b := start(t, pageConfig(t, &f))
	scratch := t.TempDir()
	b.script(t, "page/page.test.js", 10*time.Minute, "FAULTS="+f.URL, "ARTIFACTS="+artifacts(t), "SCRATCH="+scratch,
		"ANN_TOKEN="+b.token(t, "ann"), "BOB_TOKEN="+b.token(t, "bob"),
		"OLD_TOKEN="+b.token(t, "ann", "--ttl", "1s"),
		"GRANT_TOKEN="+b.token(t, "ann", "--scope", "upload", "--ttl", "1h", "--grant", `{"collection":"small"}`))

	b.getsTheSame(t, filepath.Join(scratch, "Harbour survey, final cut.mov"))

	// What was cancelled, and what was left by a closed tab, is gone.
	testkit.Eventually(t, 90*time.Second, func() error {
		var open, kept int
		if err := b.DB.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state NOT IN ('committed', 'aborted', 'expired', 'rejected')),
			(SELECT count(*) FROM files WHERE state = 'active') FROM uploads`).Scan(&open, &kept); err != nil {
			return err
		}
		if open > 0 {
			return fmt.Errorf("%d uploads are still open", open)
		}
		multiparts, versions, err := inBucket(t.Context(), b.S3)
		if err != nil {
			return err
		}
		if multiparts > 0 || versions != kept {
			return fmt.Errorf("S3 holds %d multiparts and %d versions, of %d files", multiparts, versions, kept)
		}
		return nil
	})
	var expired, aborted int
	if err := b.DB.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state = 'expired' AND collection = 'brief'),
		count(*) FILTER (WHERE state = 'aborted') FROM uploads`).Scan(&expired, &aborted); err != nil {
		t.Fatal(err)
	}
	if expired == 0 || aborted == 0 {
		t.Errorf("%d expired, %d aborted: the tab that was closed and the upload that was cancelled prove nothing", expired, aborted)
	}
}

// getsTheSame fetches with the CLI what the page sent, and compares.
func (b *berthd) getsTheSame(t *testing.T, sent string) {
	t.Helper()
	var id string
	if err := b.DB.QueryRow(t.Context(), `SELECT id FROM files WHERE name = $1 AND state = 'active' ORDER BY id LIMIT 1`, filepath.Base(sent)).Scan(&id); err != nil {
		t.Fatalf("%s: %v", filepath.Base(sent), err)
	}
	dir := t.TempDir()
	cli, back := filepath.Join(dir, "berth"), filepath.Join(dir, "back")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", cli, "../cmd/berth").CombinedOutput(); err != nil {
		t.Fatalf("build berth: %v: %s", err, out)
	}
	get := exec.CommandContext(t.Context(), cli, "get", id, "-o", back)
	get.Env = append(os.Environ(), "BERTH_URL="+b.URL, "BERTH_TOKEN="+b.token(t, "ann"))
	if out, err := get.CombinedOutput(); err != nil {
		t.Fatalf("berth get: %v: %s", err, out)
	}
	if was, is := digestOf(t, sent), digestOf(t, back); was != is {
		t.Errorf("the page sent %s, berth get has %s", was, is)
	}
}

func digestOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func inBucket(ctx context.Context, i testkit.S3Info) (multiparts, versions int, err error) {
	c := i.Client()
	m, err := c.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &i.Bucket})
	if err != nil {
		return 0, 0, err
	}
	in := &s3.ListObjectVersionsInput{Bucket: &i.Bucket}
	for {
		v, err := c.ListObjectVersions(ctx, in)
		if err != nil {
			return 0, 0, err
		}
		versions += len(v.Versions) + len(v.DeleteMarkers)
		if v.IsTruncated == nil || !*v.IsTruncated {
			return len(m.Uploads), versions, nil
		}
		in.KeyMarker, in.VersionIdMarker = v.NextKeyMarker, v.NextVersionIdMarker
	}
}
