package objects

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"berth/models"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// readParquet reads a Parquet file row by row. The columns' names are those of S3's own
// schema; keys in it are not encoded.
func readParquet(f *os.File, size int64, each func(models.ObjectVersion) error) (err error) {
	defer func() {
		// The decoder panics on some files that are not what they say.
		if p := recover(); p != nil {
			err = fmt.Errorf("is not readable Parquet: %v", p)
		}
	}()
	if err := checkFooter(f, size); err != nil {
		return fmt.Errorf("is not Parquet: %w", err)
	}
	file, err := parquet.OpenFile(f, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return fmt.Errorf("is not Parquet: %w", err)
	}
	c, err := parquetColumns(file.Schema())
	if err != nil {
		return err
	}
	for _, g := range file.RowGroups() {
		if err := c.group(g, each); err != nil {
			return err
		}
	}
	return nil
}

// checkFooter looks whether the footer can be as long as the file says. The decoder
// believes the length, and allocates it: up to 4 GiB for four bytes that are damaged.
func checkFooter(f io.ReaderAt, size int64) error {
	const magic = "PAR1"
	var tail [8]byte // the footer's length, little-endian, and the magic
	if size < int64(len(tail)+len(magic)) {
		return fmt.Errorf("%d bytes are too few", size)
	}
	if _, err := f.ReadAt(tail[:], size-int64(len(tail))); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	if string(tail[4:]) != magic || n > min(size-int64(len(tail)+len(magic)), maxFooter) {
		return errors.New("its end is not a footer's")
	}
	return nil
}

// maxFooter bounds the metadata of one file, in bytes.
const maxFooter = 64 << 20

// parquetFields are the indexes of the leaf columns; -1 where there is none.
type parquetFields struct {
	key, version, marker, latest, size, modified, etag int
	unit                                               time.Duration // of modified
}

func parquetColumns(s *parquet.Schema) (parquetFields, error) {
	at := func(name string) (int, parquet.Node) {
		l, ok := s.Lookup(name)
		if !ok {
			return -1, nil
		}
		return l.ColumnIndex, l.Node
	}
	c := parquetFields{unit: time.Millisecond}
	c.key, _ = at("key")
	c.version, _ = at("version_id")
	c.marker, _ = at("is_delete_marker")
	c.latest, _ = at("is_latest")
	c.size, _ = at("size")
	c.etag, _ = at("e_tag")
	var node parquet.Node
	if c.modified, node = at("last_modified_date"); node != nil {
		if node.Type().Kind() != parquet.Int64 {
			return c, errors.New("last_modified_date is not a timestamp in 64 bits")
		}
		if l := node.Type().LogicalType(); l != nil {
			if ts, ok := l.Value.(*format.TimestampType); ok && ts.Unit.Value != nil {
				c.unit = ts.Unit.Value.Duration()
			}
		} else if t := node.Type().ConvertedType(); t != nil && *t == deprecated.TimestampMicros {
			c.unit = time.Microsecond
		}
	}
	return c, needed(c.key >= 0, c.version >= 0, c.size >= 0, c.modified >= 0)
}

func (c parquetFields) group(g parquet.RowGroup, each func(models.ObjectVersion) error) error {
	rows := g.Rows()
	defer rows.Close()
	buf := make([]parquet.Row, 256)
	for {
		n, err := rows.ReadRows(buf)
		for _, r := range buf[:n] {
			if err := c.row(r, each); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrNoProgress
		}
	}
}

func (c parquetFields) row(r parquet.Row, each func(models.ObjectVersion) error) error {
	var v models.ObjectVersion
	dated := false
	for _, x := range r {
		if x.IsNull() {
			continue
		}
		switch x.Column() {
		case c.key:
			v.Key = string(x.ByteArray())
		case c.version:
			v.VersionID = string(x.ByteArray())
		case c.marker:
			v.Marker = x.Boolean()
		case c.latest:
			v.Latest = x.Boolean()
		case c.size:
			v.Size = x.Int64()
		case c.etag:
			v.ETag = strings.Trim(string(x.ByteArray()), `"`)
		case c.modified:
			dated = true
			perSecond := int64(time.Second / c.unit)
			v.Modified = time.Unix(x.Int64()/perSecond, x.Int64()%perSecond*int64(c.unit)).UTC()
		}
	}
	if v.Key == "" || !dated {
		return errors.New("a row without a key or without a date")
	}
	if v.Size < 0 {
		return fmt.Errorf("a row with the size %d", v.Size)
	}
	v.VersionID = cmp.Or(v.VersionID, models.NullVersion)
	return each(v)
}
