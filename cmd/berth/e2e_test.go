package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/client/wire"
	"berth/internal/testkit"
)

// The end-to-end tests build the real programs and run them: berth against berthd on
// its own database, bucket and queue. A proxy stands before S3, so that faults can be
// put on the wire and requests be counted; what it passes on is S3's own.

const jwtSecret = "0123456789abcdef0123456789abcdef"

var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "berth-test-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), ".", "../berthd").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

var programsBuilt atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if programsBuilt.Load() {
		dir, _ := programs()
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func program(t testing.TB, name string) string {
	t.Helper()
	programsBuilt.Store(true)
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// harbour is a running berthd, and what berth needs to talk to it.
type harbour struct {
	t      testing.TB
	url    string
	token  string
	state  string
	s3     testkit.S3Info
	proxy  *s3Proxy
	berthd *exec.Cmd
}

func newHarbour(t testing.TB) *harbour {
	t.Helper()
	s3 := testkit.S3(t)
	proxy := newS3Proxy(t, s3.Endpoint)
	h := startHarbour(t, s3, proxy.URL)
	h.proxy = proxy
	return h
}

// newDirectHarbour is one without the proxy, for measuring.
func newDirectHarbour(t testing.TB) *harbour {
	t.Helper()
	s3 := testkit.S3(t)
	return startHarbour(t, s3, s3.Endpoint)
}

// startHarbour starts berthd for a bucket, which it and berth reach at endpoint.
func startHarbour(t testing.TB, s3 testkit.S3Info, endpoint string) *harbour {
	t.Helper()
	q := testkit.Notifications(t, s3)
	h := &harbour{t: t, s3: s3, state: t.TempDir()}
	config := fmt.Sprintf(`
listen: 127.0.0.1:0
stop_delay: 0s
database: {url: %q}
auth: {hs256_secret: %q}
stores:
  main: {endpoint: %q, region: %q, bucket: %q, path_style: true, access_key_id: %q, secret_access_key: %q}
events: {queue_url: %q, endpoint: %q, region: %q, access_key_id: x, secret_access_key: x}
worker: {interval: 1s}
collections:
  default: {}
  parts: {part_size: 5MiB, single_max: 1MiB}
  hasty: {part_size: 5MiB, single_max: 1MiB, url_expiry: 2s}
  crc: {part_size: 5MiB, single_max: 1MiB, algorithm: crc64nvme}
  instant: {dedupe: reuse}
  draft: {commit: deferred}
  resume: {extensions: [pdf], max_size: 1MiB, max_files: 2, dedupe: reject}
`, testkit.DB(t), jwtSecret, endpoint, s3.Region, s3.Bucket, s3.AccessKey, s3.SecretKey, q.QueueURL, q.Endpoint, q.Region)
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	h.serve(file)
	out, err := h.command(program(t, "berthd"), "token", "--owner", "ann", "--secret", jwtSecret).Output()
	if err != nil {
		t.Fatal(err)
	}
	h.token = strings.TrimSpace(string(out))
	return h
}

func (h *harbour) serve(config string) {
	h.t.Helper()
	cmd := h.command(program(h.t, "berthd"), "serve", "--config", config)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.berthd = cmd
	serves, done := make(chan string, 1), make(chan struct{})
	var log bytes.Buffer
	var mu sync.Mutex
	go func() {
		defer close(done)
		lines := bufio.NewScanner(pipe)
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
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if h.t.Failed() {
			h.t.Log(log.String())
		}
		if strings.Contains(log.String(), "X-Amz-Signature=") || (h.token != "" && strings.Contains(log.String(), h.token)) {
			h.t.Error("berthd's log holds a presigned URL or a token")
		}
	})
	select {
	case a := <-serves:
		h.url = "http://" + a
	case <-done:
		h.t.Fatalf("berthd ended: %s", log.String())
	case <-time.After(60 * time.Second):
		mu.Lock()
		defer mu.Unlock()
		h.t.Fatalf("berthd does not serve: %s", log.String())
	}
}

// command is a program without the environment's own settings of Berth.
func (h *harbour) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "BERTH_") && !strings.HasPrefix(e, "AWS_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	return cmd
}

// berth makes ready to run the CLI.
func (h *harbour) berth(args ...string) *exec.Cmd {
	cmd := h.command(program(h.t, "berth"), args...)
	cmd.Env = append(cmd.Env, "BERTH_URL="+h.url, "BERTH_TOKEN="+h.token, "BERTH_STATE_DIR="+h.state)
	return cmd
}

// result is how a run of the CLI ended.
type result struct {
	exit           int
	stdout, stderr string
}

func (h *harbour) finish(cmd *exec.Cmd) result {
	h.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	r := result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	for _, secret := range []string{"X-Amz-Signature=", h.token} {
		if strings.Contains(r.stdout+r.stderr, secret) {
			h.t.Errorf("the output holds a secret: %s", r.stdout+r.stderr)
		}
	}
	return r
}

func (h *harbour) run(args ...string) result {
	h.t.Helper()
	return h.finish(h.berth(args...))
}

// must is run that is to end well.
func (h *harbour) must(args ...string) result {
	h.t.Helper()
	r := h.run(args...)
	if r.exit != 0 {
		h.t.Fatalf("berth %v: exit %d\n%s%s", args, r.exit, r.stdout, r.stderr)
	}
	return r
}

// put sends files and returns the lines of JSON.
func (h *harbour) put(args ...string) []putLine {
	h.t.Helper()
	return lines[putLine](h.t, h.must(append([]string{"put", "--json"}, args...)...).stdout)
}

func lines[T any](t testing.TB, text string) []T {
	t.Helper()
	var out []T
	for line := range strings.Lines(text) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, v)
	}
	return out
}

// status asks for a file or an upload as JSON.
func status[T any](h *harbour, id string) T {
	h.t.Helper()
	return lines[T](h.t, h.must("status", "--json", id).stdout)[0]
}

// openUpload finds the one upload that a state file speaks of.
func (h *harbour) openUpload() wire.Upload {
	h.t.Helper()
	list, err := filepath.Glob(filepath.Join(h.state, "*.json"))
	if err != nil || len(list) != 1 {
		h.t.Fatalf("states %v, %v", list, err)
	}
	raw, err := os.ReadFile(list[0])
	if err != nil {
		h.t.Fatal(err)
	}
	if strings.Contains(string(raw), h.token) || strings.Contains(string(raw), "X-Amz") {
		h.t.Error("the state holds a secret")
	}
	var s struct {
		UploadID string `json:"upload_id"`
	}
	if err := json.Unmarshal(raw, &s); err != nil || s.UploadID == "" {
		h.t.Fatalf("state %s", raw)
	}
	return status[wire.Upload](h, s.UploadID)
}

// s3Proxy passes requests on to S3 as they are: the host they are signed for is its own.
type s3Proxy struct {
	URL string
	// client tells requests of presigned URLs, that is of berth, from berthd's own.
	mu    sync.Mutex
	fault func(n int, w http.ResponseWriter, r *http.Request) (handled bool)
	alter func(*http.Response) error
	puts  atomic.Int64 // presigned PUTs that S3 took
	bytes atomic.Int64 // of them
	gets  atomic.Int64
	n     map[string]int
}

func newS3Proxy(t testing.TB, target string) *s3Proxy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &s3Proxy{n: map[string]int{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	rp := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(r *http.Response) error {
			if presigned(r.Request) {
				if r.Request.Method == http.MethodPut && r.StatusCode == http.StatusOK {
					p.puts.Add(1)
					p.bytes.Add(r.Request.ContentLength)
				}
				if r.Request.Method == http.MethodGet {
					p.gets.Add(1)
				}
				p.mu.Lock()
				alter := p.alter
				p.mu.Unlock()
				if alter != nil {
					return alter(r)
				}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		BufferPool:   proxyBuffers{},
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if presigned(r) {
			p.mu.Lock()
			p.n[r.Method]++
			n, fault := p.n[r.Method], p.fault
			p.mu.Unlock()
			if fault != nil && fault(n, w, r) {
				return
			}
		}
		rp.ServeHTTP(w, r)
	}), ReadHeaderTimeout: time.Minute, ErrorLog: discardLog}
	l := listen(t)
	p.URL = "http://" + l.Addr().String()
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-done
		transport.CloseIdleConnections()
	})
	return p
}

func (p *s3Proxy) set(fault func(n int, w http.ResponseWriter, r *http.Request) bool, alter func(*http.Response) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.alter, p.n = fault, alter, map[string]int{}
	p.puts.Store(0)
	p.bytes.Store(0)
	p.gets.Store(0)
}

// asked counts the requests of presigned URLs, whatever became of them.
func (p *s3Proxy) asked(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n[method]
}

func presigned(r *http.Request) bool { return r.URL.Query().Has("X-Amz-Signature") }
