package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"berth/internal/parts"
	"berth/internal/testkit"
)

type execCmd struct {
	Command []string `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Run starts the parts once, for all test binaries that the command runs.
func (c *execCmd) Run() error {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return errors.New("exec: no command")
	}
	// A ^C reaches the command too, which ends by it; we stay to clean up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start, cancel := context.WithTimeout(ctx, time.Minute)
	v, err := parts.StartVolatile(start)
	cancel()
	if err != nil {
		return err
	}
	shared, err := json.Marshal(v.Shared)
	if err != nil {
		return errors.Join(err, v.Stop())
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), testkit.PartsEnv+"="+string(shared))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if stopErr := v.Stop(); err == nil {
		return stopErr
	}
	return err
}
