// Command berth sends files straight to S3 under Berth's control, and reads, lists
// and removes them. It is for people with large files.
//
// It owns the command line, progress and exit codes; what a transfer does is the
// client's. It imports client, client/wire and models.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"berth/client"

	"github.com/alecthomas/kong"
)

const description = `Send files straight to S3 under Berth's control, and read, list and remove them.

The server and the token come from BERTH_URL and BERTH_TOKEN, or from flags. A token on a command line
can be read by everybody on the machine: prefer the variable, or a file.

Exit codes:

    0    done
    1    failed: network, server, disk
    2    the command line makes no sense
    3    not found: no such file here, or no such id there
    4    refused: type, size, quota, duplicate, name, or blocked by a check
    5    the file has changed, or its checksum does not match
    6    not allowed: no token, or one that is not good for this
    7    some of several files failed, others did not
    130  interrupted
`

type command struct {
	URL       string           `name:"url" env:"BERTH_URL" default:"http://127.0.0.1:8080" help:"The server."`
	Token     string           `env:"BERTH_TOKEN" help:"Bearer token."`
	TokenFile string           `env:"BERTH_TOKEN_FILE" type:"path" help:"File with the token; read again when the server refuses it."`
	JSON      bool             `name:"json" help:"Answer in JSON, one object a line."`
	Quiet     bool             `short:"q" help:"No progress."`
	Version   kong.VersionFlag `help:"Show the version."`

	Put    putCommand    `cmd:"" help:"Send files."`
	Get    getCommand    `cmd:"" help:"Read a file, check it, put it in place."`
	Ls     lsCommand     `cmd:"" help:"List files, newest first."`
	Status statusCommand `cmd:"" help:"Show a file (fil_…) or an upload (upl_…)."`
	Rm     rmCommand     `cmd:"" help:"Delete files (fil_…), abort uploads (upl_…)."`
}

// env is what a command runs in.
type env struct {
	ctx            context.Context
	root           *command
	stdin          io.Reader
	stdout, stderr io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-ctx.Done()
		stop() // a second one ends the program at once
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// exitNow carries the exit that kong asks for after --help and --version.
type exitNow int

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	defer func() {
		if e := recover(); e != nil {
			n, ok := e.(exitNow)
			if !ok {
				panic(e)
			}
			code = int(n)
		}
	}()
	var c command
	parser, err := kong.New(&c, kong.Name("berth"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Vars{"version": version()}, kong.Exit(func(n int) { panic(exitNow(n)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}))
	if err != nil {
		panic(err) // the tags above are wrong
	}
	k, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "berth: %v (see berth --help)\n", err)
		return exitUsage
	}
	e := &env{ctx: ctx, root: &c, stdin: stdin, stdout: stdout, stderr: stderr}
	err = k.Run(e)
	var told toldError
	if err != nil && !errors.As(err, &told) {
		e.fail(err)
	}
	return exitCode(ctx, err)
}

// client connects the command to the server.
func (e *env) client(opts ...client.Option) (*client.Client, error) {
	if e.root.TokenFile != "" && e.root.Token == "" {
		path := e.root.TokenFile
		opts = append(opts, client.WithTokenSource(func(context.Context, bool) (string, error) { return readToken(path) }))
	}
	c, err := client.New(e.root.URL, e.root.Token, append(opts, client.WithUserAgent("berth/"+version()))...)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// readToken reads a token from the first line of a small file.
func readToken(path string) (string, error) {
	f, err := os.Open(path) // #nosec G304 -- the user's
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	line = strings.TrimSpace(line)
	if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s holds no token in its first line", path)
	}
	return line, nil
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return strings.Trim(info.Main.Version, "()")
}
