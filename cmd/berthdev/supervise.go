package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type superviseCmd struct {
	ProgressFD uint `name:"progress-fd" help:"Where to tell the starter how it goes."`
}

// The lines of the progress: text for people, and how it ended.
const (
	progressSay   = "say "
	progressReady = "ready"
	progressError = "error "
	progressTaken = "taken" // somebody else supervises
)

const startDeadline = 90 * time.Second

// Run holds the lock and the parts until it is told to stop or one of them ends.
// The parts are this process's children and end with it.
func (s *superviseCmd) Run() error {
	p, err := here()
	if err != nil {
		return err
	}
	tell := teller(s.ProgressFD)
	lock, err := tryLock(p.lock())
	if err != nil {
		tell(progressError + err.Error())
		return err
	}
	if lock == nil {
		tell(progressTaken)
		return nil
	}
	defer lock.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := replaceFile(p.pid(), []byte(strconv.Itoa(os.Getpid())+"\n")); err != nil {
		tell(progressError + err.Error())
		return err
	}
	defer os.Remove(p.pid())
	for _, part := range []string{"postgres", "versitygw", "berthd"} {
		keepOldLog(p.log(part))
	}
	c := &cloud{place: p, say: func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		slog.Info(text)
		tell(progressSay + text)
	}}
	start, cancel := context.WithTimeout(ctx, startDeadline)
	err = c.start(start)
	cancel()
	if err == nil {
		tell(progressReady)
		err = c.wait(ctx)
	} else if ctx.Err() != nil {
		err = errors.New("told to stop while starting")
	}
	if err != nil {
		slog.Error("stopping", "why", err.Error())
	}
	stopErr := c.stop()
	if stopErr != nil {
		slog.Error("stop", "error", stopErr.Error())
	}
	// The starter hears of a failed start only when nothing is left of it.
	if err != nil {
		tell(progressError + err.Error())
	}
	return errors.Join(err, stopErr)
}

// teller writes lines to the starter, until the one that ends the start. A
// starter that is gone does not matter.
func teller(fd uint) func(string) {
	if fd == 0 {
		return func(string) {}
	}
	var mu sync.Mutex
	f := os.NewFile(uintptr(fd), "progress")
	signal.Ignore(syscall.SIGPIPE)
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintln(f, strings.ReplaceAll(line, "\n", "\x00"))
		if !strings.HasPrefix(line, progressSay) {
			f.Close()
		}
	}
}

// keepOldLog begins a new log and keeps the last one.
func keepOldLog(file string) {
	_ = os.MkdirAll(filepath.Dir(file), 0o755)
	_ = os.Rename(file, file+".old")
}
