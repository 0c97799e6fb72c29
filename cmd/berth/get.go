package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"berth/client"
	"berth/client/wire"
)

type getCommand struct {
	ID       string `arg:"" help:"The file, fil_…"`
	Output   string `short:"o" placeholder:"PATH" help:"Where to: a file, a folder, or - for the standard output. The record's name in this folder if not given."`
	Force    bool   `short:"f" help:"Replace a file that is there."`
	Restart  bool   `help:"Forget what an earlier run had read."`
	Parallel int    `short:"p" default:"5" help:"Ranges that travel at once."`
}

type getLine struct {
	ID        string        `json:"id"`
	Path      string        `json:"path"`
	Size      int64         `json:"size"`
	VersionID string        `json:"version_id"`
	Checksum  wire.Checksum `json:"checksum"`
	Verified  bool          `json:"verified"`
	Resumed   bool          `json:"resumed,omitempty"`
	Seconds   float64       `json:"seconds"`
}

func (g *getCommand) Run(e *env) error {
	if g.Parallel < 1 || g.Parallel > client.MaxParallel {
		return usagef("--parallel must be 1 to %d", client.MaxParallel)
	}
	c, err := e.client(client.WithParallel(g.Parallel))
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	path, err := g.target(e, c)
	if err != nil {
		return err
	}
	show := newProgress(e.stderr, e.root.Quiet || (e.root.JSON && path != "-"), 1, 0)
	f := show.add(path, 0)
	kept := int64(0)
	o := client.GetOptions{
		Force: g.Force, Restart: g.Restart,
		Opened: func(u wire.ContentURL, held int64) {
			f.resize(u.Size)
			f.skip(held)
			kept = u.Size
		},
		Moved: f.moved,
	}
	begun := time.Now()
	var res *client.GetResult
	if path == "-" {
		res, err = c.GetStream(e.ctx, g.ID, e.stdout, o)
	} else {
		res, err = c.GetFile(e.ctx, g.ID, path, o)
	}
	f.end()
	show.close()
	switch {
	case err != nil && e.ctx.Err() != nil:
		if path != "-" && kept > 0 {
			fmt.Fprintln(e.stderr, "berth: interrupted; what was read is kept beside the target: run the same command again to go on")
		} else {
			fmt.Fprintln(e.stderr, "berth: interrupted")
		}
		return toldError{exitInterrupted}
	case errors.Is(err, client.ErrExists):
		return fmt.Errorf("%w (--force replaces it)", err)
	case err != nil:
		return err
	}
	line := getLine{ID: g.ID, Path: path, Size: res.Size, VersionID: res.VersionID, Checksum: res.Checksum,
		Verified: res.Checksum.Value != "", Resumed: res.Held > 0, Seconds: time.Since(begun).Seconds()}
	switch {
	case path == "-":
	case e.root.JSON:
		e.json(line)
	default:
		fmt.Fprintln(e.stdout, line.text(res.Size-res.Held))
	}
	return nil
}

func (l getLine) text(moved int64) string {
	d := time.Duration(l.Seconds * float64(time.Second))
	s := fmt.Sprintf("%s  %s  %s  %s", printable(l.Path), bytesText(l.Size), durationText(d), rateText(moved, d))
	if l.Verified {
		s += "  " + checksumText(l.Checksum) + " verified"
	} else {
		s += "  no checksum to verify by"
	}
	if l.Resumed {
		s += "  (resumed: read " + bytesText(moved) + ")"
	}
	return s
}

// target is where the file goes. The record's name is asked for only if it is needed.
func (g *getCommand) target(e *env, c *client.Client) (string, error) {
	dir := "."
	if g.Output == "-" {
		return "-", nil
	}
	if g.Output != "" {
		fi, err := os.Stat(g.Output)
		if err != nil || !fi.IsDir() {
			return g.Output, nil
		}
		dir = g.Output
	}
	f, err := c.File(e.ctx, g.ID)
	if err != nil {
		return "", err
	}
	return client.PathFor(dir, f.Name), nil
}
