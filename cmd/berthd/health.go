package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// healthCmd is for images that hold nothing but berthd: their health check must be a
// command, and there is no other.
type healthCmd struct {
	configFlag
	URL  string `name:"url" help:"Of the process; without it, where the configuration says that it listens." placeholder:"URL"`
	Live bool   `help:"Whether it lives, not whether it is ready: for what restarts it, which a database that is away must not."`
}

const healthTimeout = 5 * time.Second

// Run asks the process on this machine whether it is ready, or lives.
func (h healthCmd) Run(ctx context.Context, _ streams) error {
	url := h.URL
	if url == "" {
		c, err := h.load()
		if err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return fmt.Errorf("health: %w", err)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		url = "http://" + net.JoinHostPort(host, port)
	}
	path := "/readyz"
	if h.Live {
		path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return usageError("--url: is not a URL")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health: %s answers %d", path, resp.StatusCode)
	}
	return nil
}
