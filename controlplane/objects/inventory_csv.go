package objects

import (
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/models"
)

// csvFields are the places of the columns that are needed; -1 where there is none.
type csvFields struct{ key, version, marker, latest, size, modified, etag, count int }

// csvColumns reads the manifest's schema: names with commas between.
func csvColumns(schema string) (csvFields, error) {
	c := csvFields{key: -1, version: -1, marker: -1, latest: -1, size: -1, modified: -1, etag: -1}
	at := map[string]*int{"key": &c.key, "versionid": &c.version, "isdeletemarker": &c.marker, "islatest": &c.latest,
		"size": &c.size, "lastmodifieddate": &c.modified, "etag": &c.etag}
	names := strings.Split(schema, ",")
	c.count = len(names)
	for i, n := range names {
		if p := at[strings.ToLower(strings.TrimSpace(n))]; p != nil {
			*p = i
		}
	}
	return c, needed(c.key >= 0, c.version >= 0, c.size >= 0, c.modified >= 0)
}

// needed refuses an inventory from which nothing could be told safely.
func needed(key, version, size, modified bool) error {
	for _, n := range []struct {
		there bool
		what  string
	}{{key, "the key"}, {version, "the version id: let it list all versions"}, {size, "the size"}, {modified, "the last modified date"}} {
		if !n.there {
			return fmt.Errorf("the inventory lacks %s", n.what)
		}
	}
	return nil
}

// read reads a gzipped CSV file. Keys in it are URL-encoded.
func (c csvFields) read(f *os.File, _ int64, each func(models.ObjectVersion) error) error {
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("is not gzip: %w", err)
	}
	defer z.Close()
	return c.rows(z, each)
}

func (c csvFields) rows(r io.Reader, each func(models.ObjectVersion) error) error {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	rows.FieldsPerRecord = c.count
	for line := 1; ; line++ {
		rec, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		v, err := c.entry(rec)
		if err != nil {
			return fmt.Errorf("record %d: %w", line, err)
		}
		if err := each(v); err != nil {
			return err
		}
	}
}

func (c csvFields) entry(rec []string) (v models.ObjectVersion, err error) {
	get := func(i int) string {
		if i < 0 {
			return ""
		}
		return rec[i]
	}
	if v.Key, err = url.QueryUnescape(get(c.key)); err != nil || v.Key == "" {
		return v, fmt.Errorf("the key %.100q is not URL-encoded", get(c.key))
	}
	v.VersionID = strings.Clone(cmp.Or(get(c.version), models.NullVersion))
	v.Key = strings.Clone(v.Key)
	v.ETag = strings.Clone(strings.Trim(get(c.etag), `"`))
	v.Marker = strings.EqualFold(get(c.marker), "true")
	v.Latest = strings.EqualFold(get(c.latest), "true")
	if s := get(c.size); s != "" { // a delete marker has none
		if v.Size, err = strconv.ParseInt(s, 10, 64); err != nil || v.Size < 0 {
			return v, fmt.Errorf("the size %.30q is not a number", s)
		}
	}
	if v.Modified, err = time.Parse(time.RFC3339, get(c.modified)); err != nil {
		return v, fmt.Errorf("the date %.40q is not RFC 3339", get(c.modified))
	}
	v.Modified = v.Modified.UTC()
	return v, nil
}
