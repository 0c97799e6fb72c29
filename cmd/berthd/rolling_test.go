package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/testkit"

	"github.com/jackc/pgx/v5"
)

// rotation is what a load balancer has: the processes that requests go to. It takes one
// out once that says that it is not ready.
type rotation struct {
	mu   sync.RWMutex
	urls []string
	next atomic.Uint64
}

func (r *rotation) pick() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.urls[r.next.Add(1)%uint64(len(r.urls))]
}

func (r *rotation) set(urls ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.urls = urls
}

// sendOne opens an upload, sends its bytes, and completes it or leaves that to the event.
func sendOne(ctx context.Context, r *rotation, token, name string, complete bool) (file string, err error) {
	ask := func(path string, body, into any) error {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.pick()+path, bytes.NewReader(b))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", name+strings.ReplaceAll(path, "/", "-"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s: %d: %s", path, resp.StatusCode, text)
		}
		return json.Unmarshal(text, into)
	}
	var u upload
	content := "the bytes of " + name
	if err := ask("/v1/uploads", map[string]any{"collection": "default", "name": name, "size": len(content), "content_type": "text/plain"}, &u); err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, u.Parts[0].Method, u.Parts[0].URL, strings.NewReader(content))
	if err != nil {
		return "", err
	}
	for k, v := range u.Parts[0].Headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("put: %d", resp.StatusCode)
	}
	if complete {
		err = ask("/v1/uploads/"+u.ID+"/complete", map[string]any{}, &u)
	}
	return u.FileID, err
}

// Two processes serve, the next release's migration runs under them, and they are replaced
// one by one. Clients go on all the while: no request fails, no file is lost or stays
// behind, and each becomes active once.
func TestRollingUpgradeFailsNothing(t *testing.T) {
	t.Parallel()
	const clients, atLeast = 4, 20 // files between two steps
	c := realConfig(t)
	c.Worker.Interval = 1e9
	c.StopDelay = config.Duration(5 * time.Second)
	tok := token(t)
	old := []*process{start(t, c), start(t, c)}
	r := &rotation{}
	r.set(old[0].url, old[1].url)

	var mu sync.Mutex
	var files []string
	var sent atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				file, err := sendOne(t.Context(), r, tok, fmt.Sprintf("f-%d-%d", i, n), n%2 == 0)
				if err != nil {
					t.Errorf("client %d, file %d: %v", i, n, err)
					return
				}
				mu.Lock()
				files = append(files, file)
				mu.Unlock()
				sent.Add(1)
			}
		})
	}
	var once sync.Once
	end := func() { once.Do(func() { close(stop); all.Wait() }) }
	defer end()
	traffic := func() {
		t.Helper()
		from := sent.Load()
		testkit.Eventually(t, 2*time.Minute, func() error {
			if n := sent.Load() - from; n < atLeast && !t.Failed() {
				return fmt.Errorf("%d files since the last step", n)
			}
			return nil
		})
	}
	replace := func(p *process, now ...*process) {
		t.Helper()
		urls := make([]string, len(now))
		for i, n := range now {
			urls[i] = n.url
		}
		p.ask(t)
		r.set(urls...)
		if err := p.ended(); err != nil {
			t.Errorf("a replaced process: %v\n%s", err, p.output())
		}
		traffic()
	}

	traffic()
	nextRelease(t, c.Database.URL.Reveal())
	traffic() // old code on the new schema
	first := start(t, c)
	r.set(old[0].url, old[1].url, first.url)
	traffic() // both at once
	replace(old[0], old[1], first)
	second := start(t, c)
	replace(old[1], first, second)
	end()

	conn, err := pgx.Connect(t.Context(), c.Database.URL.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	testkit.Eventually(t, time.Minute, func() error {
		var waiting int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM files WHERE state <> 'active'").Scan(&waiting); err != nil {
			return err
		}
		if waiting > 0 {
			return fmt.Errorf("%d files are not active", waiting)
		}
		return nil
	})
	var rows, told int
	err = errors.Join(
		conn.QueryRow(t.Context(), "SELECT count(*) FROM files").Scan(&rows),
		conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE type = 'file.active'").Scan(&told))
	if err != nil || rows != len(files) || told != len(files) {
		t.Errorf("%d files sent, %d rows, %d told: %v", len(files), rows, told, err)
	}
	t.Logf("%d files through the upgrade", len(files))
}

// nextRelease migrates the schema as a later release might: it adds, and takes nothing away.
func nextRelease(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		"ALTER TABLE files ADD COLUMN later text",
		"ALTER TABLE uploads ADD COLUMN later bigint NOT NULL DEFAULT 0",
		"ALTER TABLE tasks ADD COLUMN later jsonb",
		"CREATE TABLE later (id text PRIMARY KEY, file text)",
		"CREATE INDEX CONCURRENTLY files_later ON files (later)",
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}
