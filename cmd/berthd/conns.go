package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// conns knows which connections have a request, or may be about to send their first.
// net/http drops unanswered what it reads after Shutdown has begun; so that what was taken
// is answered, Shutdown waits for these.
type conns struct {
	mu   sync.Mutex
	busy map[net.Conn]time.Time // since when it is without a request; zero while it has one
}

// newConn is for how long a connection may be without its first request and yet be waited
// for, as net/http has it.
const newConn = 5 * time.Second

// note is an http.Server's ConnState.
func (c *conns) note(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s {
	case http.StateNew:
		c.busy[conn] = time.Now()
	case http.StateActive:
		c.busy[conn] = time.Time{}
	default:
		delete(c.busy, conn)
	}
}

func (c *conns) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, since := range c.busy {
		if since.IsZero() || time.Since(since) < newConn {
			return false
		}
	}
	return true
}

// wait returns once nothing that was taken is left unanswered, or ctx ends.
func (c *conns) wait(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !c.quiet() {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
