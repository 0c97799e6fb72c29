package crash_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/controlplane"
	"berth/controlplane/objects"
	"berth/controlplane/store"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// full tells whether all of it runs: make test-crash.
func full() bool { return os.Getenv("BERTH_CRASH") == "full" }

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Sizes of the tests' files: what is above singleMax is sent in parts. A multipart of one
// part needs no 5 MiB.
const (
	singleMax = kib
	small     = 300
	large     = 3 * kib
)

const (
	deadline = time.Hour
	grace    = 10 * time.Minute
	urlLife  = 15 * time.Minute
	lease    = time.Minute // of a task
	quiet    = time.Minute
)

func collections() map[string]models.Collection {
	out := map[string]models.Collection{}
	add := func(name string, change func(*models.Collection)) {
		c := models.Collection{
			Name: name, Algorithm: models.CRC64NVME, Commit: models.CommitAuto, Dedupe: models.DedupeNone, Store: stack.Main,
			PartSize: models.MinPartSize, SingleMax: singleMax, Deadline: deadline, HardDeadline: 3 * deadline,
			Grace: grace, URLExpiry: urlLife, VerifyOnRead: true,
		}
		change(&c)
		out[name] = c
	}
	add("plain", func(*models.Collection) {})
	add("sha", func(c *models.Collection) { c.Algorithm = models.SHA256 })
	add("draft", func(c *models.Collection) { c.Commit = models.CommitDeferred; c.MaxFiles = 10 })
	add("limited", func(c *models.Collection) { c.MaxFiles, c.MaxBytes = 3, 4*large })
	add("reject", func(c *models.Collection) { c.Dedupe, c.MaxFiles = models.DedupeReject, 3 })
	add("checked", func(c *models.Collection) {
		c.Steps = []models.Step{{Name: "one", Kind: "webhook"}, {Name: "two", Kind: "webhook"}}
	})
	add("reuse", func(c *models.Collection) { c.Dedupe = models.DedupeReuse })
	return out
}

// world is what lasts: a database, a bucket, and the time. Processes come and go.
type world struct {
	dsn   string
	s3    testkit.S3Info
	pool  *pgxpool.Pool
	clock *testkit.Clock
	// raw is S3 as it is, for looking and for what others do there.
	raw *objects.Store
	// heard are the events that reached who listens.
	heard sync.Map
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{dsn: testkit.DB(t), s3: testkit.S3(t), clock: testkit.NewClock()}
	config, err := pgxpool.ParseConfig(w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 3
	if w.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	if w.raw, err = w.objects(&http.Client{Transport: network}); err != nil {
		t.Fatal(err)
	}
	return w
}

// lend makes n worlds that tests take turns in: a database is dearer than a run. Who takes
// one clears it.
func lend(t testing.TB, n int) (take func(testing.TB) *world) {
	free := make(chan *world, n)
	for range n {
		free <- newWorld(t)
	}
	return func(t testing.TB) *world {
		w := <-free
		t.Cleanup(func() { free <- w })
		if err := w.clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w
	}
}

func (w *world) objects(c *http.Client) (*objects.Store, error) {
	return objects.New(objects.Config{
		Name: stack.Main, Bucket: w.s3.Bucket, Region: w.s3.Region, Endpoint: w.s3.Endpoint, PathStyle: true, HTTPClient: c,
		Credentials: credentials.NewStaticCredentialsProvider(w.s3.AccessKey, w.s3.SecretKey, ""),
	})
}

// clear makes the world as new. Backends of processes that have ended may still be there.
func (w *world) clear(ctx context.Context) error {
	w.clock = testkit.NewClock()
	w.heard.Clear()
	if _, err := w.pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'berthd'`); err != nil {
		return err
	}
	var tables string
	if err := w.pool.QueryRow(ctx, `SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables
		WHERE schemaname = 'public' AND tablename <> 'goose_db_version'`).Scan(&tables); err != nil {
		return err
	}
	if _, err := w.pool.Exec(ctx, "TRUNCATE "+tables); err != nil {
		return err
	}
	var refs []models.VersionRef
	for v, err := range w.raw.ListVersions(ctx, "") {
		if err != nil {
			return err
		}
		refs = append(refs, models.VersionRef{Key: v.Key, VersionID: v.VersionID})
	}
	if len(refs) > 0 {
		if _, err := w.raw.DeleteVersions(ctx, refs); err != nil {
			return err
		}
	}
	for m, err := range w.raw.ListMultiparts(ctx, "") {
		if err != nil {
			return err
		}
		if err := w.raw.AbortMultipart(ctx, m.Key, m.S3UploadID); err != nil {
			return err
		}
	}
	return nil
}

// process is one berthd without HTTP, all of whose ways out lead past its cutter.
type process struct {
	ctx     context.Context
	cut     *cutter
	store   *store.Store
	objects timely
	service *controlplane.Service
	reaper  *worker.Reaper
	steps   *worker.Processor
	events  *worker.Publisher
	answers answers // of steps; nil: by the file's name
}

// parts of a process that a test may put in place of the real ones.
type parts struct {
	dsn     string // "" is the world's
	records func(*store.Store) controlplane.Records
	objects func(timely) controlplane.Objects
	tasks   func(*store.Store) worker.ReapTasks
	reap    func(timely) worker.ReapObjects
	clock   func() time.Time
}

var processes struct {
	sync.Mutex
	n int
}

// start starts a process. It ends with the test, if not before.
func (w *world) start(t testing.TB, cut *cutter) *process { return w.startWith(t, cut, parts{}) }

func (w *world) startWith(t testing.TB, cut *cutter, with parts) *process {
	t.Helper()
	p, stop, err := w.process(t.Context(), cut, with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return p
}

func (w *world) process(ctx context.Context, cut *cutter, with parts) (*process, func(), error) {
	if cut == nil {
		cut = newCutter(0, before)
	}
	p := &process{cut: cut}
	p.ctx, cut.cancel = context.WithCancel(ctx)
	dsn := with.dsn
	if dsn == "" {
		dsn = w.dsn
	}
	var err error
	if p.store, err = store.Open(p.ctx, dsn, store.Options{MaxConns: 8, Tracer: cut}); err != nil {
		return nil, nil, err
	}
	raw, err := w.objects(&http.Client{Transport: cut})
	if err != nil {
		return nil, nil, errors.Join(err, p.store.Close())
	}
	p.objects = timely{raw}
	if with.records == nil {
		with.records = func(s *store.Store) controlplane.Records { return s }
	}
	if with.objects == nil {
		with.objects = func(o timely) controlplane.Objects { return o }
	}
	if with.tasks == nil {
		with.tasks = func(s *store.Store) worker.ReapTasks { return s }
	}
	if with.reap == nil {
		with.reap = func(o timely) worker.ReapObjects { return o }
	}
	if with.clock == nil {
		with.clock = func() time.Time { return w.clock.Now() }
	}
	if p.service, err = controlplane.New(controlplane.Config{
		Records: with.records(p.store), Collections: collections(), Now: with.clock,
		Stores: map[models.StoreName]controlplane.Store{stack.Main: {Objects: with.objects(p.objects), Prefix: "b/"}},
	}); err != nil {
		return nil, nil, errors.Join(err, p.store.Close())
	}
	processes.Lock()
	processes.n++
	name := "process-" + string(rune('a'+processes.n%26)) + time.Duration(processes.n).String()
	processes.Unlock()
	reap := with.reap(p.objects)
	p.reaper = &worker.Reaper{
		Tasks: with.tasks(p.store), Owner: name, Lease: lease, Limit: 8, Now: with.clock,
		Stores: func(models.StoreName) (worker.ReapObjects, bool) { return reap, true },
		Log:    slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil),
	}
	p.steps = &worker.Processor{
		Tasks: p.store, Chain: func(name string) []models.Step { return collections()[name].Steps },
		Kinds: map[string]worker.StepFunc{"webhook": p.step}, Owner: name, Lease: lease, Limit: 8, Now: with.clock,
		Log: p.reaper.Log, Metrics: p.reaper.Metrics,
	}
	p.events = &worker.Publisher{
		Outbox: p.store, Targets: []worker.Target{listener{w, cut}}, Owner: name, Lease: lease, Limit: 100, Now: with.clock,
		Log: p.reaper.Log, Metrics: p.reaper.Metrics,
	}
	return p, func() { cut.kill(); _ = p.store.Close() }, nil
}

// timely signs URLs by the machine's clock, which is S3's, and says that they end by the
// world's: the world's clock may be hours ahead.
type timely struct{ *objects.Store }

func (s timely) PresignParts(ctx context.Context, key, id string, parts []models.PartToSign, alg models.Algorithm, expires time.Duration, now time.Time) ([]models.SignedPart, time.Time, error) {
	real := time.Now()
	p, until, err := s.Store.PresignParts(ctx, key, id, parts, alg, expires, real)
	return p, now.Add(until.Sub(real)), err
}

func (s timely) PresignPut(ctx context.Context, spec models.ObjectSpec, size int64, digest []byte, expires time.Duration, now time.Time) (models.SignedPart, time.Time, error) {
	real := time.Now()
	p, until, err := s.Store.PresignPut(ctx, spec, size, digest, expires, real)
	return p, now.Add(until.Sub(real)), err
}

func (s timely) PresignGet(ctx context.Context, key, version, disposition, ctype string, expires time.Duration, now time.Time) (string, time.Time, error) {
	real := time.Now()
	u, until, err := s.Store.PresignGet(ctx, key, version, disposition, ctype, expires, real)
	return u, now.Add(until.Sub(real)), err
}

// reap runs the reaper until nothing is due.
func (p *process) reap() error {
	for range 50 {
		c, err := p.reaper.RunOnce(p.ctx)
		if err != nil {
			return err
		}
		if c.Claimed == 0 {
			return nil
		}
	}
	return errors.New("the reaper finds due work for ever")
}

// tick is what a worker does when its time comes.
func (p *process) tick() error {
	if _, err := p.service.Repair(p.ctx, quiet, 100); err != nil {
		return err
	}
	for range collections()["checked"].Steps {
		if _, err := p.steps.RunOnce(p.ctx); err != nil {
			return err
		}
	}
	if _, err := p.events.RunOnce(p.ctx); err != nil {
		return err
	}
	return p.reap()
}

// step is a step of a chain, outside of the process: what it says goes by the file's name.
func (p *process) step(ctx context.Context, c worker.StepCall) (models.StepAnswer, error) {
	name := "STEP " + c.Step.Name
	n, ok := p.cut.enter(name)
	if !ok {
		return models.StepAnswer{}, errCut{}
	}
	a := models.StepAnswer{Verdict: models.StepPass}
	if v, _, found := strings.Cut(c.File.Name, "-"); found && c.Step.Name == "two" {
		a = models.StepAnswer{Verdict: models.StepVerdict(v), Reason: "its name says so"}
	}
	var err error
	if p.answers != nil {
		a, err = p.answers(ctx, c)
	}
	if !p.cut.leave(n, name) {
		return models.StepAnswer{}, errCut{}
	}
	return a, err
}

// listener hears events, outside of the process.
type listener struct {
	w   *world
	cut *cutter
}

func (l listener) Name() string { return "listener" }

func (l listener) Send(_ context.Context, e models.Event) error {
	n, ok := l.cut.enter("SEND event")
	if !ok {
		return errCut{}
	}
	l.w.heard.Store(string(e.ID), true)
	if !l.cut.leave(n, "SEND event") {
		return errCut{}
	}
	return nil
}

// settle lets time pass: past every lease, every deadline, every grace and every URL, with
// the workers at work.
func (w *world) settle(p *process) error {
	for _, d := range []time.Duration{0, 2 * time.Minute, 5 * time.Minute, 30 * time.Minute, deadline, deadline, grace + urlLife, deadline, grace + urlLife} {
		w.clock.Advance(d)
		if err := p.tick(); err != nil {
			return err
		}
	}
	return nil
}

func caller(owner string) models.Caller { return stack.Caller(owner) }
