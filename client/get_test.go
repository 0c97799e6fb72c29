package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/client/wire"
	"berth/models"
)

// store puts data on the fake and returns its file.
func (f *fake) store(data []byte) string {
	f.t.Helper()
	res, err := f.client().Put(f.t.Context(), bytes.NewReader(data), int64(len(data)), PutOptions{Collection: "c", Name: "n"})
	if err != nil {
		f.t.Fatal(err)
	}
	return res.File.ID
}

// onlyWriter hides that it could be read.
type onlyWriter struct{ io.WriterAt }

// TestGet: every size and algorithm, to a file, to memory and as a stream.
func TestGet(t *testing.T) {
	t.Parallel()
	for _, a := range models.Algorithms {
		for _, size := range []int{0, 1, unit, 5*unit + 1, 23 * unit, 40 * unit} {
			for _, single := range []int64{unit, 64 * unit} {
				t.Run(fmt.Sprintf("%s/%d/%d", a, size, single), func(t *testing.T) {
					t.Parallel()
					f := newFake(t)
					f.algorithm, f.single = a, single
					data := random(t, size)
					id := f.store(data)
					c := f.client()
					path := filepath.Join(t.TempDir(), "f")
					var moved atomic.Int64
					res, err := c.GetFile(t.Context(), id, path, GetOptions{Moved: func(n int64) { moved.Add(n) }})
					if err != nil {
						t.Fatal(err)
					}
					got, err := os.ReadFile(path)
					if err != nil || !bytes.Equal(got, data) || moved.Load() != int64(size) || res.Checksum.Value == "" {
						t.Errorf("%v, %d bytes, moved %d, %+v", err, len(got), moved.Load(), res)
					}
					m, err := os.Create(filepath.Join(t.TempDir(), "g"))
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					if _, err := c.Get(t.Context(), id, onlyWriter{m}, GetOptions{}); err != nil {
						t.Fatal(err)
					}
					if got, _ := os.ReadFile(m.Name()); !bytes.Equal(got, data) {
						t.Error("Get: other bytes")
					}
					var out bytes.Buffer
					if _, err := c.GetStream(t.Context(), id, &out, GetOptions{}); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(out.Bytes(), data) {
						t.Error("GetStream: other bytes")
					}
				})
			}
		}
	}
}

// TestGetFindsDamage: one bit anywhere, in any way of reading, is found, and nothing is
// put in place.
func TestGetFindsDamage(t *testing.T) {
	t.Parallel()
	for _, a := range models.Algorithms {
		for _, single := range []int64{unit, 64 * unit} {
			t.Run(fmt.Sprintf("%s/%d", a, single), func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.algorithm, f.single = a, single
				id := f.store(random(t, 40*unit))
				u := f.only()
				u.parts[u.PartCount][len(u.parts[u.PartCount])-1] ^= 1
				dir := t.TempDir()
				c := f.client()
				if _, err := c.GetFile(t.Context(), id, filepath.Join(dir, "f"), GetOptions{}); !errors.Is(err, ErrCorrupt) {
					t.Errorf("GetFile: %v", err)
				}
				if list, _ := filepath.Glob(filepath.Join(dir, "*")); list != nil {
					t.Errorf("left behind: %v", list)
				}
				if _, err := c.GetStream(t.Context(), id, io.Discard, GetOptions{}); !errors.Is(err, ErrCorrupt) {
					t.Errorf("GetStream: %v", err)
				}
				m, err := os.Create(filepath.Join(t.TempDir(), "g"))
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if _, err := c.Get(t.Context(), id, onlyWriter{m}, GetOptions{}); !errors.Is(err, ErrCorrupt) {
					t.Errorf("Get: %v", err)
				}
			})
		}
	}
}

// TestGetNeverOverwrites, not even what appears while it reads.
func TestGetNeverOverwrites(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	data := random(t, 12*unit)
	id := f.store(data)
	path := filepath.Join(t.TempDir(), "f")
	c := f.client()
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "get" && n == 2 {
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Error(err)
			}
		}
		return false
	}
	for range 2 {
		if _, err := c.GetFile(t.Context(), id, path, GetOptions{}); !errors.Is(err, ErrExists) {
			t.Errorf("error: %v", err)
		}
		if got, _ := os.ReadFile(path); string(got) != "mine" {
			t.Fatal("overwritten")
		}
	}
	if _, err := c.GetFile(t.Context(), id, path, GetOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, data) {
		t.Error("not replaced, though asked")
	}
	// A link to nowhere is something, too.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/nonexistent/berth", link); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetFile(t.Context(), id, link, GetOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("a dangling link: %v", err)
	}
}

// TestGetIsAlone: two that write the same target do not mix.
func TestGetIsAlone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	id := f.store(random(t, 12*unit))
	path := filepath.Join(t.TempDir(), "f")
	c := f.client()
	var second error
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if kind == "get" && n == 1 {
			_, second = c.GetFile(t.Context(), id, path, GetOptions{})
		}
		return false
	}
	if _, err := f.client(WithParallel(1)).GetFile(t.Context(), id, path, GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(second, ErrBusy) {
		t.Errorf("the second: %v", second)
	}
}

// TestGetFaults: what is cut off is gone on from; expired URLs are asked for anew; what
// is final ends at once.
func TestGetFaults(t *testing.T) {
	t.Parallel()
	data := random(t, 23*unit)
	get := func(t *testing.T, f *fake, id string) error {
		path := filepath.Join(t.TempDir(), "f")
		_, err := f.client(WithParallel(2)).GetFile(t.Context(), id, path, GetOptions{})
		if err == nil {
			if got, _ := os.ReadFile(path); !bytes.Equal(got, data) {
				t.Error("other bytes")
			}
		} else if _, serr := os.Stat(path); serr == nil {
			t.Error("put in place after an error")
		}
		return err
	}
	s3 := func(status int, code string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { failS3(w, status, code, "") }
	}
	for name, fault := range map[string]func(string, int, http.ResponseWriter, *http.Request) bool{
		"503":     firstOfEach("get", s3(503, "SlowDown")),
		"hang up": firstOfEach("get", hangUp),
		"expired": firstOfEach("get", s3(403, "AccessDenied")),
		"cut": firstOfEach("get", func(w http.ResponseWriter, r *http.Request) {
			var from, to int
			fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
			w.Header().Set("Content-Length", fmt.Sprint(to-from+1))
			w.WriteHeader(206)
			_, _ = w.Write(data[from : from+min(1000, to-from)])
			panic(http.ErrAbortHandler)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			id := f.store(data)
			f.fault = fault
			if err := get(t, f, id); err != nil {
				t.Error(err)
			}
		})
	}
	for name, tc := range map[string]struct {
		do   func(http.ResponseWriter, *http.Request)
		most int
	}{
		"404":      {s3(404, "NoSuchKey"), 2},
		"denied":   {s3(403, "AccessDenied"), 4},
		"no range": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }, 2},
		"wrong range": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 1-2/3")
			w.WriteHeader(206)
		}, 2},
		"down": {s3(503, ""), 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			id := f.store(data)
			f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
				if kind == "get" {
					tc.do(w, r)
				}
				return kind == "get"
			}
			err := get(t, f, id)
			if err == nil || f.count("get") > tc.most {
				t.Errorf("%v after %d requests", err, f.count("get"))
			}
			if err != nil && (strings.Contains(err.Error(), "Signature=") || strings.Contains(err.Error(), f.URL)) {
				t.Errorf("the error holds a URL: %v", err)
			}
		})
	}
	t.Run("another version", func(t *testing.T) {
		t.Parallel()
		f := newFake(t)
		id := f.store(data)
		f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
			switch {
			case kind == "get":
				failS3(w, 403, "AccessDenied", "Request has expired")
			case kind == "url" && n > 1:
				u := f.only()
				answer(w, 200, wire.ContentURL{URL: f.URL + "/s3/x", Method: "GET", ExpiresAt: time.Now().Add(time.Hour), Size: u.Size,
					Checksum: u.File.Checksum, PartSize: u.PartSize, VersionID: "v2"})
			default:
				return false
			}
			return true
		}
		if err := get(t, f, id); !errors.Is(err, ErrChanged) {
			t.Errorf("error: %v", err)
		}
	})
}

// TestGetResumesOnlyItsOwn: what an earlier call left of another version, or of another
// file, is not built upon.
func TestGetResumesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	data := random(t, 23*unit)
	id := f.store(data)
	path := filepath.Join(t.TempDir(), "f")
	c := f.client()
	r, err := c.openReading(t.Context(), id, GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := newGetState(path+stateSuffix, r)
	for i := range r.ranges {
		if err := all.add(i, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(){
		"version":  func() { all.VersionID = "v0" },
		"file":     func() { all.VersionID, all.FileID = r.url.VersionID, "fil_other" },
		"checksum": func() { all.FileID, all.Checksum = id, "sha256 composite x" },
		"range":    func() { all.Checksum, all.Range = r.checksumText(), 1 },
		"bitmap":   func() { all.Range, all.Done = r.rangeOf(), nil },
		"junk":     nil,
	} {
		if change == nil {
			if err := os.WriteFile(path+stateSuffix, []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			change()
			if all.of(r) {
				t.Errorf("%s: taken for ours", name)
			}
			if err := all.save(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path+partSuffix, make([]byte, len(data)), 0o600); err != nil {
			t.Fatal(err)
		}
		res, err := c.GetFile(t.Context(), id, path, GetOptions{})
		if err != nil || res.Held != 0 {
			t.Errorf("%s: %v, %+v", name, err, res)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, data) {
			t.Errorf("%s: other bytes", name)
		}
		_ = os.Remove(path)
		all.Version, all.VersionID, all.FileID, all.Checksum, all.Range = stateVersion, r.url.VersionID, id, r.checksumText(), r.rangeOf()
	}
	// The negative control: its own state with wrong bytes beneath is built upon, and
	// found out by the checksum.
	good := newGetState(path+stateSuffix, r)
	if err := good.add(0, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+partSuffix, make([]byte, len(data)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetFile(t.Context(), id, path, GetOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wrong bytes under its own state: %v", err)
	}
}

// TestFiles: the list goes through all pages, and stops where its user does.
func TestFiles(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/files" {
			return false
		}
		q := r.URL.Query()
		if q.Get("collection") != "a b" || q.Get("state") != "active" || q.Get("limit") != "2" {
			t.Errorf("query %v", q)
		}
		switch q.Get("cursor") {
		case "":
			answer(w, 200, wire.FileList{Files: []wire.File{{ID: "1"}, {ID: "2"}}, NextCursor: "x/+"})
		case "x/+":
			answer(w, 200, wire.FileList{Files: []wire.File{{ID: "3"}}, NextCursor: "stuck"})
		default:
			answer(w, 200, wire.FileList{Files: []wire.File{}, NextCursor: "stuck"})
		}
		return true
	}
	var ids []string
	var last error
	for file, err := range f.client().Files(t.Context(), ListOptions{Collection: "a b", State: "active", PageSize: 2}) {
		if last = err; err == nil {
			ids = append(ids, file.ID)
		}
	}
	if strings.Join(ids, "") != "123" || last == nil {
		t.Errorf("%v, %v: a cursor that does not move must end it", ids, last)
	}
	n := f.count("file") + f.count("")
	for range f.client().Files(t.Context(), ListOptions{Collection: "a b", State: "active", PageSize: 2}) {
		break
	}
	if got := f.count("file") + f.count("") - n; got > 1 {
		t.Errorf("%d requests for the first file", got)
	}
}
