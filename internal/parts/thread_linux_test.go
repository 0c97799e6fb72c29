package parts

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A child must not die with the thread of whoever called Start.
func TestChildOutlivesTheCallersThread(t *testing.T) {
	t.Parallel()
	var child *Child
	var err error
	tid, done := 0, make(chan struct{})
	var caller func()
	caller = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		tid = syscall.Gettid()
		if tid == syscall.Getpid() {
			// All but the main one, which we hold while another is taken.
			go caller()
			<-done
			runtime.UnlockOSThread()
			return
		}
		defer close(done)
		child, err = Start(Command{
			Part: "sleeper", Path: "/bin/sleep", Args: []string{"300"}, Stop: syscall.SIGTERM, DeathSignal: syscall.SIGKILL,
		})
	}
	go caller()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the thread ends", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
		return err != nil
	})
	if !alive(child.Pid()) {
		t.Error("the child ended with its caller's thread")
	}
	if err := child.Stop(5 * time.Second); err != nil {
		t.Error(err)
	}
	if alive(child.Pid()) {
		t.Error("the child is there after Stop")
	}
}
