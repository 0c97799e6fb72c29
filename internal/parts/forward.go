package parts

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// forwarder carries the connections of one address to another.
type forwarder struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

func forward(from, to string) (*forwarder, error) {
	l, err := net.Listen("tcp", from)
	if err != nil {
		return nil, err
	}
	f := &forwarder{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	f.wg.Go(f.accept)
	return f, nil
}

func (f *forwarder) accept() {
	for {
		in, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of file descriptors, or a connection that is already gone.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		f.wg.Go(func() { f.carry(in) })
	}
}

func (f *forwarder) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", f.to)
	if err != nil {
		return
	}
	defer out.Close()
	if !f.keep(in, out) {
		return
	}
	defer f.drop(in, out)
	var both sync.WaitGroup
	one := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		// The other direction may still have something to say.
		if c, ok := dst.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	}
	both.Go(func() { one(out, in) })
	both.Go(func() { one(in, out) })
	both.Wait()
}

func (f *forwarder) keep(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	for _, c := range conns {
		f.conns[c] = struct{}{}
	}
	return true
}

func (f *forwarder) drop(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		delete(f.conns, c)
	}
}

func (f *forwarder) close() {
	f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}
