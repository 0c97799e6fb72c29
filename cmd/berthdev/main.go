// Command berthdev runs the local cloud: a private PostgreSQL, versitygw as S3,
// kumo as SQS, the bridge between them, and berthd on top, all on loopback and
// all under .dev. It also lends such parts to the tests.
//
// It owns .dev and what is in it, and nothing of what the parts do. It joins
// internal/parts, internal/testkit's environment and berthd's configuration;
// berthd and berth are programs to it, started from .dev/bin.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"berth/internal/parts"

	"github.com/alecthomas/kong"
)

type cli struct {
	Run  runCmd  `cmd:"" help:"Start the local cloud, send a file of 200 MiB through it, serve until ^C."`
	Up   upCmd   `cmd:"" help:"Start the local cloud in the background and write .dev/env."`
	Down downCmd `cmd:"" help:"Stop it; its data stays."`

	Exec  execCmd  `cmd:"" help:"Run a command, such as go test, with the parts that tests need."`
	Clean cleanCmd `cmd:"" help:"Stop the local cloud and remove all its data."`

	Supervise superviseCmd `cmd:"" hidden:"" help:"Be the process that the parts belong to (run and up start it)."`
}

func init() {
	// The main goroutine stays on the main thread, which lives as long as the
	// process: a supervisor started from here with a death signal gets it when
	// we end, not when a thread does.
	runtime.LockOSThread()
}

func main() {
	var c cli
	ctx := kong.Parse(&c, kong.Name("berthdev"), kong.Description("Berth's local cloud."), kong.UsageOnError())
	err := ctx.Run()
	// The command's own exit code, from exec.
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "berthdev:", err)
		os.Exit(1)
	}
}

// here is the place of the project that we are in.
func here() (place, error) {
	root, err := parts.ProjectRoot()
	return place{root: root}, err
}
