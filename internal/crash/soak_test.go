package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"berth/client/wire"
	"berth/cmd/berthd/config"
	"berth/controlplane/reconcile"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// The soak's times, by real clocks: a life of hours in seconds.
const (
	soakDeadline = 8 * time.Second
	soakHard     = 20 * time.Second
	soakGrace    = 3 * time.Second
	soakURL      = 10 * time.Second
	soakLease    = 10 * time.Second
	soakSecret   = "0123456789abcdef0123456789abcdef"
)

// soakFor is how long the soak runs: BERTH_SOAK seconds, or a minute among all, or not.
func soakFor() time.Duration {
	if s, err := strconv.Atoi(os.Getenv("BERTH_SOAK")); err == nil {
		return time.Duration(s) * time.Second
	}
	if full() {
		return time.Minute
	}
	return 0
}

// TestSoak runs two real berthds against real parts, with clients, events and workers, and
// kills and stops the two at random. In the end one is left alone until all is done: then F1
// to F9 hold, what a client was told is true, and S3 holds exactly the versions that active
// files reference.
func TestSoak(t *testing.T) {
	length := soakFor()
	if length == 0 {
		t.Skip("in make test-crash and make soak")
	}
	w := newWorld(t)
	s := &soak{t: t, w: w, counts: map[string]int{}, active: map[string]bool{}, deleted: map[string]bool{}}
	s.build()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	servers := []*daemon{s.serve(), s.serve()}
	s.urls = []string{servers[0].url(), servers[1].url()}
	if slices.Contains(s.urls, nobody) {
		t.Fatal("a berthd does not serve")
	}
	var clients, killers sync.WaitGroup
	for i := range 6 {
		clients.Go(func() { s.client(ctx, fmt.Sprintf("owner-%d", i%3)) })
	}
	for i, d := range servers {
		killers.Go(func() { s.torment(ctx, i, d) })
	}
	clients.Wait()
	killers.Wait()
	for _, d := range servers {
		d.kill()
	}
	s.finish()
}

type soak struct {
	t      *testing.T
	w      *world
	binary string
	config string
	token  map[string]string

	mu      sync.Mutex
	urls    []string
	counts  map[string]int
	active  map[string]bool // files that a client was told are committed
	deleted map[string]bool // files that a client asked to delete, answered or not
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// build makes berthd, its configuration and the owners' tokens.
func (s *soak) build() {
	t := s.t
	dir := t.TempDir()
	s.binary = filepath.Join(dir, "berthd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.binary, "berth/cmd/berthd").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	q := testkit.Notifications(t, s.w.s3)
	style := true
	c := config.Config{
		Listen:   "127.0.0.1:0",
		Database: config.Database{URL: config.Secret(s.w.dsn), MaxConns: 8},
		Auth:     config.Auth{HS256Secret: soakSecret},
		Stores: map[string]config.Store{string(stack.Main): {
			Endpoint: s.w.s3.Endpoint, Region: s.w.s3.Region, Bucket: s.w.s3.Bucket, PathStyle: &style,
			AccessKeyID: s.w.s3.AccessKey, SecretAccessKey: config.Secret(s.w.s3.SecretKey),
		}},
		Events: config.Events{QueueURL: q.QueueURL, Endpoint: q.Endpoint, Region: q.Region, AccessKeyID: "x", SecretAccessKey: "x",
			Visibility: config.Duration(3 * time.Second)},
		Worker:      config.Worker{Interval: config.Duration(time.Second), Lease: config.Duration(soakLease)},
		Collections: map[string]config.Collection{},
	}
	for name, k := range collections() {
		c.Collections[name] = config.Collection{
			MaxFiles: k.MaxFiles, MaxBytes: config.Bytes(k.MaxBytes), Dedupe: string(k.Dedupe), Algorithm: string(k.Algorithm),
			Commit: string(k.Commit), PartSize: config.Bytes(k.PartSize), SingleMax: config.Bytes(k.SingleMax),
			Deadline: config.Duration(soakDeadline), HardDeadline: config.Duration(soakHard), Grace: config.Duration(soakGrace), URLExpiry: config.Duration(soakURL),
		}
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	s.config = filepath.Join(dir, "berth.yaml")
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.token = map[string]string{}
	for i := range 3 {
		owner := fmt.Sprintf("owner-%d", i)
		out, err := exec.CommandContext(t.Context(), s.binary, "token", "--owner", owner, "--secret", soakSecret).Output() // #nosec G204 -- built above
		if err != nil {
			t.Fatal(err)
		}
		s.token[owner] = strings.TrimSpace(string(out))
	}
}

// daemon is a running berthd.
type daemon struct {
	cmd   *exec.Cmd
	addr  chan string
	said  *bytes.Buffer
	ended chan struct{}
}

// serve starts a berthd.
func (s *soak) serve() *daemon {
	d := &daemon{cmd: exec.Command(s.binary, "serve", "--config", s.config), addr: make(chan string, 1), said: &bytes.Buffer{}, ended: make(chan struct{})} // #nosec G204 -- built above
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "BERTH_") && !strings.HasPrefix(e, "AWS_") {
			d.cmd.Env = append(d.cmd.Env, e)
		}
	}
	pipe, err := d.cmd.StderrPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		s.t.Error(err)
		close(d.ended)
		return d
	}
	go func() {
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			var l struct{ Level, Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "berthd serves" {
				d.addr <- "http://" + l.Address
			}
			// A client that gave up waiting is logged too, and is none of our business.
			if l.Level == "" || (l.Level == "ERROR" && !strings.Contains(lines.Text(), string(models.CodeStoreUnavailable))) {
				s.t.Logf("berthd: %s", lines.Text())
			}
		}
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	return d
}

// nobody serves there.
const nobody = "http://127.0.0.1:1"

// url waits until it serves.
func (d *daemon) url() string {
	select {
	case a := <-d.addr:
		return a
	case <-d.ended:
	case <-time.After(30 * time.Second):
	}
	return nobody
}

func (d *daemon) signal(s os.Signal) { _ = d.cmd.Process.Signal(s) }

func (d *daemon) kill() {
	d.signal(syscall.SIGKILL)
	<-d.ended
}

// torment kills the server again and again, or stops it for longer than its leases last.
func (s *soak) torment(ctx context.Context, i int, d *daemon) {
	pause := func(least, most time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(least + rand.N(most-least)): // #nosec G404 -- chance
		}
	}
	for {
		pause(500*time.Millisecond, 4*time.Second)
		if ctx.Err() != nil {
			d.kill()
			return
		}
		if rand.IntN(6) == 0 { // #nosec G404 -- chance
			s.count("stops")
			d.signal(syscall.SIGSTOP)
			pause(soakLease+time.Second, soakLease+3*time.Second)
			d.signal(syscall.SIGCONT)
			continue
		}
		s.count("kills")
		d.kill()
		d = s.serve()
		url := d.url()
		s.mu.Lock()
		s.urls[i] = url
		s.mu.Unlock()
	}
}

// call asks one server after the other until one answers. ok is false when none did.
func (s *soak) call(ctx context.Context, owner, method, path, key string, body, into any) (status int, ok bool) {
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Error(err)
		return 0, false
	}
	for range 8 {
		s.mu.Lock()
		url := s.urls[rand.IntN(len(s.urls))] // #nosec G404 -- chance
		s.mu.Unlock()
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		req, err := http.NewRequestWithContext(one, method, url+path, bytes.NewReader(text))
		if err != nil {
			cancel()
			s.t.Error(err)
			return 0, false
		}
		req.Header.Set("Authorization", "Bearer "+s.token[owner])
		req.Header.Set("Content-Type", "application/json")
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			var answer []byte
			answer, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil {
				cancel()
				var p struct{ Code string }
				_ = json.Unmarshal(answer, &p)
				if p.Code != "" {
					s.count(p.Code)
				}
				if into != nil && resp.StatusCode < 300 {
					if err := json.Unmarshal(answer, into); err != nil {
						s.t.Errorf("%s %s: %v", method, path, err)
					}
				}
				return resp.StatusCode, true
			}
		}
		cancel()
		s.count("no answer")
		select {
		case <-ctx.Done():
			return 0, false
		case <-time.After(200 * time.Millisecond):
		}
	}
	return 0, false
}

type soakUpload struct {
	ID     string
	FileID string `json:"file_id"`
	State  string
	File   struct{ ID string } // once committed; another's, where the same was there already
	Parts  []wire.SignedPart
}

// client lives one life after another.
func (s *soak) client(ctx context.Context, owner string) {
	for n := 0; ctx.Err() == nil; n++ {
		s.life(ctx, owner)
	}
}

// life opens, and then does what people do: go on to the end, or not.
func (s *soak) life(ctx context.Context, owner string) {
	names := slices.Sorted(maps.Keys(collections()))
	collection := names[rand.IntN(len(names))]     // #nosec G404 -- chance
	size := bodies[rand.IntN(len(bodies))]         // #nosec G404 -- chance
	content := stack.Bytes(byte(rand.N(40)), size) // #nosec G404 -- chance
	alg := models.CRC64NVME
	if collection == "sha" {
		alg = models.SHA256
	}
	req := map[string]any{"collection": collection, "name": "a.pdf", "size": size, "content_type": "application/pdf"}
	if alg == models.CRC64NVME && rand.IntN(2) == 0 { // #nosec G404 -- chance
		req["checksum"] = map[string]any{"algorithm": "crc64nvme", "value": alg.Sum(content)}
	}
	key := ""
	if rand.IntN(2) == 0 { // #nosec G404 -- chance
		key = fmt.Sprintf("key-%d", rand.Int64()) // #nosec G404 -- chance
	}
	s.count("opens")
	var u soakUpload
	if status, ok := s.call(ctx, owner, http.MethodPost, "/v1/uploads", key, req, &u); !ok || status >= 300 || u.ID == "" {
		return
	}
	gone := func(chance int) bool { return ctx.Err() != nil || rand.IntN(100) < chance } // #nosec G404 -- chance
	if gone(10) {
		return
	}
	if len(u.Parts) == 0 || gone(30) {
		var signed soakUpload
		s.call(ctx, owner, http.MethodPost, "/v1/uploads/"+u.ID+"/parts", "", map[string]any{
			"parts": []any{map[string]any{"number": 1, "checksum": alg.Sum(content)}}}, &signed)
		u.Parts = signed.Parts
	}
	if gone(10) || len(u.Parts) == 0 {
		return
	}
	if _, err := stack.Send(ctx, stack.Signed(u.Parts[0]), content); err != nil {
		return
	}
	s.count("sends")
	switch n := rand.IntN(100); { // #nosec G404 -- chance
	case n < 8:
		s.call(ctx, owner, http.MethodDelete, "/v1/uploads/"+u.ID, "", nil, nil)
		return
	case n < 35: // the event will do it, or repair
	default:
		var done soakUpload
		if status, ok := s.call(ctx, owner, http.MethodPost, "/v1/uploads/"+u.ID+"/complete", "", map[string]any{}, &done); !ok || status != http.StatusOK {
			return
		}
		if done.State == "completed" {
			if status, ok := s.call(ctx, owner, http.MethodPost, "/v1/uploads/"+u.ID+"/commit", "", map[string]any{"name": "b.pdf"}, nil); !ok || status != http.StatusOK {
				return
			}
			done.State, done.File.ID = "committed", u.FileID
		}
		if done.State == "committed" {
			s.mu.Lock()
			s.active[done.File.ID] = true
			s.mu.Unlock()
		}
	}
	if gone(50) {
		return
	}
	s.mu.Lock()
	s.deleted[u.FileID] = true
	s.mu.Unlock()
	s.call(ctx, owner, http.MethodDelete, "/v1/files/"+u.FileID, "", nil, nil)
}

// risen deals with what versitygw 1.8.0 brings back: a part that lands while its upload is
// completed makes the upload's folder anew, and the upload, which is complete, is listed as
// open for ever. No session is open then that could clean it up; reconcile is what finds it,
// and must find exactly that.
func (s *soak) risen(p *process) {
	t := s.t
	n := int64(0)
	for m, err := range s.w.raw.ListMultiparts(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		n += value[int64](t, s.w, "SELECT count(*) FROM uploads WHERE key = $1 AND s3_upload_id = $2 AND state = 'committed'", m.Key, m.S3UploadID)
	}
	if n == 0 {
		return
	}
	s.count("risen multiparts")
	r := &reconcile.Runner{Store: stack.Main, Records: p.store, Objects: p.objects, Log: slog.New(slog.DiscardHandler), Metrics: reconcile.NewMetrics(nil),
		Now: func() time.Time { return time.Now().UTC().Add(25 * time.Hour) }} // it is old enough then
	report, err := r.Run(t.Context(), reconcile.Options{Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	for kind, c := range report.Findings {
		if kind != models.FindOrphanMultipart || c.Found != n || c.Mended != n {
			t.Errorf("reconcile after the soak: %s found %d, mended %d; %d multiparts had risen", kind, c.Found, c.Mended, n)
		}
	}
}

// finish leaves one server alone until all work is done, and judges.
func (s *soak) finish() {
	t := s.t
	// A Complete's lease is minutes long, and its holder is dead: its time passes at once.
	if _, err := s.w.pool.Exec(t.Context(), "UPDATE uploads SET lease_until = now() WHERE lease_until > now()"); err != nil {
		t.Fatal(err)
	}
	d := s.serve()
	defer d.kill()
	d.url()
	begun := time.Now()
	// However much a long soak left, it must get less, and reach nothing.
	left := []string{"SELECT count(*) FROM uploads WHERE closed_at IS NULL", "SELECT count(*) FROM tasks WHERE state IN ('pending', 'running')",
		"SELECT count(*) FROM foreign_versions WHERE reaped_at IS NULL"}
	for least := math.MaxInt; least > 0; {
		testkit.Eventually(t, 3*time.Minute, func() error {
			n := 0
			for _, q := range left {
				n += value[int](t, s.w, q)
			}
			if n >= least {
				return fmt.Errorf("%d left, no fewer than before, after %s: %s", n, time.Since(begun).Round(time.Second), value[string](t, s.w,
					"SELECT COALESCE(string_agg(x, ', '), '') FROM (SELECT kind || ' ' || state || ' ' || (run_at > now()) || ' ' || count(*) AS x FROM tasks WHERE state IN ('pending', 'running') GROUP BY kind, state, run_at > now()) y"))
			}
			least = n
			return nil
		})
	}
	p := s.w.startWith(t, nil, parts{clock: func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }})
	s.risen(p)
	mustHold(t, s.w, p, true, "after the soak")
	for id := range s.active {
		state := value[string](t, s.w, "SELECT state FROM files WHERE id = $1", id)
		if state != "active" && !s.deleted[id] {
			t.Errorf("a client was told that file %s is committed; it is %s", id, state)
		}
	}
	if s.counts["INTERNAL"] > 0 {
		t.Errorf("%d answers were INTERNAL", s.counts["INTERNAL"])
	}
	// versitygw lists a version twice where a page ends: counted once.
	objects := map[models.VersionRef]bool{}
	for v, err := range s.w.raw.ListVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		objects[models.VersionRef{Key: v.Key, VersionID: v.VersionID}] = true
	}
	want(t, s.w, len(objects), "SELECT count(*) FROM files WHERE state = 'active'")
	states, err := rows[struct {
		State string
		N     int
	}](t.Context(), s.w, "SELECT state, count(*) FROM files GROUP BY state ORDER BY state")
	if err = errors.Join(err, t.Context().Err()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v; files %v; %d versions at S3; done %v after the last kill", s.counts, states, len(objects), time.Since(begun).Round(time.Second))
}
