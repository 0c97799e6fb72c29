package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"berth/cmd/berthd/config"
	"berth/models"
)

// reloads takes new policies for collections on SIGHUP, all of them or none: a file with a
// mistake is refused as a whole, and what is in force stays. Everything else in the
// configuration needs a restart. Sessions that are open keep what was written into their
// rows.
func reloads(load func() (*config.Config, error), take func(map[string]models.Collection) error, log *slog.Logger) func(context.Context) {
	hups := make(chan os.Signal, 1)
	// From now on, not only once the loop runs, and for good, since requests are answered for a
	// while after it: the default is to end.
	signal.Notify(hups, syscall.SIGHUP)
	return func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hups:
			}
			c, err := load()
			if err == nil {
				err = take(c.Policies())
			}
			if err != nil {
				log.Error("SIGHUP: the new configuration is refused; the old one stays", "err", err)
				continue
			}
			names := make([]string, 0, len(c.Collections))
			for name := range c.Collections {
				names = append(names, name)
			}
			slices.Sort(names)
			log.Info("SIGHUP: collections reloaded", "collections", names)
		}
	}
}
