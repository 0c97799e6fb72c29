package objects

import (
	"bytes"
	"context"
	"crypto/md5" // #nosec G501 -- the manifest states MD5, against damage only
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Bounds of what an inventory may make us hold.
const (
	maxManifest = 64 << 20 // bytes; a manifest names a file of up to some GiB in 200 bytes
	// sortMemory is how many bytes of entries are sorted at once, before they go to disk.
	sortMemory = 16 << 20
)

// manifest is an inventory's manifest.json. Source: S3 user guide, Inventory manifest.
type manifest struct {
	SourceBucket      string
	DestinationBucket string
	FileFormat        string // CSV, Parquet, ORC
	FileSchema        string
	CreationTimestamp string // milliseconds of Unix time
	Files             []manifestFile
}

type manifestFile struct {
	Key         string
	Size        int64
	MD5checksum string
}

// Inventory reads an S3 Inventory of this bucket: the versions and delete markers under
// prefix, in the order of ListVersions, and when the inventory was made. where is the
// key of its manifest.json, in this bucket, or s3://bucket/key.
//
// An inventory is in no order that can be relied on. It is sorted here with bounded
// memory, through files in the temporary directory that are removed when the sequence
// has ended. The sequence can be walked once; it ends at the first error.
func (s *Store) Inventory(ctx context.Context, where, prefix string) (iter.Seq2[models.ObjectVersion, error], time.Time, error) {
	bucket, key := s.bucket, where
	if rest, ok := strings.CutPrefix(where, "s3://"); ok {
		bucket, key, _ = strings.Cut(rest, "/")
	}
	m, err := s.manifest(ctx, bucket, key)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("inventory: manifest: %w", err)
	}
	read, err := m.reader()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("inventory: manifest: %w", err)
	}
	ms, err := strconv.ParseInt(m.CreationTimestamp, 10, 64)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("inventory: manifest: its creationTimestamp %.30q is not in milliseconds", m.CreationTimestamp)
	}
	if m.SourceBucket != s.bucket {
		return nil, time.Time{}, fmt.Errorf("inventory: it is of the bucket %.80q, not of %q", m.SourceBucket, s.bucket)
	}
	// The manifest says where its files are; without, they are beside it.
	if b := strings.TrimPrefix(m.DestinationBucket, "arn:aws:s3:::"); b != "" && !strings.Contains(b, ":") {
		bucket = b
	}
	seq := func(yield func(models.ObjectVersion, error) bool) {
		if err := s.inventory(ctx, bucket, prefix, m.Files, read, yield); err != nil {
			yield(models.ObjectVersion{}, fmt.Errorf("inventory: %w", err))
		}
	}
	return seq, time.UnixMilli(ms).UTC(), nil
}

func (s *Store) manifest(ctx context.Context, bucket, key string) (m manifest, err error) {
	body, err := s.open(ctx, bucket, key)
	if err != nil {
		return m, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxManifest+1))
	switch {
	case err != nil:
		return m, err
	case len(raw) > maxManifest:
		return m, fmt.Errorf("is larger than %d bytes", maxManifest)
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&m); err != nil {
		return m, fmt.Errorf("is not JSON: %w", err)
	}
	return m, nil
}

// rowsOf gives the entries of one data file, spooled to f. It stops at the first error.
type rowsOf func(f *os.File, size int64, each func(models.ObjectVersion) error) error

// reader chooses how the data files are read, and refuses what lacks what is needed.
func (m *manifest) reader() (rowsOf, error) {
	switch strings.ToLower(m.FileFormat) {
	case "csv":
		c, err := csvColumns(m.FileSchema)
		if err != nil {
			return nil, err
		}
		return c.read, nil
	case "parquet":
		return readParquet, nil
	}
	return nil, fmt.Errorf("the format %.20q is not read: choose CSV or Parquet", m.FileFormat)
}

// inventory reads every file, sorts, and yields.
func (s *Store) inventory(ctx context.Context, bucket, prefix string, files []manifestFile, read rowsOf, yield func(models.ObjectVersion, error) bool) error {
	dir, err := os.MkdirTemp("", "berth-inventory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sorted := sorter{dir: dir, most: sortMemory}
	defer sorted.close()
	for _, f := range files {
		if err := s.inventoryFile(ctx, dir, bucket, f, read, func(v models.ObjectVersion) error {
			if !strings.HasPrefix(v.Key, prefix) {
				return nil
			}
			return sorted.add(v)
		}); err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
	}
	return sorted.each(func(v models.ObjectVersion) bool { return yield(v, nil) })
}

// inventoryFile fetches one data file to disk, checks it, and reads it: Parquet is read
// from its end, and a file that is damaged must not be believed up to the damage.
func (s *Store) inventoryFile(ctx context.Context, dir, bucket string, f manifestFile, read rowsOf, each func(models.ObjectVersion) error) error {
	body, err := s.open(ctx, bucket, f.Key)
	if err != nil {
		return err
	}
	defer body.Close()
	file, err := os.CreateTemp(dir, "data-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	sum := md5.New() // #nosec G401 -- as above
	n, err := io.Copy(io.MultiWriter(file, sum), body)
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); f.MD5checksum != "" && !strings.EqualFold(got, f.MD5checksum) {
		return fmt.Errorf("is damaged: its MD5 is %s, the manifest says %.40q", got, f.MD5checksum)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return read(file, n, each)
}

func (s *Store) open(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	owner := s.owner
	if bucket != s.bucket {
		owner = nil // another bucket may be another account's
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: &key, ExpectedBucketOwner: owner})
	if err != nil {
		return nil, classify(ctx, "GetObject", err)
	}
	return out.Body, nil
}
