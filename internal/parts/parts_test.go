package parts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
)

// helperEnv turns the test binary into a supervisor that starts one of each
// part, prints their pids and waits to be killed.
const helperEnv = "BERTH_PARTS_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		if err := helper(); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

type helped struct {
	Dirs []string
	Pids []int
}

func helper() error {
	v, err := StartVolatile(context.Background())
	if err != nil {
		return err
	}
	h := helped{Dirs: v.Dirs, Pids: []int{v.S3.Child().Pid(), v.Postgres.Child().Pid()}}
	h.Pids = append(h.Pids, childrenOf(v.Postgres.Child().Pid())...)
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	// Until killed, or until the test that wants us is gone.
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// childrenOf lists the processes whose parent is pid.
func childrenOf(pid int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// pid (name) state ppid …
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			if n, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// alive is false for a zombie: it has ended, and only waits to be counted.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(rest), "Z")
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	until := time.Now().Add(15 * time.Second)
	for !f() {
		if time.Now().After(until) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func testDir(t *testing.T) string {
	t.Helper()
	dir, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func linuxOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties children to their parent")
	}
}

func TestNothingOutlivesAKilledSupervisor(t *testing.T) {
	linuxOnly(t)
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGQUIT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), helperEnv+"=1")
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			line, _ := bufio.NewReader(out).ReadString('\n')
			var h helped
			if err := json.Unmarshal([]byte(line), &h); err != nil {
				t.Fatalf("helper said %q: %v", line, err)
			}
			if len(h.Pids) < 4 {
				t.Fatalf("pids %v: want versitygw, postgres and postgres's own children", h.Pids)
			}
			// Of postgres's own some come and go.
			for _, pid := range h.Pids[:2] {
				if !alive(pid) {
					t.Fatalf("process %d ended too early", pid)
				}
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			for _, pid := range h.Pids {
				eventually(t, fmt.Sprintf("process %d ends", pid), func() bool { return !alive(pid) })
			}
			for _, dir := range h.Dirs {
				eventually(t, dir+" goes", func() bool {
					_, err := os.Stat(dir)
					return errors.Is(err, os.ErrNotExist)
				})
			}
		})
	}
}

// The control of the test above: without a death signal the child stays.
func TestWithoutDeathSignalAChildStays(t *testing.T) {
	linuxOnly(t)
	t.Parallel()
	for _, c := range []struct {
		death string
		stays bool
	}{{"0", true}, {"9", false}} {
		t.Run(c.death, func(t *testing.T) {
			t.Parallel()
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "-test.run=^TestHelperStartsASleeper$")
			cmd.Env = append(os.Environ(), "BERTH_PARTS_SLEEPER="+c.death)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("helper said %q", line)
			}
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if !c.stays {
				eventually(t, "the child ends", func() bool { return !alive(pid) })
				return
			}
			if !alive(pid) {
				t.Fatal("the child ended, though nothing told it to: the test above proves nothing")
			}
		})
	}
}

func TestHelperStartsASleeper(t *testing.T) {
	death, err := strconv.Atoi(os.Getenv("BERTH_PARTS_SLEEPER"))
	if err != nil {
		t.Skip("a helper of another test")
	}
	child, err := Start(Command{
		Part: "sleeper", Path: "/bin/sleep", Args: []string{"300"}, Stop: os.Interrupt, DeathSignal: syscall.Signal(death),
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(child.Pid())
	<-child.Done()
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	t.Parallel()
	child, err := Start(Command{
		Part: "deaf", Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo ready; while :; do sleep 1; done"},
		Stop: syscall.SIGTERM, DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it listens not", func() bool { return strings.Contains(child.Tail(), "ready") })
	if err := child.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Stop: %v, want that it was killed", err)
	}
	if alive(child.Pid()) {
		t.Error("it is still there")
	}
	if err := child.Stop(time.Second); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestPostgresKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testDir(t), "postgres")
	ctx := t.Context()
	for round := range 2 {
		begun := time.Now()
		// Not volatile: the flavour of the local cloud.
		p, err := StartPostgres(ctx, PostgresOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("start %d: %v", round, time.Since(begun).Round(time.Millisecond))
		if err := p.EnsureDatabase(ctx, "kept"); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(ctx, p.DSN("kept"))
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			if _, err := conn.Exec(ctx, "CREATE TABLE n (n int); INSERT INTO n VALUES (7)"); err != nil {
				t.Fatal(err)
			}
		}
		var n int
		var fsync string
		if err := conn.QueryRow(ctx, "SELECT n, current_setting('fsync') FROM n").Scan(&n, &fsync); err != nil || n != 7 || fsync != "on" {
			t.Fatalf("n %d, fsync %s, error %v; want 7, on", n, fsync, err)
		}
		conn.Close(ctx)
		// A wrong password is refused: the port is open to everybody here.
		wrong := strings.Replace(p.DSN("kept"), p.password, "x"+p.password, 1)
		if c, err := pgx.Connect(ctx, wrong); err == nil {
			c.Close(ctx)
			t.Error("a wrong password was let in")
		}
		pid := p.Child().Pid()
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Error("postgres is there after Stop")
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "password")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("password file: %v, %v; want mode 0600", st, err)
	}
}

// A cluster goes elsewhere when its user could not walk to it.
func TestPostgresDirMoves(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs it as somebody else")
	}
	t.Parallel()
	dir := testDir(t)
	open, closed := filepath.Join(dir, "open"), filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := PostgresDir(open); got != open {
		t.Errorf("PostgresDir(%s) = %s", open, got)
	}
	inside := filepath.Join(closed, "postgres")
	moved := PostgresDir(inside)
	if moved == inside || moved == "" || !strings.HasPrefix(filepath.Base(moved), "berth-postgres-") {
		t.Errorf("PostgresDir(%s) = %s, want it elsewhere", inside, moved)
	}
	t.Cleanup(func() { os.RemoveAll(moved) })
	p, err := StartPostgres(t.Context(), PostgresOptions{Dir: inside, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Moved || p.Dir != moved {
		t.Errorf("moved %v to %s, want %s", p.Moved, p.Dir, moved)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestBusyPortIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", Addr(0))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	dir := testDir(t)
	for part, start := range map[string]func() error{
		"postgres": func() error {
			_, err := StartPostgres(t.Context(), PostgresOptions{Dir: filepath.Join(dir, "postgres"), Port: port, Volatile: true})
			return err
		},
		"versitygw": func() error {
			_, err := StartS3(t.Context(), S3Options{Dir: filepath.Join(dir, "s3"), Port: port})
			return err
		},
		"kumo": func() error {
			_, err := StartSQS(t.Context(), SQSOptions{Port: port})
			return err
		},
		"bridge": func() error {
			_, err := StartBridge(BridgeOptions{Port: port})
			return err
		},
	} {
		err := start()
		if !errors.Is(err, ErrPortBusy) || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), strconv.Itoa(port)) {
			t.Errorf("%s on a busy port: %v; want ErrPortBusy with the part and the port", part, err)
		}
	}
}

// versitygw starts only when its webhook answers, and what it posts is in the
// queue as it came.
func TestNotificationsReachTheQueue(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), testDir(t)
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := StartS3(ctx, S3Options{Dir: filepath.Join(dir, "s3"), Webhook: "http://" + Addr(port) + "/notify"}); err == nil {
		_ = s.Stop()
		t.Fatal("versitygw started with nobody at its webhook: the order has no reason any more")
	}

	q, err := StartSQS(ctx, SQSOptions{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Stop() }()
	if q.Port != port || q.Endpoint != "http://"+Addr(port) {
		t.Errorf("kumo at %s, want port %d", q.Endpoint, port)
	}
	queue, err := EnsureQueue(ctx, q.Client(), q.Endpoint, "notifications-test", QueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := EnsureQueue(ctx, q.Client(), q.Endpoint, "notifications-own", QueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := StartBridge(BridgeOptions{SQS: q.Client(), Queue: queue.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Stop() }()
	b.Route("bucket-own", own.URL)
	s, err := StartS3(ctx, S3Options{Dir: filepath.Join(dir, "s3"), Webhook: b.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()

	if text := receive(t, q.Client(), queue.URL); !strings.Contains(text, "s3:TestEvent") {
		t.Errorf("first message %s, want the test event", text)
	}
	for _, bucket := range []string{"bucket-common", "bucket-own"} {
		if err := s.EnsureBucket(ctx, bucket); err != nil {
			t.Fatal(err)
		}
		if err := s.EnsureBucket(ctx, bucket); err != nil {
			t.Errorf("a second time: %v", err)
		}
		put, err := s.Client().PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("a b/ü"), Body: strings.NewReader("x")})
		if err != nil {
			t.Fatal(err)
		}
		if put.VersionId == nil || *put.VersionId == "" {
			t.Errorf("%s: no version id: versions are off", bucket)
		}
		url := queue.URL
		if bucket == "bucket-own" {
			url = own.URL
		}
		text := receive(t, q.Client(), url)
		for _, want := range []string{bucket, `"a b/ü"`, "s3:ObjectCreated:Put"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: message %s lacks %s", bucket, text, want)
			}
		}
	}
}

// receive takes one message off the queue and deletes it.
func receive(t *testing.T, client *sqs.Client, url string) string {
	t.Helper()
	out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 1, WaitTimeSeconds: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Messages) != 1 {
		t.Fatalf("%d messages in %s, want 1", len(out.Messages), url)
	}
	if _, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: out.Messages[0].ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	return *out.Messages[0].Body
}

// What is given up on moves to the dead-letter queue.
func TestRedrive(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, err := StartSQS(ctx, SQSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Stop() }()
	queue, err := EnsureQueue(ctx, q.Client(), q.Endpoint, "redrive-test", QueueOptions{ReceiveLimit: 1, Visibility: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	client := q.Client()
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queue.URL, MessageBody: aws.String("poison")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message is in the dead-letter queue", func() bool {
		if _, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue.URL}); err != nil {
			t.Fatal(err)
		}
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue.DeadLetterURL})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Messages) == 1 && *out.Messages[0].Body == "poison"
	})
}
