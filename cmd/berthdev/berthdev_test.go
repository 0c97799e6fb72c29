package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/parts"
	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
)

// project is a folder of its own with the real programs, for a local cloud
// beside the developer's.
type project struct {
	place
	t *testing.T
}

func newProject(t *testing.T, programs ...string) *project {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	root, err := parts.ProjectRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &project{place{root: dir}, t}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-o", p.file("bin") + "/"}
	for _, name := range append(programs, "berthdev") {
		args = append(args, "./cmd/"+name)
	}
	if err := os.MkdirAll(p.file("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", args...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if os.Getenv("BERTH_VERSITYGW") == "" {
		if err := os.Symlink(filepath.Join(root, ".dev", "bin", "versitygw"), p.file("bin", "versitygw")); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if out, err := p.command("clean").CombinedOutput(); err != nil {
			t.Errorf("clean: %v\n%s", err, out)
		}
		if paths, err := p.data(); err != nil || len(paths) > 0 {
			t.Errorf("after clean: %v, %v", paths, err)
		}
		// In a temporary folder that only root can walk, the cluster is elsewhere.
		if pg := parts.PostgresDir(p.postgres()); pg != p.postgres() {
			if _, err := os.Stat(pg); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after clean: %s is there", pg)
			}
		}
	})
	return p
}

func (p *project) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.file("bin", "berthdev"), args...)
	cmd.Dir = p.root
	return cmd
}

// do runs berthdev and returns what it printed.
func (p *project) do(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(p.log("supervisor"))
		p.t.Fatalf("berthdev %v: %v\n%s\n%s", args, err, out, log)
	}
	return string(out)
}

func (p *project) vars() map[string]string {
	p.t.Helper()
	vars, err := readEnv(p.env())
	if err != nil {
		p.t.Fatal(err)
	}
	return vars
}

// processes lists what runs in or from the project's folders: every part has one
// in its command line or as its working folder.
func (p *project) processes() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		// The cluster may be elsewhere; see parts.PostgresDir.
		for _, dir := range []string{p.root, parts.PostgresDir(p.postgres())} {
			if bytes.Contains(line, []byte(dir)) || strings.HasPrefix(cwd, dir) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

func (p *project) nothingRuns() {
	p.t.Helper()
	testkit.Eventually(p.t, 15*time.Second, func() error {
		if pids := p.processes(); len(pids) > 0 {
			return fmt.Errorf("processes %v still run", pids)
		}
		return nil
	})
}

func (p *project) get(path, token string) int {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.vars()[envURL]+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (p *project) s3() *s3.Client {
	vars := p.vars()
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(vars[envS3]), Region: vars[envRegion], UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(vars[envAccessKey], vars[envSecretKey], ""),
	})
}

func TestLocalCloud(t *testing.T) {
	t.Parallel()
	p := newProject(t, "berthd")

	p.do("up")
	vars := p.vars()
	for _, name := range envOrder {
		if vars[name] == "" {
			t.Errorf(".dev/env lacks %s", name)
		}
	}
	for _, file := range []string{p.env(), p.config(), p.file("secrets", "jwt")} {
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", file, st, err)
		}
	}
	if code := p.get("/v1/files", vars[envToken]); code != http.StatusOK {
		t.Errorf("/v1/files with the token of .dev/env: %d", code)
	}
	if code := p.get("/v1/files", ""); code != http.StatusUnauthorized {
		t.Errorf("/v1/files without a token: %d", code)
	}
	if out := p.do("up"); !strings.Contains(out, "already") {
		t.Errorf("a second up said %q", out)
	}
	if len(p.processes()) < 4 {
		t.Fatalf("processes %v: want supervisor, postgres, versitygw, berthd", p.processes())
	}
	if out, err := p.command("run", "--size=0").CombinedOutput(); err == nil || !strings.Contains(string(out), "runs already") {
		t.Errorf("run beside up: %v, %q", err, out)
	}

	// What was stored is there after a crash of the supervisor, which leaves
	// nothing running.
	bucketName := vars[envBucket]
	if _, err := p.s3().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucketName, Key: aws.String("kept"), Body: strings.NewReader("x")}); err != nil {
		t.Fatal(err)
	}
	p.sql("CREATE TABLE kept (n int)")
	pid, err := p.supervisor()
	if err != nil || pid == 0 {
		t.Fatalf("supervisor %d, %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.nothingRuns()
	if out := p.do("down"); !strings.Contains(out, "not running") {
		t.Errorf("down after the crash said %q", out)
	}

	// Somebody takes the API's port meanwhile.
	host := strings.TrimPrefix(vars[envURL], "http://")
	l, err := net.Listen("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(host)
	begun := time.Now()
	if out := p.do("up"); !strings.Contains(out, "port "+port+" is busy") {
		t.Errorf("up with its port taken said %q", out)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("a later start took %v, want less than 10 s", took)
	} else {
		t.Logf("later start: %v", took.Round(time.Millisecond))
	}
	if now := p.vars()[envURL]; now == vars[envURL] {
		t.Errorf(".dev/env still has the port that is taken")
	}
	if now := p.vars()[envJWTSecret]; now != vars[envJWTSecret] {
		t.Error("the JWT secret changed: tokens given out are lost")
	}
	if code := p.get("/v1/files", vars[envToken]); code != http.StatusOK {
		t.Errorf("/v1/files with the token of before: %d", code)
	}
	if _, err := p.s3().HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucketName, Key: aws.String("kept")}); err != nil {
		t.Errorf("the object of before: %v", err)
	}
	p.sql("SELECT n FROM kept")

	if out := p.do("down"); !strings.Contains(out, "is down") {
		t.Errorf("down said %q", out)
	}
	if pids := p.processes(); len(pids) > 0 {
		t.Errorf("after down, %v still run", pids)
	}
}

func (p *project) sql(query string) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.vars()[envDatabase])
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(p.t.Context())
	if _, err := conn.Exec(p.t.Context(), query); err != nil {
		p.t.Fatal(err)
	}
}

// run sends a file and says so. However it ends, nothing of it runs on.
func TestRun(t *testing.T) {
	t.Parallel()
	p := newProject(t, "berthd", "berth")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := p.command("run", "--size=20000000")
		var out lockedBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 60*time.Second, func() error {
			if !strings.Contains(out.String(), "Upload page") {
				return fmt.Errorf("run said %q", out.String())
			}
			return nil
		})
		if !strings.Contains(out.String(), "is active") {
			t.Errorf("run said %q, and of no file that is active", out.String())
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		if signal == syscall.SIGINT && err != nil {
			t.Errorf("run ended by ^C: %v\n%s", err, out.String())
		}
		p.nothingRuns()
	}
}

// A part that dies takes the cloud down, and the log says which.
func TestADeadPartEndsTheCloud(t *testing.T) {
	t.Parallel()
	p := newProject(t, "berthd")
	p.do("up")
	killed := false
	for _, pid := range p.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), "versitygw") {
			killed = syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	if !killed {
		t.Fatal("no versitygw found")
	}
	p.nothingRuns()
	if log, err := os.ReadFile(p.log("supervisor")); err != nil || !strings.Contains(string(log), "versitygw ended") {
		t.Errorf("supervisor.log: %v\n%s", err, log)
	}
}

// A start that fails says why, and leaves nothing.
func TestAFailedStartSaysWhy(t *testing.T) {
	t.Parallel()
	p := newProject(t) // without berthd
	out, err := p.command("up").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "berthd is not built") {
		t.Errorf("up without berthd: %v, %q", err, out)
	}
	p.nothingRuns()
}

func TestExecLendsPartsAndPassesTheExitCode(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	out, err := p.command("exec", "--", "sh", "-c", `echo "$`+testkit.PartsEnv+`"; exit 7`).Output()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 7 {
		t.Errorf("exec: %v, want exit code 7", err)
	}
	for _, want := range []string{`"postgres":"postgres://`, `"s3":"http://127.0.0.1:`, `"sqs":"http://`, `"bridge":"http://`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the command's environment %q lacks %s", out, want)
		}
	}
	p.nothingRuns()
	if out, err := p.command("exec", "--", "true").CombinedOutput(); err != nil {
		t.Errorf("exec true: %v\n%s", err, out)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"block-a.pdf": "block", "delete-a.pdf": "delete", "a.pdf": "pass", "a-block-": "pass", "": "pass"} {
		if got := verdict(name); got != want {
			t.Errorf("verdict(%q) = %s, want %s", name, got, want)
		}
	}
}
