package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

var discardLog = log.New(io.Discard, "", 0)

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var proxyPool = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// proxyBuffers lends the proxy its buffers.
type proxyBuffers struct{}

func (proxyBuffers) Get() []byte  { return *proxyPool.Get().(*[]byte) }
func (proxyBuffers) Put(b []byte) { proxyPool.Put(&b) }

// slowly is a far server: the wait is what the test is about, nothing waits by it.
func slowly(int, http.ResponseWriter, *http.Request) bool {
	time.Sleep(200 * time.Millisecond)
	return false
}
