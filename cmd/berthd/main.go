// Command berthd is Berth's server. It joins the rooms: it reads the configuration,
// makes each part and hands it to those that need it. One file per command.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"berth/cmd/berthd/config"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitFailed = 1 // what was asked could not be done
	exitUsage  = 2 // the command line or the configuration is wrong
	exitKilled = 3 // a second signal
)

type commands struct {
	Serve     serveCmd     `cmd:"" help:"Serve, until SIGTERM or SIGINT: finishes what is in flight, then ends. A second signal ends at once."`
	Migrate   migrateCmd   `cmd:"" help:"Bring the database's schema to this version. Several may run it at once."`
	Doctor    doctorCmd    `cmd:"" help:"Look at the real database, buckets, queue and clocks, and say what must be mended, and how."`
	Health    healthCmd    `cmd:"" help:"Ask the process on this machine whether it is ready; for health checks of containers."`
	Reconcile reconcileCmd `cmd:"" help:"Compare what the rows say with what the stores hold; mend it with --repair."`
	Token     tokenCmd     `cmd:"" help:"Make a token for development and print it."`
	Events    eventsCmd    `cmd:"" help:"Care for the queue of notifications."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
}

// configFlag is the --config of the commands that need the configuration.
type configFlag struct {
	Config string `help:"The configuration file. Without one, the environment is all: see example.yaml." type:"path" env:"BERTH_CONFIG" placeholder:"FILE"`
}

func (f configFlag) load() (*config.Config, error) {
	if text := os.Getenv(config.TextEnv); f.Config == "" && text != "" {
		return config.LoadText(text)
	}
	return config.Load(f.Config)
}

// streams are where a command prints what was asked for, and everything else.
type streams struct{ out, err io.Writer }

func main() {
	if os.Getenv("GOGC") == "" {
		// What is alive is small, a few MB; to collect only when it has grown fourfold spares a
		// tenth of the processor and costs less memory than one connection to PostgreSQL.
		debug.SetGCPercent(400)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals // asks to stop
		cancel()
		<-signals // asks again
		os.Exit(exitKilled)
	}()
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdout, os.Stderr}))
}

func run(ctx context.Context, args []string, s streams) int {
	var c commands
	exit := -1
	parser, err := kong.New(&c, kong.Name("berthd"),
		kong.Description("Berth: presigned uploads straight to object storage."),
		kong.Writers(s.out, s.err), kong.Exit(func(code int) { exit = code }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(s), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(s.err, "berthd:", err)
		return exitFailed
	}
	command, err := parser.Parse(args)
	if exit >= 0 { // --help has printed
		return exit
	}
	if err != nil {
		fmt.Fprintln(s.err, "berthd:", err)
		return exitUsage
	}
	if err := command.Run(); err != nil {
		fmt.Fprintln(s.err, "berthd:", err)
		if errors.As(err, new(config.Mistakes)) || errors.As(err, new(usageError)) {
			return exitUsage
		}
		return exitFailed
	}
	return 0
}

// usageError is a mistake in the command line that the parser cannot see.
type usageError string

func (e usageError) Error() string { return string(e) }
