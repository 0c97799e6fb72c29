package objects

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/parquet-go/parquet-go"

	"berth/internal/testkit"
	"berth/models"
)

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag"

const goodRow = `"src","a%2Fb+c%2Bd","v1","true","false","12","2026-05-01T10:00:00.000Z","abc"` + "\n"

// An inventory that is not what it should be is an error that names the reason, and
// nothing of it is believed.
func TestInventoryThatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	info := testkit.S3(t)
	s, err := New(Config{Name: "main", Bucket: info.Bucket, Region: info.Region, Endpoint: info.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(info.AccessKey, info.SecretKey, "")})
	if err != nil {
		t.Fatal(err)
	}
	upload := func(key string, body []byte) {
		if _, err := info.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &info.Bucket, Key: &key, Body: bytes.NewReader(body)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(m map[string]any)
		body   []byte
		want   string // "" is one version
	}{
		"good":          {nil, zipped(t, goodRow), ""},
		"marker":        {nil, zipped(t, strings.Replace(goodRow, `"12"`, `""`, 1)), ""},
		"other prefix":  {nil, zipped(t, "src,zzz,v,true,false,1,2026-05-01T10:00:00Z,e\n"+goodRow), ""},
		"other bucket":  {func(m map[string]any) { m["sourceBucket"] = "another" }, zipped(t, goodRow), "is of the bucket"},
		"no time":       {func(m map[string]any) { m["creationTimestamp"] = "today" }, zipped(t, goodRow), "creationTimestamp"},
		"ORC":           {func(m map[string]any) { m["fileFormat"] = "ORC" }, zipped(t, goodRow), "CSV or Parquet"},
		"no versions":   {func(m map[string]any) { m["fileSchema"] = "Bucket, Key, Size, LastModifiedDate" }, zipped(t, goodRow), "all versions"},
		"no dates":      {func(m map[string]any) { m["fileSchema"] = "Bucket, Key, VersionId, Size" }, zipped(t, goodRow), "last modified"},
		"no sizes":      {func(m map[string]any) { m["fileSchema"] = "Bucket, Key, VersionId, LastModifiedDate" }, zipped(t, goodRow), "size"},
		"damaged":       {func(m map[string]any) { m["md5"] = strings.Repeat("0", 32) }, zipped(t, goodRow), "is damaged"},
		"file missing":  {func(m map[string]any) { m["gone"] = true }, zipped(t, goodRow), "absent"},
		"not gzip":      {nil, []byte(goodRow), "gzip"},
		"cut off":       {nil, zipped(t, goodRow)[:40], "unexpected EOF"},
		"fields":        {nil, zipped(t, "a,b\n"), "wrong number of fields"},
		"bad key":       {nil, zipped(t, strings.Replace(goodRow, "a%2Fb", "a%2", 1)), "URL-encoded"},
		"bad size":      {nil, zipped(t, strings.Replace(goodRow, `"12"`, `"-1"`, 1)), "size"},
		"bad date":      {nil, zipped(t, strings.Replace(goodRow, "2026-05-01", "yesterday", 1)), "RFC 3339"},
		"no parquet":    {func(m map[string]any) { m["fileFormat"] = "Parquet" }, zipped(t, goodRow), "Parquet"},
		"a zero header": {func(m map[string]any) { m["fileFormat"] = "Parquet" }, []byte("PAR1\x00\x00\x00\x00PAR1"), "Parquet"},
		"a huge footer": {func(m map[string]any) { m["fileFormat"] = "Parquet" }, []byte("PAR1\xff\xff\xff\xffPAR1"), "not a footer's"},
		"nothing":       {func(m map[string]any) { m["fileFormat"] = "Parquet" }, []byte("PAR1PAR1"), "too few"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := "inv/" + strings.ReplaceAll(name, " ", "-")
			sum := md5.Sum(c.body)
			m := map[string]any{"sourceBucket": info.Bucket, "destinationBucket": "arn:aws:s3:::" + info.Bucket, "creationTimestamp": "1767225600000",
				"fileFormat": "CSV", "fileSchema": schema, "md5": hex.EncodeToString(sum[:])}
			if c.change != nil {
				c.change(m)
			}
			if m["gone"] == nil {
				upload(dir+"/data", c.body)
			}
			m["files"] = []map[string]any{{"key": dir + "/data", "size": len(c.body), "MD5checksum": m["md5"]}}
			raw, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			upload(dir+"/manifest.json", raw)
			got, err := walkInventory(t, s, dir+"/manifest.json")
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || len(got) != 0 {
					t.Errorf("gave %d entries and %v, want an error with %q", len(got), err, c.want)
				}
				return
			}
			if err != nil || len(got) != 1 || got[0].Key != "a/b c+d" || got[0].VersionID != "v1" || !got[0].Latest || got[0].ETag != "abc" ||
				!got[0].Modified.Equal(time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)) {
				t.Errorf("%+v, error %v", got, err)
			}
		})
	}
	for _, key := range []string{"nothing-here", "inv"} {
		if _, err := walkInventory(t, s, key); models.ObjectKind(err) != models.ObjectAbsent {
			t.Errorf("%s: %v", key, err)
		}
	}
	upload("inv/text", []byte("no manifest"))
	if _, err := walkInventory(t, s, "inv/text"); err == nil || !strings.Contains(err.Error(), "JSON") {
		t.Errorf("%v", err)
	}
}

func walkInventory(t *testing.T, s *Store, key string) (out []models.ObjectVersion, _ error) {
	t.Helper()
	seq, _, err := s.Inventory(t.Context(), key, "a/")
	if err != nil {
		return nil, err
	}
	for v, err := range seq {
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}

// Whatever does not fit into memory goes to disk and comes back in the same order, and
// no file is left.
func TestSorterInAnyMemory(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var all []models.ObjectVersion
	for i := range 5000 {
		v := models.ObjectVersion{Key: fmt.Sprintf("k%04d", rng.IntN(3000)), VersionID: fmt.Sprint("v", i), Latest: rng.IntN(2) == 0,
			Marker: rng.IntN(5) == 0, Size: rng.Int64N(1 << 50), ETag: fmt.Sprint(rng.IntN(9)), Modified: time.UnixMicro(rng.Int64N(1 << 50)).UTC()}
		if i%7 == 0 {
			v.Key += "/é\x00\xff"
		}
		all = append(all, v)
	}
	want := slices.Clone(all)
	slices.SortFunc(want, func(a, b models.ObjectVersion) int { return sortedBefore(&a, &b) })
	for _, most := range []int{1, 1000, 100_000, 1 << 30} { // at 1 every entry is a file: merges of merges
		s := sorter{dir: t.TempDir(), most: most}
		for _, v := range all {
			if err := s.add(v); err != nil {
				t.Fatal(err)
			}
			if len(s.runs) > fanIn {
				t.Fatalf("%d files are open", len(s.runs))
			}
		}
		var got []models.ObjectVersion
		if err := s.each(func(v models.ObjectVersion) bool { got = append(got, v); return true }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %d bytes of memory: %d entries in another order, or changed", most, len(got))
		}
		s.close()
		left, err := os.ReadDir(s.dir)
		if err != nil || len(left) != 0 {
			t.Errorf("%d files are left, error %v", len(left), err)
		}
	}
	// A walk that stops early is no error.
	s := sorter{dir: t.TempDir(), most: 1000}
	for _, v := range all {
		if err := s.add(v); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	if err := s.each(func(models.ObjectVersion) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("%d entries, error %v", n, err)
	}
	// A file that is cut off within an entry is.
	s.close()
	s = sorter{dir: t.TempDir(), most: 1}
	if err := s.add(all[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.runs[0].Truncate(5); err != nil {
		t.Fatal(err)
	}
	if err := s.each(func(models.ObjectVersion) bool { return true }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	s.close()
}

// Whatever the bytes, reading ends with entries or with an error.
func FuzzInventoryFile(f *testing.F) {
	f.Add([]byte(goodRow), false)
	var valid bytes.Buffer
	if err := parquet.Write(&valid, []struct {
		Key       string  `parquet:"key"`
		VersionID *string `parquet:"version_id,optional"`
		Size      *int64  `parquet:"size,optional"`
		Modified  int64   `parquet:"last_modified_date,timestamp(millisecond)"`
	}{{Key: "a/b", Modified: 1}, {Key: "c", Modified: 2}}); err != nil {
		f.Fatal(err)
	}
	f.Add(valid.Bytes(), true)
	f.Add([]byte("PAR1\x00\x00\x00\x00PAR1"), true)
	columns, err := csvColumns(schema)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, asParquet bool) {
		each := func(v models.ObjectVersion) error {
			if v.Key == "" || v.VersionID == "" || v.Size < 0 {
				t.Errorf("%+v", v)
			}
			return nil
		}
		if !asParquet {
			_ = columns.rows(bytes.NewReader(b), each)
			return
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		_ = readParquet(file, int64(len(b)), each)
	})
}
