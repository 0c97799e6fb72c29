package client

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

// Time limits of a connection. A whole request has none: a part may take as long as
// the line needs, as long as bytes move (see stallAfter).
const (
	dialTimeout   = 15 * time.Second
	apiTimeout    = 6 * time.Minute // Complete of 10,000 parts takes S3 minutes
	answerTimeout = 2 * time.Minute // S3, after the last byte of a part
	idleTimeout   = 90 * time.Second
	ioBuffer      = 64 << 10 // bytes
)

func apiTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       idleTimeout,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: apiTimeout,
	}
}

// s3Transport speaks HTTP/1.1 only: parts travel on connections of their own, so
// that one lost packet stops one part and not all.
func s3Transport() *http.Transport {
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &conn{c}, nil
		},
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       idleTimeout,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: answerTimeout,
		DisableCompression:    true,
		WriteBufferSize:       ioBuffer,
		ReadBufferSize:        ioBuffer,
		Protocols:             new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// conn hands the bytes of a part to the kernel from where they lie. net/http would
// copy them through a buffer of 32 KiB first, which costs a tenth of the rate.
type conn struct{ net.Conn }

// ReadFrom is called by net/http for what is left of a request's body.
func (c *conn) ReadFrom(r io.Reader) (n int64, err error) {
	limit, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{c.Conn}, r)
	}
	body, ok := limit.R.(*partBody)
	if !ok {
		return io.Copy(struct{ io.Writer }{c.Conn}, r)
	}
	for limit.N > 0 {
		piece := body.peek(limit.N)
		if len(piece) == 0 {
			return n, nil
		}
		m, err := c.Write(piece)
		body.advance(m)
		n += int64(m)
		limit.N -= int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
