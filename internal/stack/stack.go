// Package stack puts the rooms together for tests: a service on its own database, its
// own bucket, and a clock of its own. It is for tests only.
package stack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/client/wire"
	"berth/controlplane"
	"berth/controlplane/objects"
	"berth/controlplane/store"
	"berth/internal/testkit"
	"berth/models"
)

// Stack is a whole control plane without HTTP.
type Stack struct {
	DSN     string
	S3      testkit.S3Info
	Store   *store.Store
	Objects *objects.Store
	Service *controlplane.Service
	// Clock is what the service believes. S3 and PostgreSQL have the machine's.
	Clock *testkit.Clock
	pool  *pgxpool.Pool
}

// Main is the name of the one store of a stack.
const Main models.StoreName = "main"

// Collections are those of the local cloud and a few that tests need.
func Collections() map[string]models.Collection {
	base := models.Collection{
		Algorithm: models.SHA256, Commit: models.CommitAuto, Dedupe: models.DedupeNone, Store: Main,
		PartSize: models.MinPartSize, SingleMax: models.MinPartSize, Deadline: time.Hour, HardDeadline: 24 * time.Hour,
		Grace: 10 * time.Minute, URLExpiry: 15 * time.Minute,
	}
	out := map[string]models.Collection{}
	add := func(name string, change func(*models.Collection)) {
		c := base
		c.Name = name
		change(&c)
		out[name] = c
	}
	add("default", func(*models.Collection) {})
	add("resume", func(c *models.Collection) {
		c.Extensions = []string{"pdf", "doc", "docx"}
		c.MaxSize, c.MaxFiles, c.Dedupe = 10<<20, 5, models.DedupeReject
	})
	add("instant", func(c *models.Collection) { c.Dedupe = models.DedupeReuse })
	add("draft", func(c *models.Collection) { c.Commit = models.CommitDeferred })
	add("brief", func(c *models.Collection) {
		c.Deadline, c.HardDeadline, c.Grace = 5*time.Second, 5*time.Second, 2*time.Second
	})
	add("crc64", func(c *models.Collection) { c.Algorithm = models.CRC64NVME })
	add("crc32c", func(c *models.Collection) { c.Algorithm = models.CRC32C })
	add("pinned", func(c *models.Collection) { c.ChecksumRequired = true })
	add("checked", func(c *models.Collection) {
		c.Steps = []models.Step{{Name: "first", Kind: "test"}, {Name: "second", Kind: "test"}}
		c.MaxFiles = 100
	})
	add("few", func(c *models.Collection) { c.MaxOpen = 2 })
	add("careful", func(c *models.Collection) { c.VerifyOnRead = true })
	return out
}

// New makes a stack of its own for one test.
func New(t testing.TB) *Stack {
	t.Helper()
	return On(t, testkit.S3(t))
}

// On makes a stack on a bucket that is there.
func On(t testing.TB, bucket testkit.S3Info) *Stack {
	t.Helper()
	s := &Stack{DSN: testkit.DB(t), S3: bucket, Clock: testkit.NewClock()}
	var err error
	if s.Store, err = store.Open(t.Context(), s.DSN, store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Store.Close() })
	if s.pool, err = pgxpool.New(t.Context(), s.DSN); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	if s.Objects, err = objects.New(objects.Config{
		Name: Main, Bucket: s.S3.Bucket, Region: s.S3.Region, Endpoint: s.S3.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.S3.AccessKey, s.S3.SecretKey, ""),
	}); err != nil {
		t.Fatal(err)
	}
	s.Service = s.NewService(t, s.Store, s.Objects)
	return s
}

// NewService makes another service, like a second server process, on the same database
// and bucket. records and objects may be wrapped.
func (s *Stack) NewService(t testing.TB, records controlplane.Records, obj controlplane.Objects) *controlplane.Service {
	t.Helper()
	svc, err := controlplane.New(controlplane.Config{
		Records: records, Stores: map[models.StoreName]controlplane.Store{Main: {Objects: obj, Prefix: "b/"}},
		Collections: Collections(), Now: s.Clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

// Caller is an owner of the default tenant with all scopes.
func Caller(owner string) models.Caller {
	return models.Caller{Tenant: "default", Owner: models.Owner(owner),
		Scopes: []models.Scope{models.ScopeUpload, models.ScopeRead, models.ScopeDelete, models.ScopeAdmin}}
}

// Signed is a signed request as the API answered it.
func Signed(w wire.SignedPart) models.SignedPart {
	p := models.SignedPart{Number: w.Number, Size: w.Size, Method: w.Method, URL: w.URL}
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		p.Headers = append(p.Headers, models.Header{Name: name, Value: w.Headers[name]})
	}
	return p
}

// Send sends a body with a signed request, exactly as given, and returns S3's status.
func Send(ctx context.Context, p models.SignedPart, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, p.Method, p.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for _, h := range p.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	req.ContentLength = int64(len(body))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or not, it is done with
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// MustSend is Send that fails the test on anything but 200.
func MustSend(t testing.TB, p models.SignedPart, body []byte) {
	t.Helper()
	status, err := Send(t.Context(), p, body)
	if err != nil {
		t.Fatal(err)
	}
	if status != http.StatusOK {
		t.Fatalf("part %d: S3 answered %d", p.Number, status)
	}
}

// Bytes are n bytes that look like nothing, the same for the same seed.
func Bytes(seed byte, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 12345
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// Pool is for what Query is too small for.
func (s *Stack) Pool() *pgxpool.Pool { return s.pool }

// Query runs one query that gives one value.
func Query[T any](t testing.TB, s *Stack, q string, a ...any) T {
	t.Helper()
	var v T
	if err := s.pool.QueryRow(t.Context(), q, a...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return v
}

// Snapshot counts the rows of every table and what lies in the bucket: for tests that
// say that nothing was changed.
func (s *Stack) Snapshot(t testing.TB) string {
	t.Helper()
	out := ""
	for _, table := range []string{"files", "uploads", "replicas", "tasks", "pins", "outbox", "history", "quotas", "idempotency", "grant_uses"} {
		out += fmt.Sprintf("%s=%d ", table, Query[int64](t, s, "SELECT count(*) FROM "+table))
	}
	versions, multiparts := 0, 0
	for _, err := range s.Objects.ListVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		versions++
	}
	for _, err := range s.Objects.ListMultiparts(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		multiparts++
	}
	return fmt.Sprintf("%sversions=%d multiparts=%d", out, versions, multiparts)
}
