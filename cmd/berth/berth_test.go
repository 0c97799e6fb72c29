package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/client/wire"
	"berth/internal/testkit"
)

const mib = 1 << 20

// makeFile writes a file of random bytes.
func makeFile(t testing.TB, path string, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return data
}

func sameFile(t testing.TB, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, other than the %d that were sent", path, len(got), len(want))
	}
}

// TestThereAndBack: whatever the size, the collection and the algorithm, what is sent
// is what is read, checked by what S3 attested.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	for _, tc := range []struct {
		size int
		args []string
		alg  string
	}{
		{0, nil, "sha256"}, {1, nil, "sha256"}, {64 << 10, nil, "sha256"}, {17 * mib, nil, "sha256"},
		{0, []string{"-c", "crc"}, "crc64nvme"}, {5, []string{"-c", "crc"}, "crc64nvme"}, {12*mib + 3, []string{"-c", "crc"}, "crc64nvme"},
		{5, []string{"-c", "crc", "--checksum-algorithm", "sha256"}, "sha256"},
		{12*mib + 3, []string{"--checksum-algorithm", "crc32c", "-c", "parts"}, "crc32c"},
		{5*mib + 1, []string{"-c", "parts", "--declare"}, "sha256"},
		{40 * mib, []string{"--declare"}, "sha256"},
	} {
		t.Run(fmt.Sprint(tc.size, tc.args), func(t *testing.T) {
			dir := t.TempDir()
			data := makeFile(t, filepath.Join(dir, "a b.bin"), tc.size)
			line := h.put(append(tc.args, filepath.Join(dir, "a b.bin"))...)[0]
			f := line.File
			if f == nil || f.State != "active" || f.Name != "a b.bin" || f.Size != int64(tc.size) || f.Checksum.Algorithm != tc.alg ||
				f.Checksum.Declared == nil || !*f.Checksum.Declared || f.ContentType != "application/octet-stream" {
				t.Errorf("the record: %+v", f)
			}
			out := filepath.Join(dir, "back")
			got := lines[getLine](t, h.must("get", "--json", f.ID, "-o", out).stdout)[0]
			if !got.Verified || got.VersionID == "" {
				t.Errorf("read: %+v", got)
			}
			sameFile(t, out, data)
			if list, _ := filepath.Glob(out + ".part*"); list != nil {
				t.Errorf("left behind: %v", list)
			}
			if r := h.run("get", f.ID, "-o", out); r.exit != exitFailed || !strings.Contains(r.stderr, "--force") {
				t.Errorf("over an existing file: exit %d: %s", r.exit, r.stderr)
			}
			if r := h.must("get", "-q", f.ID, "-o", "-"); r.stdout != string(data) {
				t.Error("the standard output has other bytes")
			}
		})
	}
}

// TestNamesAndFolders: the record's name goes into the given folder, as a name only.
func TestNamesAndFolders(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	dir := t.TempDir()
	data := makeFile(t, filepath.Join(dir, "x"), 10)
	line := h.put("--name", ".. Lebenslauf 履歴書.pdf", "--type", "application/pdf", "--metadata", `{"a":[1,"ü"]}`, filepath.Join(dir, "x"))[0]
	if line.File.ContentType != "application/pdf" || string(line.File.Metadata) != `{"a":[1,"ü"]}` {
		t.Errorf("record: %+v", line.File)
	}
	out := t.TempDir()
	h.must("get", line.File.ID, "-o", out)
	sameFile(t, filepath.Join(out, "_. Lebenslauf 履歴書.pdf"), data)
}

// TestList: ls, status and rm see the same files.
func TestList(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	dir := t.TempDir()
	var paths []string
	for i := range 7 {
		p := filepath.Join(dir, fmt.Sprintf("f%d.txt", i))
		makeFile(t, p, 100+i)
		paths = append(paths, p)
	}
	put := h.put(paths...)
	if len(put) != 7 {
		t.Fatalf("%d lines", len(put))
	}
	all := lines[wire.File](t, h.must("ls", "--json").stdout)
	if len(all) != 7 || all[0].ContentType != "text/plain; charset=utf-8" {
		t.Errorf("ls: %+v", all)
	}
	if n := len(lines[wire.File](t, h.must("ls", "--json", "--limit", "3").stdout)); n != 3 {
		t.Errorf("--limit 3 gives %d", n)
	}
	if n := len(lines[wire.File](t, h.must("ls", "--json", "--collection", "draft").stdout)); n != 0 {
		t.Errorf("another collection has %d", n)
	}
	if r := h.must("ls"); strings.Count(r.stdout, "\n") != 7 || !strings.Contains(r.stdout, "f3.txt") {
		t.Errorf("ls: %s", r.stdout)
	}
	id := all[0].ID
	if r := h.must("status", id, "--history"); !strings.Contains(r.stdout, "preparing → active") {
		t.Errorf("status: %s", r.stdout)
	}
	if f := status[wire.File](h, id); f.State != "active" {
		t.Errorf("status: %+v", f)
	}
	gone := lines[rmLine](t, h.must("rm", "--json", id, all[1].ID).stdout)
	if len(gone) != 2 || !strings.HasPrefix(gone[0].State, "delet") {
		t.Errorf("rm: %+v", gone)
	}
	if r := h.run("get", id, "-o", filepath.Join(dir, "no")); r.exit == 0 {
		t.Error("a deleted file can be read")
	}
	if n := len(lines[wire.File](t, h.must("ls", "--json", "--state", "active").stdout)); n != 5 {
		t.Errorf("%d files are active, want 5", n)
	}
}

// TestExitCodes: each kind of failure has its own.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	dir := t.TempDir()
	file := func(name string, size int) string {
		p := filepath.Join(dir, name)
		makeFile(t, p, size)
		return p
	}
	pdf, exe, big := file("a.pdf", 10), file("a.exe", 10), file("big.pdf", 2*mib)
	unknown := "fil_01900000-0000-7000-8000-000000000000"
	for _, tc := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{"help", []string{"--help"}, 0, "Exit codes"},
		{"version", []string{"--version"}, 0, ""},
		{"no command", nil, exitUsage, ""},
		{"unknown flag", []string{"ls", "--nope"}, exitUsage, ""},
		{"stdin without size", []string{"put", "-"}, exitUsage, "--size"},
		{"stdin twice", []string{"put", "-", "-", "--size", "1"}, exitUsage, ""},
		{"size without stdin", []string{"put", pdf, "--size", "1"}, exitUsage, ""},
		{"name for two", []string{"put", pdf, exe, "--name", "x"}, exitUsage, ""},
		{"metadata", []string{"put", pdf, "--metadata", "{"}, exitUsage, ""},
		{"algorithm", []string{"put", pdf, "--checksum-algorithm", "md5"}, exitUsage, ""},
		{"url", []string{"ls", "--url", "ftp://x"}, exitUsage, ""},
		{"url with a password", []string{"ls", "--url", "http://u:secret@x"}, exitUsage, ""},
		{"no such file here", []string{"put", filepath.Join(dir, "none")}, exitNotFound, "none"},
		{"a folder", []string{"put", dir}, exitFailed, "not a regular file"},
		{"no such file there", []string{"status", unknown}, exitNotFound, "NOT_FOUND"},
		{"no such upload", []string{"status", "upl_x"}, exitNotFound, ""},
		{"get none", []string{"get", unknown, "-o", filepath.Join(dir, "o")}, exitNotFound, ""},
		{"rm none", []string{"rm", unknown}, exitNotFound, ""},
		{"type", []string{"put", "-c", "resume", exe}, exitRefused, "TYPE_NOT_ALLOWED"},
		{"size", []string{"put", "-c", "resume", big}, exitRefused, "TOO_LARGE"},
		{"collection", []string{"put", "-c", "nope", pdf}, exitRefused, ""},
		{"metadata of another kind", []string{"put", pdf, "--metadata", "[1]"}, exitRefused, "METADATA_INVALID"},
		{"no token", []string{"ls", "--token", ""}, exitNotAllowed, ""},
		{"bad token", []string{"ls", "--token", "bad-token-text"}, exitNotAllowed, "UNAUTHENTICATED"},
		{"some fail", []string{"put", pdf, filepath.Join(dir, "none")}, exitPartly, ""},
		{"all fail alike", []string{"put", filepath.Join(dir, "n1"), filepath.Join(dir, "n2")}, exitNotFound, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := h.run(tc.args...)
			if r.exit != tc.exit || !strings.Contains(r.stdout+r.stderr, tc.says) {
				t.Errorf("exit %d, want %d, saying %q:\n%s%s", r.exit, tc.exit, tc.says, r.stdout, r.stderr)
			}
			for _, secret := range []string{"bad-token-text", "u:secret"} {
				if strings.Contains(r.stdout+r.stderr, secret) {
					t.Errorf("the secret is told: %s%s", r.stdout, r.stderr)
				}
			}
		})
	}
	// The quota and the duplicate need an order.
	h.must("put", "-c", "resume", pdf)
	if r := h.run("put", "-c", "resume", pdf); r.exit != exitRefused || !strings.Contains(r.stderr, "DUPLICATE_FILE") {
		t.Errorf("a duplicate: exit %d: %s", r.exit, r.stderr)
	}
	h.must("put", "-c", "resume", file("b.pdf", 20))
	if r := h.run("put", "--json", "-c", "resume", file("c.pdf", 30)); r.exit != exitRefused || lines[failure](t, r.stdout)[0].Code != "QUOTA_EXCEEDED" {
		t.Errorf("over the quota: exit %d: %s", r.exit, r.stdout)
	}
	// A server that is not there.
	cmd := h.berth("ls", "--url", "http://127.0.0.1:1")
	if testing.Short() {
		return
	}
	if r := h.finish(cmd); r.exit != exitFailed {
		t.Errorf("no server: exit %d: %s", r.exit, r.stderr)
	}
}

// TestTokenFile: the token may lie in a file.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(h.token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := h.run("ls", "--token", "", "--token-file", file); r.exit != 0 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
}

// TestDedupe: an instant upload sends nothing; a deferred one waits for its commit.
func TestDedupe(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	dir := t.TempDir()
	for _, size := range []int{1000, 40 * mib} {
		path := filepath.Join(dir, fmt.Sprint(size))
		makeFile(t, path, size)
		first := h.put("-c", "instant", "--declare", path)[0]
		h.proxy.set(nil, nil)
		second := h.put("-c", "instant", "--declare", path)[0]
		if !second.Instant || second.Sent != 0 || h.proxy.puts.Load() != 0 || second.File.ID != first.File.ID {
			t.Errorf("%d bytes again: %+v, %d PUTs", size, second, h.proxy.puts.Load())
		}
	}
	path := filepath.Join(dir, "draft")
	makeFile(t, path, 1000)
	line := h.put("-c", "draft", path)[0]
	if line.File != nil || line.State != "completed" {
		t.Errorf("a draft: %+v", line)
	}
	if line = h.put("-c", "draft", "--commit", "auto", path)[0]; line.File == nil || line.File.State != "active" {
		t.Errorf("a draft that is committed at once: %+v", line)
	}
	if r := h.must("put", "-c", "draft", path); !strings.Contains(r.stdout, "upl_") || !strings.Contains(r.stdout, "committed") {
		t.Errorf("a draft, for people: %s", r.stdout)
	}
}

// TestStdin: a stream of a known size, and streams that are not of that size.
func TestStdin(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	data := makeFile(t, filepath.Join(t.TempDir(), "x"), 23*mib)
	run := func(size int, args ...string) result {
		cmd := h.berth(append([]string{"put", "--json", "-c", "parts", "-", "--name", "s.txt", "--size", fmt.Sprint(size)}, args...)...)
		cmd.Stdin = io.MultiReader(bytes.NewReader(data)) // a pipe
		return h.finish(cmd)
	}
	r := run(len(data))
	if r.exit != 0 {
		t.Fatalf("exit %d: %s", r.exit, r.stderr)
	}
	f := lines[putLine](t, r.stdout)[0].File
	if f.ContentType != "text/plain; charset=utf-8" {
		t.Errorf("type %s", f.ContentType)
	}
	if got := h.must("get", "-q", f.ID, "-o", "-").stdout; got != string(data) {
		t.Error("other bytes")
	}
	for _, size := range []int{len(data) - 1, len(data) + 1} {
		if r := run(size); r.exit != exitChanged {
			t.Errorf("%d bytes declared as %d: exit %d: %s", len(data), size, r.exit, r.stdout)
		}
	}
	if list := lines[wire.File](t, h.must("ls", "--json", "--state", "active").stdout); len(list) != 1 {
		t.Errorf("%d files are active", len(list))
	}
}

// interrupt starts a put and sends sig once n parts have been taken by S3, and a few more
// are signed for and on their way.
func (h *harbour) interrupt(sig os.Signal, n int64, args ...string) result {
	h.t.Helper()
	// A part in flight when the signal comes must not make the outcome a matter of luck.
	hold := make(chan struct{})
	h.proxy.set(func(i int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && int64(i) > n {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		}
		return false
	}, nil)
	cmd := h.berth(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	testkit.Eventually(h.t, 30*time.Second, func() error {
		if taken, asked := h.proxy.puts.Load(), int64(h.proxy.asked(http.MethodPut)); taken < n || asked < n+3 {
			return fmt.Errorf("%d parts, %d asked for", taken, asked)
		}
		return nil
	})
	if err := cmd.Process.Signal(sig); err != nil {
		h.t.Fatal(err)
	}
	_ = cmd.Wait()
	close(hold)
	h.proxy.set(nil, nil)
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestKilledAndResumed: after SIGKILL in the middle, the same command sends what is
// missing and nothing else, and the file is whole.
func TestKilledAndResumed(t *testing.T) {
	t.Parallel()
	for _, collection := range []string{"parts", "crc"} {
		t.Run(collection, func(t *testing.T) {
			t.Parallel()
			h := newHarbour(t)
			path := filepath.Join(t.TempDir(), "big.bin")
			data := makeFile(t, path, 62*mib)
			h.interrupt(os.Kill, 6, "put", "-c", collection, path)
			if up := h.openUpload(); up.State != "uploading" || *up.UploadedParts != 6 {
				t.Fatalf("after the kill: %+v", up)
			}
			line := h.put("-c", collection, path)[0]
			if !line.Resumed || line.Sent != 32*mib || h.proxy.bytes.Load() != 32*mib || h.proxy.puts.Load() != 7 {
				t.Errorf("resumed: %+v; S3 took %d parts, %d bytes", line, h.proxy.puts.Load(), h.proxy.bytes.Load())
			}
			if line.File.Checksum.Declared == nil || !*line.File.Checksum.Declared {
				t.Errorf("checksum: %+v", line.File.Checksum)
			}
			out := path + ".back"
			h.must("get", line.File.ID, "-o", out)
			sameFile(t, out, data)
			if list, _ := filepath.Glob(filepath.Join(h.state, "*")); list != nil {
				t.Errorf("state stays: %v", list)
			}
		})
	}
}

// TestKilledBeforeComplete: all is sent, the client dies; the next run only completes.
func TestKilledBeforeComplete(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	path := filepath.Join(t.TempDir(), "big.bin")
	makeFile(t, path, 22*mib)
	// The fifth part's answer is held, so it is there and the client does not know.
	h.proxy.set(nil, nil)
	hold := make(chan struct{})
	h.proxy.set(nil, func(r *http.Response) error {
		if r.Request.URL.Query().Get("partNumber") == "5" && r.Request.Method == http.MethodPut {
			<-hold
		}
		return nil
	})
	cmd := h.berth("put", "-c", "parts", path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		if h.proxy.puts.Load() < 5 {
			return fmt.Errorf("%d parts", h.proxy.puts.Load())
		}
		return nil
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	close(hold)
	h.proxy.set(nil, nil)
	line := h.put("-c", "parts", path)[0]
	if line.Sent != 0 || h.proxy.puts.Load() != 0 || line.File.State != "active" {
		t.Errorf("%+v, %d PUTs", line, h.proxy.puts.Load())
	}
}

// TestInterrupted: ^C keeps the session and says so; it is aborted only if asked.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	path := filepath.Join(t.TempDir(), "big.bin")
	makeFile(t, path, 30*mib)
	r := h.interrupt(os.Interrupt, 2, "put", "-c", "parts", path)
	if r.exit != exitInterrupted || !strings.Contains(r.stderr, "same command again") {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	up := h.openUpload()
	if up.State != "uploading" {
		t.Errorf("the session is %s", up.State)
	}
	r = h.interrupt(syscall.SIGTERM, 1, "put", "-c", "parts", "--abort-on-interrupt", path)
	if r.exit != exitInterrupted {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if up = status[wire.Upload](h, up.ID); up.State != "aborted" {
		t.Errorf("the session is %s", up.State)
	}
	if list, _ := filepath.Glob(filepath.Join(h.state, "*")); list != nil {
		t.Errorf("state stays: %v", list)
	}
}

// TestChanged: a file that is another one than was begun is refused, with the way out.
func TestChanged(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	path := filepath.Join(t.TempDir(), "big.bin")
	makeFile(t, path, 30*mib)
	h.interrupt(os.Kill, 2, "put", "-c", "parts", path)
	data := makeFile(t, path, 30*mib)
	r := h.run("put", "-c", "parts", path)
	if r.exit != exitChanged || !strings.Contains(r.stderr, "restart") {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	old := h.openUpload()
	line := h.put("-c", "parts", "--restart", path)[0]
	if line.Resumed || line.Upload == old.ID {
		t.Errorf("not anew: %+v", line)
	}
	if up := status[wire.Upload](h, old.ID); up.State != "aborted" {
		t.Errorf("the old session is %s", up.State)
	}
	h.must("get", line.File.ID, "-o", path+".back")
	sameFile(t, path+".back", data)
	// The same time and size, other bytes in what was signed for: S3 and the pins tell.
	h.interrupt(os.Kill, 2, "put", "-c", "parts", path)
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	makeFile(t, path, 30*mib)
	if err := os.Chtimes(path, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
	if r := h.run("put", "-c", "parts", path); r.exit != exitChanged {
		t.Errorf("other bytes under the same time: exit %d: %s", r.exit, r.stderr)
	}
}

// TestFaultsOnTheWire: the real S3's own answers to what goes wrong between.
func TestFaultsOnTheWire(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	for _, tc := range []struct {
		name  string
		fault func(n int, w http.ResponseWriter, r *http.Request) bool
	}{
		{"503", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n%2 == 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(503)
			}
			return n%2 == 1
		}},
		{"cut", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n%3 == 1 {
				_, _ = io.CopyN(io.Discard, r.Body, mib)
				panic(http.ErrAbortHandler)
			}
			return false
		}},
		{"flipped", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 2 || n == 4 {
				r.Body = &flip{r.Body, 1000}
			}
			return false
		}},
		{"answer lost", func(n int, w http.ResponseWriter, r *http.Request) bool { return false }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.bin")
			data := makeFile(t, path, 22*mib)
			var alter func(*http.Response) error
			if tc.name == "answer lost" {
				lost := 0
				alter = func(r *http.Response) error {
					if lost++; lost <= 3 {
						return io.ErrUnexpectedEOF
					}
					return nil
				}
			}
			h.proxy.set(tc.fault, alter)
			line := h.put("-c", "parts", path)[0]
			if n := h.proxy.puts.Load(); n < 5 {
				t.Errorf("%d PUTs", n)
			}
			h.proxy.set(nil, nil)
			h.must("get", line.File.ID, "-o", path+".back")
			sameFile(t, path+".back", data)

			single := filepath.Join(t.TempDir(), "s.bin")
			small := makeFile(t, single, 100_000)
			h.proxy.set(tc.fault, alter)
			line = h.put("-c", "parts", single)[0]
			h.proxy.set(nil, nil)
			h.must("get", line.File.ID, "-o", single+".back")
			sameFile(t, single+".back", small)
		})
	}
}

// flip changes one byte on the way.
type flip struct {
	io.ReadCloser
	at int
}

func (f *flip) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.at >= 0 && f.at < n {
		p[f.at] ^= 1
	}
	f.at -= n
	return n, err
}

// TestExpiredURLs: a line so slow that URLs expire under way; S3 refuses them, new ones
// are asked for.
func TestExpiredURLs(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	path := filepath.Join(t.TempDir(), "f.bin")
	data := makeFile(t, path, 22*mib)
	late := func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 || n == 3 {
			<-time.After(urlLife(r) + time.Second) // S3 must see it late
		}
		return false
	}
	h.proxy.set(late, nil)
	line := h.put("-c", "hasty", "-p", "1", path)[0]
	if asked, taken := h.proxy.asked(http.MethodPut), h.proxy.puts.Load(); taken != 5 || asked != 7 {
		t.Errorf("%d PUTs, %d taken; want 7, 5", asked, taken)
	}
	h.proxy.set(late, nil)
	h.must("get", "-p", "1", line.File.ID, "-o", path+".back")
	if asked := h.proxy.asked(http.MethodGet); asked != 7 {
		t.Errorf("%d GETs, want 7", asked)
	}
	sameFile(t, path+".back", data)
}

// urlLife is X-Amz-Expires.
func urlLife(r *http.Request) time.Duration {
	d, err := time.ParseDuration(r.URL.Query().Get("X-Amz-Expires") + "s")
	if err != nil || d > 30*time.Second {
		panic("the collection's URLs live too long for a test")
	}
	return d
}

// TestGetFaults: what is damaged is never put in place, what is cut off is gone on from.
func TestGetFaults(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	for _, collection := range []string{"parts", "crc", "default"} {
		t.Run(collection, func(t *testing.T) {
			dir := t.TempDir()
			path, out := filepath.Join(dir, "f.bin"), filepath.Join(dir, "back")
			size := 22 * mib
			if collection == "default" {
				size = 3 * mib // one PUT: a SHA-256 of the whole
			}
			data := makeFile(t, path, size)
			id := h.put("-c", collection, path)[0].File.ID

			h.proxy.set(nil, func(r *http.Response) error {
				r.Body = &flip{r.Body, 5000}
				return nil
			})
			r := h.run("get", id, "-o", out)
			if r.exit != exitChanged {
				t.Errorf("damaged: exit %d: %s", r.exit, r.stderr)
			}
			if list, _ := filepath.Glob(out + "*"); list != nil {
				t.Errorf("left behind: %v", list)
			}
			n := 0
			h.proxy.set(nil, func(r *http.Response) error {
				if n++; n <= 4 {
					r.Body = &cut{r.Body, mib}
				}
				return nil
			})
			h.must("get", id, "-o", out)
			sameFile(t, out, data)
		})
	}
}

// cut ends a body with an error.
type cut struct {
	io.ReadCloser
	left int
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// TestGetResumes: killed in the middle, the next run reads what is missing; what was
// damaged on the disk meanwhile is found.
func TestGetResumes(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	dir := t.TempDir()
	path, out := filepath.Join(dir, "f.bin"), filepath.Join(dir, "back")
	data := makeFile(t, path, 62*mib)
	id := h.put("-c", "parts", path)[0].File.ID
	half := func() {
		h.proxy.set(func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 6 {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			return false
		}, nil)
		cmd := h.berth("get", "-p", "2", id, "-o", out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 30*time.Second, func() error {
			if n := h.proxy.asked(http.MethodGet); n < 8 { // six are whole, two wait
				return fmt.Errorf("%d requests", n)
			}
			return nil
		})
		stop(t, cmd)
	}
	half()
	h.proxy.set(nil, nil)
	line := lines[getLine](t, h.must("get", "--json", id, "-o", out).stdout)[0]
	if n := h.proxy.gets.Load(); !line.Resumed || n != 7 {
		t.Errorf("%+v after %d requests, want 7", line, n)
	}
	sameFile(t, out, data)

	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	half()
	f, err := os.OpenFile(out+".part", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{data[100] ^ 1}, 100); err != nil {
		t.Fatal(err)
	}
	f.Close()
	h.proxy.set(nil, nil)
	if r := h.run("get", id, "-o", out); r.exit != exitChanged {
		t.Errorf("damaged on the disk: exit %d: %s", r.exit, r.stderr)
	}
	h.must("get", id, "-o", out)
	sameFile(t, out, data)
}

func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if c := cmd.ProcessState.ExitCode(); c != exitInterrupted {
		t.Errorf("interrupted: exit %d", c)
	}
}

// TestManyFiles: each is opened, sent, verified and active.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	h := newHarbour(t)
	dir := t.TempDir()
	var paths []string
	for i := range 300 {
		p := filepath.Join(dir, fmt.Sprintf("%04d.bin", i))
		makeFile(t, p, i*37%5000)
		paths = append(paths, p)
	}
	seen := map[string]bool{}
	for _, l := range h.put(paths...) {
		if l.File == nil || l.File.State != "active" || l.File.Name != filepath.Base(l.Path) {
			t.Errorf("%+v", l)
			continue
		}
		seen[l.File.ID] = true
	}
	if len(seen) != 300 {
		t.Errorf("%d files", len(seen))
	}
}
