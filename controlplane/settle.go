package controlplane

import (
	"context"
	"fmt"
	"sync"

	"berth/models"
	"berth/tracing"
)

// settleAtOnce bounds how many objects a batch of events asks S3 for side by side.
const settleAtOnce = 32

// told is what a batch of events says of one upload.
type told struct {
	upload   models.Upload
	events   []int    // their places in the batch
	versions []string // that they name, each once

	attest *models.Attestation // verified, to be recorded with the others
	err    error

	ctx  context.Context // of its span, which goes on the trace of the upload
	span tracing.Span
}

// Settle takes notifications of one or more stores. Events come at least once, in any
// order, late, early or never; all of it is harmless. For a batch there is one look-up,
// the objects are asked for side by side, and what S3 attests as declared is recorded in
// one transaction; the rest is settled each by itself. The errors stand at the places of
// their events; nil means settled, or nothing to settle.
//
// Each upload's part is a span of the trace that opened the upload, linked with the span of
// the batch both ways: a batch is of many traces, and a trace is of one upload.
func (s *Service) Settle(ctx context.Context, events []models.ObjectEvent) []error {
	errs := make([]error, len(events))
	groups := s.group(ctx, events, errs)
	for _, g := range groups {
		tracing.Link(ctx, g.upload.Traceparent)
		g.ctx, g.span = s.trace.Continue(ctx, g.upload.Traceparent, tracing.Consumer, "settle upload", tracing.String(attrUpload, string(g.upload.ID)))
	}
	side(groups, func(g *told) { g.attest, g.err = s.examine(g.ctx, g) })
	s.attestTogether(ctx, groups)
	for _, g := range groups {
		g.span.End(g.err)
		for _, i := range g.events {
			errs[i] = g.err
		}
	}
	return errs
}

// side runs do for all groups, a few at a time.
func side(groups []*told, do func(*told)) {
	slots := make(chan struct{}, settleAtOnce)
	var wg sync.WaitGroup
	for _, g := range groups {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if v := recover(); v != nil { // of one upload: the others are settled all the same
					g.attest, g.err = nil, fmt.Errorf("panic: %v", v)
				}
			}()
			do(g)
		})
	}
	wg.Wait()
}

// group finds the uploads that the events are about. What is nobody's is counted.
func (s *Service) group(ctx context.Context, events []models.ObjectEvent, errs []error) []*told {
	keys := map[models.StoreName][]string{}
	for _, e := range events {
		if e.Created {
			keys[e.Store] = append(keys[e.Store], e.Key)
		}
	}
	found := map[models.StoreName]map[string]models.Upload{}
	failed := map[models.StoreName]error{}
	for store, ks := range keys {
		found[store], failed[store] = s.at(ctx, store, ks)
	}
	var groups []*told
	byID := map[models.ReplicaID]*told{}
	for i, e := range events {
		if !e.Created {
			continue
		}
		if err := failed[e.Store]; err != nil {
			errs[i] = err
			continue
		}
		u, ok := found[e.Store][e.Key]
		if !ok {
			s.metrics.unknownKey(e.Store)
			continue
		}
		g := byID[u.ReplicaID]
		if g == nil {
			g = &told{upload: u}
			byID[u.ReplicaID] = g
			groups = append(groups, g)
		}
		g.events = append(g.events, i)
		g.name(e.VersionID)
	}
	return groups
}

// at finds the uploads of keys. An imported file never had one: it is as if one had been
// committed with its version.
func (s *Service) at(ctx context.Context, store models.StoreName, keys []string) (map[string]models.Upload, error) {
	found, err := s.records.UploadsAt(ctx, store, keys)
	if err != nil {
		return nil, err
	}
	var rest []string
	for _, k := range keys {
		if _, ok := found[k]; !ok {
			rest = append(rest, k)
		}
	}
	if len(rest) == 0 {
		return found, nil
	}
	known, err := s.records.KnownAt(ctx, store, rest)
	if err != nil {
		return nil, err
	}
	for key, k := range known {
		if k.UploadID == "" && k.Primary && k.VersionID != "" && k.Reason != models.ReasonDetached {
			found[key] = models.Upload{State: models.UploadCommitted, Store: store, Key: key, ReplicaID: k.ID, FileID: k.FileID,
				VersionID: k.VersionID, ETag: k.ETag}
		}
	}
	return found, nil
}

// name notes a version that an event names, once.
func (g *told) name(version string) {
	for _, v := range g.versions {
		if v == version {
			return
		}
	}
	g.versions = append(g.versions, version)
}

// examine looks at what S3 holds of one upload. What is as declared is returned, to be
// recorded with the others; everything else is settled here.
func (s *Service) examine(ctx context.Context, g *told) (*models.Attestation, error) {
	u := &g.upload
	waiting := models.Uploads.May(u.State, models.UploadCompleted)
	if !waiting || len(g.versions) > 1 {
		for _, v := range g.versions {
			if err := s.settle(ctx, u, v); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	st, err := s.objects(u.Store)
	if err != nil {
		return nil, err
	}
	o, err := st.Head(ctx, u.Key, g.versions[0])
	if models.ObjectKind(err) == models.ObjectAbsent {
		s.metrics.verified(models.ActorEvent, settledAbsent)
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	col := s.policy(u.Collection)
	return &models.Attestation{UploadID: u.ID, Seen: *u, Object: o, Steps: len(col.Steps) > 0, Collection: &col, Actor: models.ActorEvent,
		Traceparent: tracing.Traceparent(ctx)}, nil
}

// attestTogether judges what was examined against the pins, and records in one
// transaction what is as it was declared. What that transaction does not take goes through
// verify, each by itself.
func (s *Service) attestTogether(ctx context.Context, groups []*told) {
	var ids []models.UploadID
	for _, g := range groups {
		if g.attest != nil {
			ids = append(ids, g.upload.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	pins, err := s.records.PinsOf(ctx, ids)
	var together []models.Attestation
	for _, g := range groups {
		if g.attest == nil {
			continue
		}
		if err != nil {
			g.err = err
			continue
		}
		want, conflict := models.Expected(&g.upload, pins[g.upload.ID])
		v := models.Verify(&g.upload, want, g.attest.Object)
		if !v.OK || conflict || g.attest.Collection.Guarded() {
			continue // verify says what follows
		}
		g.attest.Checksum, g.attest.Declared = v.Checksum, !want.IsZero()
		together = append(together, *g.attest)
	}
	if err != nil {
		return
	}
	var done map[models.UploadID]models.AttestOutcome
	if len(together) > 0 {
		if done, err = s.records.AttestMany(ctx, together, s.utc()); err != nil {
			// Each by itself may still pass; where not, its own error is the one to tell.
			s.log.WarnContext(ctx, "a batch of events was not recorded together", "uploads", len(together), "err", err)
		}
	}
	side(groups, func(g *told) {
		if g.attest == nil {
			return
		}
		switch done[g.upload.ID] {
		case models.Attested:
			s.metrics.verified(models.ActorEvent, settledDone)
			g.span.Set(tracing.String(attrOutcome, string(settledDone)))
		default:
			_, g.err = s.verify(g.ctx, &g.upload, g.attest.Object.VersionID, models.ActorEvent)
		}
	})
}

// settle takes one event of an upload by itself.
func (s *Service) settle(ctx context.Context, u *models.Upload, version string) error {
	switch u.State {
	case models.UploadUploading, models.UploadCompleting:
		_, err := s.verify(ctx, u, version, models.ActorEvent)
		return err
	case models.UploadCompleted, models.UploadCommitted:
		if version == u.VersionID {
			return nil
		}
		// Another version under a key of ours, or none is named: the newest is looked at.
		return s.foreign(ctx, u, version)
	case models.UploadInit:
		return nil // nothing of ours can lie there yet
	default:
		// Rejected, aborted, expired: what landed late is swept again.
		return s.records.EnsureReap(ctx, u.ReplicaID, s.utc())
	}
}

// foreign looks whether the version is really there before it is noted: events lie.
func (s *Service) foreign(ctx context.Context, u *models.Upload, version string) error {
	st, err := s.objects(u.Store)
	if err != nil {
		return err
	}
	o, err := st.Head(ctx, u.Key, version)
	switch {
	case models.ObjectKind(err) == models.ObjectAbsent:
		return nil
	case err != nil:
		return unavailable(err)
	}
	return s.late(ctx, u, o) // noted, reaped, never served
}
