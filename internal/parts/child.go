package parts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command describes a child process.
type Command struct {
	Part string   // for messages: "postgres"
	Path string   // of the program
	Args []string // without the program's name
	Env  []string // nil: the parent's
	Dir  string   // empty: the parent's
	Log  string   // file that both outputs are appended to; empty: only the tail is kept
	User *User    // nil: the parent's

	// Stop asks the child to end in an orderly way; DeathSignal is what the
	// kernel sends it when the parent dies.
	Stop        os.Signal
	DeathSignal syscall.Signal
}

// Child is a running process that Start started.
type Child struct {
	part string
	stop os.Signal
	proc *os.Process
	tail *tail
	done chan struct{}
	err  error // of Wait; readable after done
}

// Start runs c. The child ends when Stop is called or when this process ends,
// whichever comes first.
func Start(c Command) (*Child, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.SysProcAttr = sysProcAttr(c.DeathSignal, c.User)
	ch := &Child{part: c.Part, stop: c.Stop, tail: &tail{}, done: make(chan struct{})}
	var out io.Writer = ch.tail
	var file *os.File
	if c.Log != "" {
		var err error
		if file, err = os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return nil, fmt.Errorf("%s: log: %w", c.Part, err)
		}
		out = io.MultiWriter(file, ch.tail)
	}
	cmd.Stdout, cmd.Stderr = out, out
	// Grandchildren that inherit the outputs must not keep Wait from returning.
	cmd.WaitDelay = 2 * time.Second

	started := make(chan error)
	go func() {
		// See the package comment: the lock is what ties the child to the
		// process instead of to a thread that comes and goes.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			ch.proc = cmd.Process
		}
		started <- err
		if err == nil {
			err = cmd.Wait()
			if errors.Is(err, exec.ErrWaitDelay) {
				err = nil
			}
			ch.err = err
			close(ch.done)
		}
		if file != nil {
			file.Close()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: start: %w", c.Part, err)
	}
	return ch, nil
}

// Pid is the child's process id.
func (c *Child) Pid() int { return c.proc.Pid }

// Done is closed once the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err says how the child ended, with the last of what it printed. Call it after
// Done.
func (c *Child) Err() error {
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("%s ended: %s%s", c.part, how, c.Tail())
}

// Tail returns the last of what the child printed, indented for a message.
func (c *Child) Tail() string { return c.tail.String() }

// Stop asks the child to end, and kills it when it has not within the deadline.
// It returns once the child is gone, and may be called again.
func (c *Child) Stop(deadline time.Duration) error {
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return nil
	default:
	}
	// An error here means that it has just ended.
	_ = c.proc.Signal(c.stop)
	t := time.NewTimer(deadline)
	defer t.Stop()
	select {
	case <-c.done:
		return nil
	case <-t.C:
	}
	_ = c.proc.Kill()
	<-c.done
	return fmt.Errorf("%s: stop: not within %v, killed", c.part, deadline)
}

// Wait waits for a child that ends by itself. It is an error when that is not
// with status 0, or not before ctx ends.
func (c *Child) Wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", c.part, ctx.Err()), c.Stop(2*time.Second))
	}
	if c.err != nil {
		return c.Err()
	}
	return nil
}

// Await polls ready until it returns nil, the child ends or ctx does.
func (c *Child) Await(ctx context.Context, ready func(context.Context) error) error {
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		last = ready(try)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-c.done:
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready in time: %w%s", c.part, last, c.Tail())
		case <-time.After(15 * time.Millisecond):
		}
	}
}

// tail keeps the last few kilobytes that were written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - tailSize; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(bytes.ToValidUTF8(t.buf, nil)))
	if text == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(text, "\n", "\n    ")
}
