package reconcile_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/md5"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/parquet-go/parquet-go"

	"berth/controlplane/reconcile"
	"berth/internal/stack"
	"berth/models"
)

// inventoryRow is a row as S3 writes it to Parquet.
type inventoryRow struct {
	Bucket         string  `parquet:"bucket"`
	Key            string  `parquet:"key"`
	VersionID      *string `parquet:"version_id,optional"`
	IsLatest       *bool   `parquet:"is_latest,optional"`
	IsDeleteMarker *bool   `parquet:"is_delete_marker,optional"`
	Size           *int64  `parquet:"size,optional"`
	Modified       *int64  `parquet:"last_modified_date,optional,timestamp(millisecond)"`
	ETag           *string `parquet:"e_tag,optional"`
	StorageClass   *string `parquet:"storage_class,optional"`
}

const csvSchema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"

func csvFile(t *testing.T, bucket string, versions []models.ObjectVersion) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := csv.NewWriter(z)
	for _, v := range versions {
		size, etag := strconv.FormatInt(v.Size, 10), v.ETag
		if v.Marker {
			size, etag = "", ""
		}
		if err := w.Write([]string{bucket, url.QueryEscape(v.Key), v.VersionID, strconv.FormatBool(v.Latest), strconv.FormatBool(v.Marker),
			size, v.Modified.UTC().Format("2006-01-02T15:04:05.000Z"), etag, "STANDARD"}); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parquetFile(t *testing.T, bucket string, versions []models.ObjectVersion) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[inventoryRow](&b, parquet.Compression(&parquet.Snappy))
	for _, v := range versions {
		class, ms := "STANDARD", v.Modified.UnixMilli()
		row := inventoryRow{Bucket: bucket, Key: v.Key, VersionID: &v.VersionID, IsLatest: &v.Latest, IsDeleteMarker: &v.Marker, Modified: &ms, StorageClass: &class}
		if !v.Marker {
			row.Size, row.ETag = &v.Size, &v.ETag
		}
		if _, err := w.Write([]inventoryRow{row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// writeInventory puts an inventory of the bucket's versions, in no order, into it.
func writeInventory(t *testing.T, s *stack.Stack, format string, at time.Time, versions []models.ObjectVersion) string {
	t.Helper()
	versions = slices.Clone(versions)
	rand.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
	upload := func(key string, body []byte) {
		if _, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &key, Body: bytes.NewReader(body)}); err != nil {
			t.Fatal(err)
		}
	}
	schema, write := csvSchema, csvFile
	if format == "Parquet" {
		schema, write = "message s3.inventory { required binary bucket (UTF8); required binary key (UTF8); }", parquetFile
	}
	var files []map[string]any
	half := len(versions) / 2
	for i, part := range [][]models.ObjectVersion{versions[:half], versions[half:]} {
		body := write(t, s.S3.Bucket, part)
		key := fmt.Sprintf("inventory/%s/data/%d", format, i)
		sum := md5.Sum(body)
		upload(key, body)
		files = append(files, map[string]any{"key": key, "size": len(body), "MD5checksum": hex.EncodeToString(sum[:])})
	}
	manifest, err := json.Marshal(map[string]any{"sourceBucket": s.S3.Bucket, "destinationBucket": "arn:aws:s3:::" + s.S3.Bucket,
		"version": "2016-11-30", "creationTimestamp": strconv.FormatInt(at.UnixMilli(), 10), "fileFormat": format, "fileSchema": schema, "files": files})
	if err != nil {
		t.Fatal(err)
	}
	key := "inventory/" + format + "/manifest.json"
	upload(key, manifest)
	return key
}

func everything(t *testing.T, s *stack.Stack) []models.ObjectVersion {
	t.Helper()
	var out []models.ObjectVersion
	for v, err := range s.Objects.ListVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// comparable is a report as text, without what differs from run to run: of one key,
// versions of the same second come in any order.
func comparable(t *testing.T, r models.ReconcileReport) string {
	t.Helper()
	r.Run, r.StartedAt, r.Seconds, r.Source, r.Inventory, r.InventoryAt = "", time.Time{}, 0, "", "", time.Time{}
	for _, c := range r.Findings {
		slices.SortFunc(c.Examples, func(a, b models.Finding) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.VersionID, b.VersionID), cmp.Compare(a.S3UploadID, b.S3UploadID))
		})
	}
	out, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAnInventoryGivesTheSameReport(t *testing.T) {
	t.Parallel()
	s := seed(t)
	versions := everything(t, s.Stack)
	s.Clock.Advance(25 * time.Hour)
	listing := run(t, runner(s.Stack), reconcile.Options{})
	for _, format := range []string{"CSV", "Parquet"} {
		manifest := writeInventory(t, s.Stack, format, s.Clock.Now(), versions)
		report := run(t, runner(s.Stack), reconcile.Options{Inventory: manifest})
		if report.Source != models.SourceInventory || report.InventoryAt.IsZero() {
			t.Errorf("%s: %s of %v", format, report.Source, report.InventoryAt)
		}
		if got, want := comparable(t, report), comparable(t, listing); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", format, got, want)
		}
	}
	// And it repairs.
	manifest := writeInventory(t, s.Stack, "Parquet", s.Clock.Now(), versions)
	run(t, runner(s.Stack), reconcile.Options{Inventory: "s3://" + s.S3.Bucket + "/" + manifest, Repair: true})
	reap(t, s.Stack)
	got := slices.DeleteFunc(listed(t, s.Stack), func(l string) bool { return l[:9] == "inventory" })
	slices.Sort(got)
	slices.Sort(s.stays)
	if !slices.Equal(got, s.stays) {
		t.Errorf("the bucket holds %v, want %v", got, s.stays)
	}
}

// An inventory is a day old: what it says is believed only if it is still so.
func TestAnOldInventoryAccusesNobody(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	deleted := complete(t, s, "crc64", 10)
	orphan := ourKey(1, "")
	version := put(t, s, orphan, 10)
	at := s.Clock.Now()
	old := everything(t, s)
	// Since then: a file was deleted, one was made, the orphan is gone.
	remove(t, s, deleted.FileID)
	reap(t, s)
	s.Clock.Advance(time.Hour)
	reap(t, s)
	erase(t, s, orphan, version)
	complete(t, s, "crc64", 20)
	s.Clock.Advance(25 * time.Hour)
	manifest := writeInventory(t, s, "CSV", at, old)
	if report := run(t, runner(s), reconcile.Options{Inventory: manifest, Repair: true}); !report.Clean() {
		t.Errorf("found %v", found(report))
	}
	// Control: believed without a look, it does accuse.
	r := runner(s)
	r.Objects = credulous{s.Objects, old}
	if report, err := r.Run(t.Context(), reconcile.Options{Inventory: manifest}); err != nil || report.Clean() {
		t.Errorf("the control does not show what the look is for: %v, error %v", found(report), err)
	}
}

// credulous shows the past as if it were the present.
type credulous struct {
	reconcile.Objects
	past []models.ObjectVersion
}

func (c credulous) ListVersions(_ context.Context, prefix string) iter.Seq2[models.ObjectVersion, error] {
	return func(yield func(models.ObjectVersion, error) bool) {
		for _, v := range c.past {
			if len(v.Key) >= len(prefix) && v.Key[:len(prefix)] == prefix && !yield(v, nil) {
				return
			}
		}
	}
}
