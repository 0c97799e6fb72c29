package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"berth/models"
	"berth/tracing"
)

// Store is one configured store: its adapter and the key prefix that Berth owns in it.
type Store struct {
	Objects Objects
	Prefix  string
}

// Config is what a Service is made of.
type Config struct {
	Records     Records
	Stores      map[models.StoreName]Store
	Collections map[string]models.Collection
	Now         func() time.Time // nil: time.Now
	Log         *slog.Logger     // nil: discards
	Metrics     *Metrics         // nil: counts nothing
	Trace       *tracing.Tracer  // nil: off
}

// Service is the use cases. It is safe for concurrent use.
type Service struct {
	records     Records
	stores      map[models.StoreName]Store
	collections atomic.Pointer[map[string]models.Collection]
	now         func() time.Time
	log         *slog.Logger
	metrics     *Metrics
	trace       *tracing.Tracer
}

const (
	// completeLease is how long one Complete may be in flight at S3 before another may
	// try. Complete of thousands of parts takes minutes on some stores.
	completeLease = time.Minute
	// beginLease is how long an init may be on its way to uploading before a repeated
	// open takes it over.
	beginLease = 30 * time.Second
	// minURLExpiry is the shortest life that is worth signing.
	minURLExpiry = time.Second
	// readExpiry is the life of a read URL where the collection sets none.
	readExpiry = 15 * time.Minute
	// firstParts is how many URLs the answer to open carries.
	firstParts = 4
)

// New makes a Service. It fails on a collection whose store is not configured.
func New(c Config) (*Service, error) {
	s := &Service{records: c.Records, stores: c.Stores, now: c.Now, log: c.Log, metrics: c.Metrics, trace: c.Trace}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.metrics == nil {
		s.metrics = NewMetrics(nil)
	}
	return s, s.SetCollections(c.Collections)
}

// SetCollections replaces the policies, all or none. Sessions that are open keep what
// was written into their rows.
func (s *Service) SetCollections(cols map[string]models.Collection) error {
	for name, c := range cols {
		if _, ok := s.stores[c.Store]; !ok {
			return fmt.Errorf("controlplane: collection %q: there is no store %q", name, c.Store)
		}
	}
	s.collections.Store(&cols)
	return nil
}

// Limited are the collections that limit or dedupe now.
func (s *Service) Limited() []string { return models.Limited(*s.collections.Load()) }

// Ready tells whether the database answers.
func (s *Service) Ready(ctx context.Context) error { return s.records.Ping(ctx) }

func (s *Service) collection(name string) (models.Collection, error) {
	c, ok := (*s.collections.Load())[name]
	if !ok {
		return models.Collection{}, models.Errorf(models.CodeInvalidRequest, "collection: there is no collection %.60q", name).With("field", "collection")
	}
	return c, nil
}

// policy is a stored row's collection; one that was taken out of the configuration
// leaves the defaults, so that open sessions can still end.
func (s *Service) policy(name string) models.Collection {
	if c, ok := (*s.collections.Load())[name]; ok {
		return c
	}
	return models.Collection{Name: name, URLExpiry: time.Hour, Deadline: 24 * time.Hour, Grace: time.Hour}
}

func (s *Service) objects(name models.StoreName) (Objects, error) {
	st, ok := s.stores[name]
	if !ok {
		return nil, models.Errorf(models.CodeStoreUnavailable, "the store of this file is not configured").
			Because(fmt.Errorf("no store %q", name))
	}
	return st.Objects, nil
}

// utc is now, as the database keeps it: microseconds, UTC.
func (s *Service) utc() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// upload loads what a caller may touch: its own, and within its grant.
func (s *Service) upload(ctx context.Context, c models.Caller, id models.UploadID) (models.Upload, models.File, error) {
	if g := c.Grant; g != nil && g.Upload != "" && g.Upload != id {
		return models.Upload{}, models.File{}, models.NotFound("upload")
	}
	u, f, err := s.records.Upload(ctx, c.Whose(), id)
	if err != nil {
		return u, f, err
	}
	if withinGrant(c, f) != nil {
		return models.Upload{}, models.File{}, models.NotFound("upload")
	}
	about(ctx, &u)
	return u, f, nil
}

// about says in the current span which upload it is about. A request may be of another
// trace than the one that opened it: they are linked.
func about(ctx context.Context, u *models.Upload) {
	tracing.Note(ctx, attrUpload, string(u.ID))
	tracing.Note(ctx, attrFile, string(u.FileID))
	tracing.Link(ctx, u.Traceparent)
}

// Attributes of spans.
const (
	attrUpload  = "berth.upload.id"
	attrFile    = "berth.file.id"
	attrOutcome = "berth.outcome"
	attrFrom    = "berth.from"
)

// file is upload for files.
func (s *Service) file(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
	f, err := s.records.File(ctx, c.Whose(), id)
	if err != nil {
		return f, err
	}
	tracing.Note(ctx, attrFile, string(f.ID))
	return f, withinGrant(c, f)
}

func withinGrant(c models.Caller, f models.File) error {
	if g := c.Grant; g != nil {
		if (g.Collection != "" && g.Collection != f.Collection) || (g.Upload != "" && g.Upload != f.UploadID) || (g.Derive != nil && g.Derive.Parent != f.Parent) {
			return models.NotFound("file")
		}
	}
	return nil
}

// unavailable is the caller's view of a store that did not do what it was asked.
func unavailable(err error) error {
	if models.ObjectKind(err) == "" {
		return err // the caller went away, or it is ours
	}
	return models.Errorf(models.CodeStoreUnavailable, "the object store did not answer as it should; try again").Because(err)
}
