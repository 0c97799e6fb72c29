package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"berth/client"
	"berth/client/wire"
	"berth/models"
)

type putCommand struct {
	Files []string `arg:"" name:"file" help:"Files to send; - is the standard input, with --size."`

	Collection string `short:"c" default:"default" help:"The collection, whose rules the files must keep."`
	Name       string `short:"n" help:"Name of the record; the file's own name if not given. For one file only."`
	Type       string `short:"t" help:"Media type; guessed from the extension if not given."`
	Metadata   string `short:"m" placeholder:"JSON" help:"A JSON object to keep with the record."`
	Commit     string `enum:",auto,deferred" default:"" help:"auto or deferred; the collection's if not given. A deferred upload becomes a file when it is committed."`
	Algorithm  string `name:"checksum-algorithm" enum:",sha256,crc64nvme,crc32c" default:"" help:"sha256, crc64nvme or crc32c; the collection's if not given."`
	Size       int64  `default:"-1" help:"Bytes that the standard input will give, exactly."`

	Parallel int   `short:"p" default:"5" help:"Parts of one file that travel at once."`
	Jobs     int   `short:"j" default:"16" help:"Small files that travel at once."`
	Memory   int64 `default:"80" help:"MiB of memory for parts, for all files together."`

	Declare   bool          `help:"Read each large file twice, to state its checksum beforehand: one that is there already is not sent."`
	NoResume  bool          `help:"Keep no state for a later run to go on from."`
	Restart   bool          `help:"Forget what an earlier run left, and begin anew."`
	StateDir  string        `env:"BERTH_STATE_DIR" type:"path" help:"Where that state lies; \"berth\" in the user's cache if not given."`
	Abort     bool          `name:"abort-on-interrupt" help:"When interrupted, give the uploads up at the server instead of keeping them for later."`
	WaitLimit time.Duration `name:"wait" default:"10m" help:"How long to wait, after the last byte, for a file to become active."`
}

// putLine is one file's result in JSON.
type putLine struct {
	Path    string     `json:"path"`
	Upload  string     `json:"upload_id,omitempty"`
	State   string     `json:"state"` // of the file, or of the upload if its commit is deferred
	Size    int64      `json:"size"`
	Sent    int64      `json:"sent"` // bytes
	Instant bool       `json:"instant,omitempty"`
	Resumed bool       `json:"resumed,omitempty"`
	Seconds float64    `json:"seconds"`
	File    *wire.File `json:"file,omitempty"`
}

// smallFile is the size in bytes up to which many travel at once; of larger ones, two,
// so that one sends while the other is completed.
const (
	smallFile  = 16 << 20
	largeFiles = 2
)

func (p *putCommand) check() error {
	switch {
	case p.Parallel < 1 || p.Parallel > client.MaxParallel:
		return usagef("--parallel must be 1 to %d", client.MaxParallel)
	case p.Jobs < 1 || p.Jobs > 256:
		return usagef("--jobs must be 1 to 256")
	case p.Memory < 1 || p.Memory > 1<<20:
		return usagef("--memory must be 1 to %d MiB", 1<<20)
	case p.Name != "" && len(p.Files) > 1:
		return usagef("--name is for one file")
	case p.Metadata != "" && !json.Valid([]byte(p.Metadata)):
		return usagef("--metadata is not JSON")
	case p.WaitLimit <= 0:
		return usagef("--wait must be positive")
	}
	stdin := 0
	for _, f := range p.Files {
		if f == "-" {
			stdin++
		}
	}
	switch {
	case stdin > 1:
		return usagef("the standard input can be sent once")
	case stdin == 1 && p.Size < 0:
		return usagef("the standard input has no size, and S3 wants one before the first byte: give --size BYTES, or put the data into a file first")
	case stdin == 0 && p.Size >= 0:
		return usagef("--size is for the standard input; files have their own")
	}
	return nil
}

func (p *putCommand) Run(e *env) error {
	if err := p.check(); err != nil {
		return err
	}
	c, err := e.client(client.WithParallel(p.Parallel), client.WithMemory(p.Memory<<20))
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	dir := ""
	if !p.NoResume {
		if dir = p.StateDir; dir == "" {
			if dir, err = client.DefaultStateDir(); err != nil {
				fmt.Fprintf(e.stderr, "berth: %v: uploads cannot be resumed\n", err)
				dir = ""
			}
		}
	}

	// Looked at first, so that the bar knows its end. What is not there fails in its turn.
	sizes, total := make([]int64, len(p.Files)), int64(0)
	for i, f := range p.Files {
		if f == "-" {
			sizes[i] = p.Size
		} else if fi, err := os.Stat(f); err == nil && fi.Mode().IsRegular() {
			sizes[i] = fi.Size()
		}
		total += sizes[i]
	}
	show := newProgress(e.stderr, e.root.Quiet || e.root.JSON, len(p.Files), total)

	var mu sync.Mutex
	var sum several
	kept := 0
	one := func(i int) {
		line, keeps, err := p.one(e, c, show, dir, p.Files[i], sizes[i])
		mu.Lock()
		defer mu.Unlock()
		sum.add(e.ctx, err)
		if keeps {
			kept++
		}
		switch {
		case err == nil && e.root.JSON:
			e.json(line)
		case err == nil:
			show.print(e.stdout, line.text())
		default:
			if e.root.JSON {
				e.json(e.failureOf(p.Files[i], line.Upload, err))
			}
			show.print(e.stderr, "berth: "+printable(err.Error()))
		}
	}
	small, large := make(chan struct{}, p.Jobs), make(chan struct{}, largeFiles)
	var wg sync.WaitGroup
	for i := range p.Files {
		slots := small
		if sizes[i] > smallFile {
			slots = large
		}
		select {
		case slots <- struct{}{}:
		case <-e.ctx.Done():
		}
		if e.ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			one(i)
		})
	}
	wg.Wait()
	show.close()
	if e.ctx.Err() != nil {
		if kept > 0 {
			fmt.Fprintln(e.stderr, "berth: interrupted; what was sent is kept until the upload's deadline: run the same command again to go on")
		} else {
			fmt.Fprintln(e.stderr, "berth: interrupted")
		}
		return toldError{exitInterrupted}
	}
	return sum.err()
}

// one sends one file. keeps tells whether a later run can go on with it.
func (p *putCommand) one(e *env, c *client.Client, show *progress, dir, path string, size int64) (line putLine, keeps bool, err error) {
	line = putLine{Path: path, Size: size}
	f := show.add(path, size)
	defer f.end()
	opened := false
	o := client.PutOptions{
		Collection: p.Collection, Name: p.Name, ContentType: p.Type, Commit: p.Commit, Algorithm: models.Algorithm(p.Algorithm),
		Declare: p.Declare, StateDir: dir, Restart: p.Restart, AbortOnCancel: p.Abort, Wait: p.WaitLimit,
		Opened: func(up wire.Upload, held int64) {
			opened = true
			line.Upload = up.ID
			f.resize(up.Size)
			f.skip(held)
		},
		Moved: f.moved,
		Note:  func(s string) { show.print(e.stderr, "berth: "+printable(path)+": "+printable(s)) },
	}
	if p.Metadata != "" {
		o.Metadata = json.RawMessage(p.Metadata)
	}
	begun := time.Now()
	var res *client.PutResult
	if path == "-" {
		if o.Name == "" {
			o.Name = "stdin"
		}
		if o.ContentType == "" {
			o.ContentType = typeOf(o.Name)
		}
		res, err = c.PutReader(e.ctx, e.stdin, p.Size, o)
	} else {
		if o.ContentType == "" {
			o.ContentType = typeOf(path)
		}
		res, err = c.PutFile(e.ctx, path, o)
	}
	line.Seconds = time.Since(begun).Seconds()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return line, false, err
	}
	if err != nil {
		return line, opened && dir != "" && path != "-" && size > smallFile && !p.Abort, err
	}
	line.Size, line.Sent, line.Instant, line.Resumed, line.File = res.Upload.Size, res.Sent, res.Instant, res.Resumed, res.File
	line.State = res.Upload.State
	if res.File != nil {
		line.State = res.File.State
	}
	return line, false, nil
}

// text is the result for people: id, state, size, time, rate, path, and what was special.
func (l putLine) text() string {
	id := l.Upload
	if l.File != nil {
		id = l.File.ID
	}
	d := time.Duration(l.Seconds * float64(time.Second))
	s := fmt.Sprintf("%s  %s  %s  %s", id, l.State, bytesText(l.Size), durationText(d))
	if l.Sent > 0 {
		s += "  " + rateText(l.Sent, d)
	}
	s += "  " + printable(l.Path)
	switch {
	case l.Instant:
		s += "  (was there already)"
	case l.Resumed:
		s += "  (resumed: sent " + bytesText(l.Sent) + ")"
	}
	if l.File == nil {
		s += "  (verified; becomes a file when it is committed)"
	}
	return s
}
