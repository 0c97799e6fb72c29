// Package web_test proves what runs in browsers in a real one: headless Chromium,
// driven by node scripts in test/, against the real berthd on real parts. Nothing here
// is part of what is served.
package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/testkit"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.yaml.in/yaml/v3"
)

const jwtSecret = "0123456789abcdef0123456789abcdef"

// programs are berthd and what runs the scripts, looked for once.
type programs struct{ berthd, node, chromium string }

var found = sync.OnceValues(func() (programs, error) {
	var p programs
	var err error
	if p.node, err = exec.LookPath("node"); err != nil {
		return p, fmt.Errorf("no node: %w", err)
	}
	if p.chromium, err = exec.LookPath("chromium"); err != nil {
		return p, fmt.Errorf("no chromium: %w", err)
	}
	if _, err := os.Stat("test/node_modules/playwright-core/package.json"); err != nil {
		return p, fmt.Errorf("no node modules: %w", err)
	}
	dir, err := os.MkdirTemp("", "berth-web-test-")
	if err != nil {
		return p, err
	}
	p.berthd = filepath.Join(dir, "berthd")
	if out, err := exec.Command("go", "build", "-o", p.berthd, "../cmd/berthd").CombinedOutput(); err != nil {
		return p, fmt.Errorf("build berthd: %w: %s", err, out)
	}
	return p, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if p, _ := found(); p.berthd != "" {
		_ = os.RemoveAll(filepath.Dir(p.berthd))
	}
	os.Exit(code)
}

// need gives the programs, or skips a test that was started without them. `make test`
// installs them and says so: then their lack is a failure.
func need(t *testing.T) programs {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	p, err := found()
	if err != nil {
		if os.Getenv("BERTH_TEST_BROWSER") != "" || p.berthd != "" {
			t.Fatalf("%v (make browser installs what is missing)", err)
		}
		t.Skipf("%v (make browser installs what is missing)", err)
	}
	return p
}

// berthd is a running server, with pages of the test beside it.
type berthd struct {
	URL string
	// App is another origin, which the API's CORS lets in. It serves the folder Pages,
	// and hands /uppy on to berthd, as an application in front of it would.
	App   string
	Pages string
	S3    testkit.S3Info
	S3URL string // where the browser reaches S3: see serveS3
	DB    *pgxpool.Pool

	programs programs
	proxy    string
}

// start runs berthd on parts of the test's own. change may add to its configuration,
// whose keys are those of the file.
func start(t *testing.T, change func(config map[string]any)) *berthd {
	t.Helper()
	b := &berthd{programs: need(t), Pages: t.TempDir(), S3: testkit.S3(t)}
	app := httptest.NewServer(http.HandlerFunc(b.serveApp))
	t.Cleanup(app.Close)
	// By its name it is another site than berthd, which is at 127.0.0.1.
	b.App = strings.Replace(app.URL, "127.0.0.1", "localhost", 1)
	front := httptest.NewServer(http.HandlerFunc(b.serveS3))
	t.Cleanup(front.Close)
	b.S3URL = front.URL
	q := testkit.Notifications(t, b.S3)
	dsn := testkit.DB(t)
	var err error
	if b.DB, err = pgxpool.New(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.DB.Close)
	config := map[string]any{
		"listen": "127.0.0.1:0", "database": map[string]any{"url": dsn}, "auth": map[string]any{"hs256_secret": jwtSecret},
		"stores": map[string]any{"main": map[string]any{
			"endpoint": b.S3.Endpoint, "public_endpoint": b.S3URL, "region": b.S3.Region, "bucket": b.S3.Bucket, "prefix": "b/",
			"access_key_id": b.S3.AccessKey, "secret_access_key": b.S3.SecretKey,
		}},
		"events": map[string]any{
			"queue_url": q.QueueURL, "endpoint": q.Endpoint, "region": q.Region, "access_key_id": "x", "secret_access_key": "x",
		},
		"worker": map[string]any{"interval": "1s"},
		"cors":   map[string]any{"allowed_origins": []string{b.App}},
	}
	if change != nil {
		change(config)
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.URL = b.run(t, file)
	b.proxy = b.URL
	return b
}

// run starts the process and returns where it serves.
func (b *berthd) run(t *testing.T, file string) string {
	t.Helper()
	cmd := exec.Command(b.programs.berthd, "serve", "--config", file)
	cmd.Env = plainEnv()
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serves, done := make(chan string, 1), make(chan struct{})
	var mu sync.Mutex
	var log bytes.Buffer
	go func() {
		defer close(done)
		lines := bufio.NewScanner(pipe)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			mu.Lock()
			log.Write(append(lines.Bytes(), '\n'))
			mu.Unlock()
			var l struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "berthd serves" {
				serves <- l.Address
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if strings.Contains(log.String(), "eyJ") {
			t.Error("berthd's log holds a token")
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	select {
	case a := <-serves:
		return "http://" + a
	case <-done:
	case <-time.After(30 * time.Second):
	}
	mu.Lock()
	defer mu.Unlock()
	t.Fatalf("berthd does not serve\n%s", log.String())
	return ""
}

func (b *berthd) serveApp(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/uppy/") {
		to, err := url.Parse(b.proxy)
		if err != nil {
			http.Error(w, "no berthd", http.StatusBadGateway)
			return
		}
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host
		}}).ServeHTTP(w, r)
		return
	}
	http.FileServer(http.Dir(b.Pages)).ServeHTTP(w, r)
}

// serveS3 hands requests on to S3 once their bodies are whole, as nginx does by default:
// versitygw 1.8.0 keeps a body that was cut off on the wire, filled up to its announced
// length, where S3 answers IncompleteBody. A client that pauses cuts bodies off.
func (b *berthd) serveS3(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	to, bad := url.Parse(b.S3.Endpoint)
	if err != nil || bad != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		p.Out.Host = p.In.Host // it is signed
	}}).ServeHTTP(w, r)
}

// token mints one as people do, by the command.
func (b *berthd) token(t *testing.T, owner string, args ...string) string {
	t.Helper()
	cmd := exec.Command(b.programs.berthd, append([]string{"token", "--owner", owner, "--secret", jwtSecret}, args...)...)
	cmd.Env = plainEnv()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("token: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// script runs a node script of test/ and fails with what it said. The scripts use
// node's own test runner.
func (b *berthd) script(t *testing.T, path string, limit time.Duration, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.programs.node, "--test-reporter=spec", path)
	cmd.Dir = "test"
	cmd.Env = append(plainEnv(), "CHROMIUM="+b.programs.chromium, "BERTH_URL="+b.URL, "APP_URL="+b.App, "PAGES="+b.Pages, "S3_URL="+b.S3URL)
	cmd.Env = append(cmd.Env, env...)
	// On SIGTERM playwright ends its browser; a browser whose pipe breaks ends itself.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
	t.Logf("%s", out)
}

func plainEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "BERTH_") && !strings.HasPrefix(e, "AWS_") {
			env = append(env, e)
		}
	}
	return env
}
