package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/testkit"

	"go.yaml.in/yaml/v3"
)

const testSecret = "0123456789abcdef0123456789abcdef"

// binary is berthd, built once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "berthd-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "berthd")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// process is a running berthd.
type process struct {
	cmd  *exec.Cmd
	url  string
	mu   sync.Mutex
	log  bytes.Buffer
	done chan struct{}
	err  error
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start runs berthd with the configuration and waits until it serves.
func start(t *testing.T, c config.Config, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(path, append([]string{"serve", "--config", file}, args...)...), done: make(chan struct{})}
	p.cmd.Env = plainEnv()
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serves := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			p.mu.Lock()
			p.log.Write(append(lines.Bytes(), '\n'))
			p.mu.Unlock()
			var l struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "berthd serves" {
				serves <- l.Address
			}
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Log(p.output())
		}
	})
	select {
	case a := <-serves:
		p.url = "http://" + a
	case <-p.done:
		t.Fatalf("ended: %v\n%s", p.err, p.output())
	case <-time.After(30 * time.Second):
		t.Fatalf("does not serve\n%s", p.output())
	}
	return p
}

// stop asks it to end and returns how it did.
func (p *process) stop(t *testing.T) error {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return p.ended()
}

// ask asks one that has a stop_delay to end, and returns when it says that it is not ready.
func (p *process) ask(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		if resp := probe(t, p, "/readyz"); resp.StatusCode != http.StatusServiceUnavailable {
			return fmt.Errorf("/readyz: %d", resp.StatusCode)
		}
		return nil
	})
}

// ended waits until one that was asked to end has, and returns how it did.
func (p *process) ended() error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopTimeout + 10*time.Second):
		return errors.New("still runs")
	}
}

func plainEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "BERTH_") && !strings.HasPrefix(e, "AWS_") && !strings.HasPrefix(e, "OTEL_") {
			env = append(env, e)
		}
	}
	return env
}

// realConfig is a configuration of the test's own database, bucket and queue.
func realConfig(t *testing.T) config.Config {
	t.Helper()
	s3 := testkit.S3(t)
	q := testkit.Notifications(t, s3)
	style := true
	return config.Config{
		Listen:   "127.0.0.1:0",
		Database: config.Database{URL: config.Secret(testkit.DB(t))},
		Auth:     config.Auth{HS256Secret: testSecret},
		Stores: map[string]config.Store{"main": {
			Endpoint: s3.Endpoint, Region: s3.Region, Bucket: s3.Bucket, PathStyle: &style,
			AccessKeyID: s3.AccessKey, SecretAccessKey: config.Secret(s3.SecretKey),
		}},
		Events: config.Events{QueueURL: q.QueueURL, Endpoint: q.Endpoint, Region: q.Region, AccessKeyID: "x", SecretAccessKey: "x"},
	}
}

// token is one that the command itself makes.
func token(t *testing.T, args ...string) string {
	t.Helper()
	var out, msgs bytes.Buffer
	if code := run(t.Context(), append([]string{"token", "--owner", "ann", "--secret", testSecret}, args...), streams{&out, &msgs}); code != 0 {
		t.Fatalf("token: exit %d: %s", code, msgs.String())
	}
	return strings.TrimSpace(out.String())
}

func call(t *testing.T, method, url, token string, body any, into any) int {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s %s: %d: %s", method, url, resp.StatusCode, text)
		}
	}
	return resp.StatusCode
}

type upload struct {
	ID     string
	FileID string `json:"file_id"`
	State  string
	Parts  []struct {
		Method, URL string
		Headers     map[string]string
	}
}

// put opens an upload and sends its one part.
func put(t *testing.T, p *process, token, name, content string) upload {
	t.Helper()
	var u upload
	if code := call(t, http.MethodPost, p.url+"/v1/uploads", token, map[string]any{
		"collection": "default", "name": name, "size": len(content), "content_type": "text/plain",
	}, &u); code != http.StatusCreated {
		t.Fatalf("open: %d", code)
	}
	sendPart(t, u, content)
	return u
}

// sendPart sends the one part of an upload.
func sendPart(t *testing.T, u upload, content string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), u.Parts[0].Method, u.Parts[0].URL, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range u.Parts[0].Headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("put: %d", resp.StatusCode)
	}
}

func fileState(t *testing.T, p *process, token, id string) string {
	t.Helper()
	var f struct{ State string }
	call(t, http.MethodGet, p.url+"/v1/files/"+id, token, nil, &f)
	return f.State
}

// Nobody calls complete: the event does it.
func TestServeActivatesByTheEventAlone(t *testing.T) {
	t.Parallel()
	p := start(t, realConfig(t))
	tok := token(t)
	u := put(t, p, tok, "a.txt", "hello")
	testkit.Eventually(t, 30*time.Second, func() error {
		if s := fileState(t, p, tok, u.FileID); s != "active" {
			return fmt.Errorf("is %s", s)
		}
		return nil
	})
	if kb := rss(t, p.cmd.Process.Pid); kb > 100<<10 {
		t.Errorf("uses %d kB", kb)
	} else {
		t.Logf("uses %d kB", kb)
	}
	if err := p.stop(t); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, secret := range []string{tok, testSecret, "X-Amz-Signature", "Bearer "} {
		if strings.Contains(p.output(), secret) {
			t.Errorf("the log holds %.20q", secret)
		}
	}
}

// A process of one role does that and answers probes, nothing else. The roles together
// do what one process does.
func TestServeByRoles(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	api := start(t, c, "--role", "api")
	tok := token(t)
	u := put(t, api, tok, "a.txt", "hello")
	if code := call(t, http.MethodPost, api.url+"/v1/uploads", token(t, "--scope", "read"), map[string]any{}, nil); code != http.StatusForbidden {
		t.Errorf("a reader opens: %d", code)
	}
	events := start(t, c, "--role", "events")
	testkit.Eventually(t, 30*time.Second, func() error {
		if s := fileState(t, api, tok, u.FileID); s != "active" {
			return fmt.Errorf("is %s", s)
		}
		return nil
	})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/v1/files": 404, "/openapi.json": 404} {
		if code := call(t, http.MethodGet, events.url+path, tok, nil, nil); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	for _, p := range []*process{api, events} {
		if err := p.stop(t); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

// What is in flight when the signal comes is answered; what comes after is not taken.
func TestStopFinishesRequestsInFlight(t *testing.T) {
	t.Parallel()
	p := start(t, realConfig(t))
	reader, writer := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/uploads", reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token(t))
	req.Header.Set("Content-Type", "application/json")
	answer := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
		}
		answer <- err
	}()
	if _, err := io.WriteString(writer, `{"collection":"default","name":"a",`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error { return inFlight(p.url) })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if resp, err := http.Get(p.url + "/healthz"); err == nil {
			resp.Body.Close()
			return errors.New("still takes connections")
		}
		return nil
	})
	if _, err := io.WriteString(writer, `"size":5}`); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if err := <-answer; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	<-p.done
	if p.err != nil {
		t.Errorf("exit: %v", p.err)
	}
}

// inFlight is nil once the server works on another request than this one.
func inFlight(url string) error {
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "berth_http_requests_in_flight "); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(rest)); err == nil && n >= 2 {
				return nil
			}
		}
	}
	return errors.New("nothing in flight")
}

// A connection that was taken is answered, also if its request comes when nothing more is
// taken.
func TestStopAnswersWhatWasTaken(t *testing.T) {
	t.Parallel()
	p := start(t, realConfig(t))
	address := strings.TrimPrefix(p.url, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	probe(t, p, "/healthz") // came later and was taken: so was the other
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return errors.New("still takes connections")
		}
		return nil
	})
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: berth\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("%d, closes: %v", resp.StatusCode, resp.Close)
	}
	if err := p.ended(); err != nil {
		t.Error(err)
	}
}

// Who is asked to stop goes on answering, says that it is not ready, and that the next
// connection is to be made elsewhere, so that a load balancer has the time to see it.
func TestStopDelay(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	c.StopDelay = config.Duration(5 * time.Minute)
	p := start(t, c)
	tok := token(t)
	if resp := probe(t, p, "/readyz"); resp.StatusCode != http.StatusOK || resp.Close {
		t.Errorf("before: %d, closes: %v", resp.StatusCode, resp.Close)
	}
	p.ask(t)
	testkit.Eventually(t, 10*time.Second, func() error {
		for _, loop := range []string{"repair", "reload"} {
			if !strings.Contains(p.output(), `"loop":"`+loop+`"`) {
				return fmt.Errorf("%s goes on", loop)
			}
		}
		return nil
	})
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil { // from one who reloads all
		t.Fatal(err)
	}
	put(t, p, tok, "late", "opened, signed and sent after the signal")
	if resp := probe(t, p, "/healthz"); resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("stopping: %d, closes: %v", resp.StatusCode, resp.Close)
	}
	select {
	case <-p.done:
		t.Errorf("ended: %v", p.err)
	default:
	}
	if strings.Contains(p.output(), `"ERROR"`) {
		t.Error("an end that was asked for is an error in the log")
	}
	// Events and work need no delay: nobody sends these here.
	if err := start(t, c, "--role", "events", "--role", "worker").stop(t); err != nil {
		t.Errorf("without the API: %v", err)
	}
}

func probe(t *testing.T, p *process, path string) *http.Response {
	t.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// A second signal ends it at once, whatever is in flight.
func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	p := start(t, realConfig(t))
	reader, writer := io.Pipe()
	defer writer.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/uploads", reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token(t))
	req.Header.Set("Content-Type", "application/json")
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := io.WriteString(writer, `{`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error { return inFlight(p.url) })
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if !strings.Contains(p.output(), "stopping") {
			return errors.New("not stopping")
		}
		return nil
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if took := time.Since(began); p.err == nil || took > stopTimeout/2 {
		t.Errorf("ended after %v with %v", took, p.err)
	}
}

func TestServeRefusesAnOldSchema(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	c.Database.URL = config.Secret(testkit.EmptyDB(t))
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) (int, string) {
		var msgs bytes.Buffer
		code := run(t.Context(), append(args, "--config", file), streams{io.Discard, &msgs})
		return code, msgs.String()
	}
	if code, out := command("serve"); code != exitFailed || !strings.Contains(out, "run `berthd migrate`") {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, want := range []string{"migrations applied", "up to date"} {
		if code, out := command("migrate"); code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d: %s", code, out)
		}
	}
	if err := start(t, c).stop(t); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(bad, []byte("listen: nowhere\nfoo: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing":       {nil, exitUsage, "expected one of"},
		"help":          {[]string{"--help"}, 0, ""},
		"version":       {[]string{"version"}, 0, ""},
		"no such":       {[]string{"sail"}, exitUsage, "sail"},
		"bad config":    {[]string{"serve", "--config", bad}, exitUsage, bad + ":2:1: foo: is not a key"},
		"absent config": {[]string{"serve", "--config", bad + "x"}, exitFailed, "no such file"},
		"bad scope":     {[]string{"token", "--owner", "a", "--scope", "everything", "--secret", testSecret}, exitUsage, "everything"},
		"bad grant":     {[]string{"token", "--owner", "a", "--grant", "[]", "--secret", testSecret}, exitUsage, "--grant"},
		"odd grant":     {[]string{"token", "--owner", "a", "--grant", `{"max_bytez":1}`, "--secret", testSecret}, exitUsage, "--grant"},
		"short secret":  {[]string{"token", "--owner", "a", "--secret", "short"}, exitUsage, "fewer than 32 bytes"},
		"bad role":      {[]string{"serve", "--role", "cook", "--config", "config/example.yaml"}, exitUsage, "cook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, msgs bytes.Buffer
			if code := run(t.Context(), c.args, streams{&out, &msgs}); code != c.code || !strings.Contains(msgs.String(), c.says) {
				t.Errorf("exit %d, want %d: %s", code, c.code, msgs.String())
			}
		})
	}
}

// rss is a process's resident memory, in kB.
func rss(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
