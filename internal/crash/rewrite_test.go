package crash_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
)

// rewriter stands between a process and PostgreSQL and rewrites statements on the wire: it
// takes a guard out of the code under test without a word of that code being changed. It
// speaks so much of the protocol: after the start-up packet each message is a byte, the
// length, and the body; Parse ('P') carries a name and a statement, Query ('Q') a statement.
type rewriter struct {
	change func(sql string) string
	hits   atomic.Int64
}

// rewritten is a URL of the world's database at which statements are changed on their way.
func rewritten(t testing.TB, w *world, change func(string) string) (string, *rewriter) {
	t.Helper()
	u, err := url.Parse(w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &rewriter{change: change}
	to := u.Host
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go func() { _, _ = io.Copy(in, out); in.Close() }()
			go func() { _ = r.carry(out, bufio.NewReader(in)); out.Close() }()
		}
	}()
	u.Host = l.Addr().String()
	return u.String(), r
}

func (r *rewriter) carry(out io.Writer, in *bufio.Reader) error {
	startup := true
	for {
		var head [5]byte
		h := head[:]
		if startup {
			h = head[1:]
		}
		if _, err := io.ReadFull(in, h); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		if !startup {
			body = r.message(head[0], body)
			binary.BigEndian.PutUint32(head[1:], uint32(len(body)+4)) // #nosec G115 -- a statement
		}
		startup = false
		if _, err := out.Write(append(h, body...)); err != nil {
			return err
		}
	}
}

func (r *rewriter) message(kind byte, body []byte) []byte {
	var name []byte
	rest := body
	switch kind {
	case 'P':
		i := bytes.IndexByte(body, 0) + 1
		name, rest = body[:i], body[i:]
	case 'Q':
	default:
		return body
	}
	end := bytes.IndexByte(rest, 0)
	was := string(rest[:end])
	is := r.change(was)
	if is == was {
		return body
	}
	r.hits.Add(1)
	out := append([]byte(nil), name...)
	out = append(out, is...)
	return append(out, rest[end:]...)
}
