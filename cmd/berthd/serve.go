package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"berth/cmd/berthd/config"
	"berth/controlplane/httpapi"
	"berth/models"
	"berth/tracing"
)

// Time limits of connections, and of the end. The write limit is above the longest
// request, which is a complete of many parts.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = time.Minute
	writeTimeout      = httpapi.DefaultCompleteTimeout + 30*time.Second
	idleTimeout       = 2 * time.Minute
	maxHeader         = 32 << 10         // bytes; tokens have at most 8 KiB
	stopTimeout       = 15 * time.Second // after the delay
)

type serveCmd struct {
	configFlag
	Role []config.Role `help:"What to do, in place of the configuration's roles: api, events, worker." placeholder:"ROLE"`
}

// Run serves until ctx ends.
func (s serveCmd) Run(ctx context.Context, std streams) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	for _, r := range s.Role {
		if r != config.RoleAPI && r != config.RoleEvents && r != config.RoleWorker {
			return usageError(fmt.Sprintf("--role: %q is none of api, events, worker", string(r)))
		}
	}
	if len(s.Role) > 0 {
		c.Roles = s.Role
	}
	log := newLog(c.Log, std.err)
	slog.SetDefault(log)
	app, err := build(ctx, c, log)
	if err != nil {
		return err
	}
	defer app.close()
	app.loops["reload"] = reloads(s.load, app.policies, log)
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	v, commit := version()
	log.Info("berthd serves", "version", v, "commit", commit, "address", listener.Addr().String(), "roles", c.Roles,
		"stores", len(c.Stores), "collections", len(c.Collections))
	return app.run(ctx, listener)
}

func newLog(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // checked by the configuration
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "text" {
		return slog.New(tracedLog{slog.NewTextHandler(w, o)})
	}
	return slog.New(tracedLog{slog.NewJSONHandler(w, o)})
}

// app is what a process runs: the HTTP server and the loops of its roles.
type app struct {
	log      *slog.Logger
	trace    *tracing.Tracer
	handler  http.Handler
	loops    map[string]func(context.Context) // each returns soon after its context ends
	delay    time.Duration                    // for which requests are still taken after the end was asked for
	stopping atomic.Bool                      // readiness is refused, so that balancers look elsewhere
	close    func()
	policies func(map[string]models.Collection) error // replaces them, all or none
}

// run serves until ctx ends or the server fails. Then the loops finish or give back what
// they hold, requests are taken for as long as those who send them may take to see that
// it is not ready any more, and what is in flight after that is finished.
func (a *app) run(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	taken := &conns{busy: map[net.Conn]time.Time{}}
	server := &http.Server{
		Handler:           a.closing(a.handler),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnState:         taken.note,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	var loops sync.WaitGroup
	for name, loop := range a.loops {
		loops.Go(func() {
			loop(ctx)
			a.log.Info("loop ended", "loop", name)
		})
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	var err error
	select {
	case <-ctx.Done():
		a.log.Info("stopping: no new work is taken", "stop_delay", a.delay.String())
		a.stopping.Store(true)
		select {
		case <-time.After(a.delay):
			_ = l.Close()
			if end := <-served; !errors.Is(end, net.ErrClosed) { // now all that it took is noted
				err = end
			}
		case err = <-served:
		}
	case err = <-served:
	}
	if err != nil {
		err = fmt.Errorf("serve: %w", err)
	}
	a.stopping.Store(true)
	cancel()
	return errors.Join(err, a.stop(server, taken, &loops))
}

// closing tells those who have a connection open to make their next one elsewhere. A
// connection that is idle when the server closes it may have a request on its way.
func (a *app) closing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

func (a *app) stop(server *http.Server, taken *conns, loops *sync.WaitGroup) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() { loops.Wait(); close(ended) }()
	taken.wait(ctx)
	err := server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop: requests in flight were cut off: %w", err), server.Close())
	}
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, errors.New("stop: a loop did not end in time; its leases will"))
	}
	a.log.Info("stopped")
	return err
}
