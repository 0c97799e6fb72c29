package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type upCmd struct{}

// Run is done when berthd answers. A second one finds the first's cloud.
func (upCmd) Run() error {
	p, err := here()
	if err != nil {
		return err
	}
	begun := time.Now()
	s, err := spawn(p, false)
	if err != nil {
		return err
	}
	// We leave it behind; the system looks after it then.
	defer func() { _ = s.cmd.Process.Release() }()
	if err := s.ready(); errors.Is(err, errTaken) {
		return already(p)
	} else if err != nil {
		return err
	}
	vars, err := readEnv(p.env())
	if err != nil {
		return err
	}
	fmt.Printf("the local cloud is up in %.1f s\n", time.Since(begun).Seconds())
	fmt.Printf("  upload page   %s\n  variables     .dev/env (set -a; . .dev/env; set +a)\n  logs          .dev/log\n  stop it with  make down\n", pageLink(vars))
	return nil
}

// pageLink opens the upload page signed in: the fragment reaches no server and no log.
func pageLink(vars map[string]string) string { return vars[envURL] + "/#token=" + vars[envToken] }

// already waits for the cloud that another supervisor runs or is starting.
func already(p place) error {
	pid, err := p.supervisor()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	for {
		vars, err := readEnv(p.env())
		if err == nil {
			err = ready(ctx, vars[envURL])
		}
		if err == nil {
			fmt.Printf("the local cloud is up already (process %d), at %s\n", pid, pageLink(vars))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the supervisor (process %d) runs, but berthd does not answer: %w; see .dev/log", pid, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type downCmd struct{}

func (downCmd) Run() error {
	p, err := here()
	if err != nil {
		return err
	}
	return down(p)
}

const downDeadline = 60 * time.Second

// down stops the supervisor and waits until it has stopped its parts.
func down(p place) error {
	pid, err := p.supervisor()
	if err != nil {
		return fmt.Errorf("down: %w", err)
	}
	if pid == 0 {
		fmt.Println("the local cloud is not running")
		return nil
	}
	proc, err := os.FindProcess(pid)
	if err == nil {
		err = proc.Signal(syscall.SIGTERM)
	}
	if err != nil {
		return fmt.Errorf("down: process %d: %w", pid, err)
	}
	killed := false
	for until := time.Now().Add(downDeadline); ; {
		// The lock is given back last of all.
		free, err := tryLock(p.lock())
		if err != nil {
			return fmt.Errorf("down: %w", err)
		}
		if free != nil {
			free.Close()
			break
		}
		if time.Now().After(until) {
			if killed {
				return fmt.Errorf("down: process %d does not end", pid)
			}
			// Its children end with it.
			_ = proc.Kill()
			killed, until = true, time.Now().Add(10*time.Second)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("the local cloud is down; its data stays in .dev")
	return nil
}

// supervisor is the process that spawn started, seen from its starter.
type supervisor struct {
	cmd      *exec.Cmd
	progress *os.File
}

var errTaken = errors.New("another supervisor runs")

// spawn starts the supervisor, in a session of its own. Attached, it is asked
// to stop when we die. Call it from the main goroutine: see init.
func spawn(p place, attached bool) (*supervisor, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := os.MkdirAll(filepath.Dir(p.log("supervisor")), 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.log("supervisor"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(exe, "supervise", "--progress-fd=3")
	cmd.Dir = p.root
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{w}
	// kumo keeps its queues in files if this is set when a process begins.
	cmd.Env = append(os.Environ(), "KUMO_DATA_DIR="+p.sqs())
	cmd.SysProcAttr = supervisorAttr(attached)
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	return &supervisor{cmd: cmd, progress: r}, nil
}

// ready passes the progress on to people and returns when the cloud is up.
func (s *supervisor) ready() error {
	defer s.progress.Close()
	lines := bufio.NewScanner(s.progress)
	for lines.Scan() {
		line := strings.ReplaceAll(lines.Text(), "\x00", "\n")
		if text, ok := strings.CutPrefix(line, progressSay); ok {
			fmt.Println("  " + text)
		} else if text, ok := strings.CutPrefix(line, progressError); ok {
			return errors.New(text)
		} else if line == progressTaken {
			return errTaken
		} else if line == progressReady {
			return nil
		}
	}
	return errors.New("the supervisor ended without a word; see .dev/log/supervisor.log")
}
