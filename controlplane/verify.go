package controlplane

import (
	"context"

	"berth/models"
	"berth/tracing"
)

// settlement is what verification came to.
type settlement string

const (
	settledDone     settlement = "done"     // recorded, by this call
	settledBefore   settlement = "before"   // the upload was not waiting for it any more
	settledAbsent   settlement = "absent"   // nothing lies there: nothing was changed
	settledForeign  settlement = "foreign"  // what lies there is not ours
	settledRejected settlement = "rejected" // not the bytes that were declared
	settledStale    settlement = "stale"    // what was declared changed meanwhile: look again
)

// verify is the one door to completed (F1), entered from three sides: the event, the
// complete call and the repair sweep. It asks S3 for exactly one version, with
// checksums, and compares upload id, size and checksum with what was declared. version
// "" is whatever lies there now. Where that is not ours, it is noted, and ours may lie
// beneath it.
func (s *Service) verify(ctx context.Context, u *models.Upload, version, actor string) (out settlement, err error) {
	ctx, span := s.trace.Start(ctx, tracing.Internal, "verify", tracing.String(attrUpload, string(u.ID)), tracing.String(attrFrom, actor))
	defer func() {
		span.Set(tracing.String(attrOutcome, string(out)))
		span.End(err)
	}()
	st, err := s.objects(u.Store)
	if err != nil {
		return "", err
	}
	o, err := st.Head(ctx, u.Key, version)
	if models.ObjectKind(err) == models.ObjectAbsent {
		s.metrics.verified(actor, settledAbsent)
		return settledAbsent, nil
	}
	if err != nil {
		return "", unavailable(err)
	}
	out, err = s.compare(ctx, u, o, actor)
	if err != nil || out != settledForeign {
		return out, err
	}
	own, ok, err := s.beneath(ctx, st, u, o.VersionID)
	if err != nil || !ok {
		return out, err
	}
	return s.compare(ctx, u, own, actor)
}

// ours is the newest version of an upload's key that is the upload's own; ok is false
// where there is none.
func (s *Service) ours(ctx context.Context, st Objects, u *models.Upload) (o models.Object, ok bool, err error) {
	o, err = st.Head(ctx, u.Key, "")
	switch {
	case models.ObjectKind(err) == models.ObjectAbsent:
		return models.Object{}, false, nil
	case err != nil:
		return models.Object{}, false, unavailable(err)
	case o.UploadID == u.ID:
		return o, true, nil
	}
	return s.beneath(ctx, st, u, o.VersionID)
}

// beneathMost bounds how many versions of one key are asked about.
const beneathMost = 64

// beneath looks for the upload's own version under one that is not: somebody with the
// bucket's credentials wrote over the key before it was verified.
func (s *Service) beneath(ctx context.Context, st Objects, u *models.Upload, foreign string) (o models.Object, ok bool, err error) {
	asked := 0
	for v, err := range st.ListVersions(ctx, u.Key) {
		switch {
		case models.ObjectKind(err) == models.ObjectDenied:
			s.log.WarnContext(ctx, "the versions of a key that was written over may not be listed; an upload's own is not found beneath",
				"upload", u.ID, "store", u.Store)
			return models.Object{}, false, nil
		case err != nil:
			return models.Object{}, false, unavailable(err)
		case v.Key != u.Key: // a prefix is not a key; the key itself comes first
			return models.Object{}, false, nil
		case v.Marker, v.VersionID == foreign, !u.Undeclared && v.Size != u.Size:
			continue
		}
		if asked++; asked > beneathMost {
			s.log.WarnContext(ctx, "too many versions were written over an upload's own", "upload", u.ID, "store", u.Store)
			return models.Object{}, false, nil
		}
		o, err := st.Head(ctx, u.Key, v.VersionID)
		switch {
		case models.ObjectKind(err) == models.ObjectAbsent:
		case err != nil:
			return models.Object{}, false, unavailable(err)
		case o.UploadID == u.ID:
			return o, true, nil
		}
	}
	return models.Object{}, false, nil
}

// compare judges an object until nothing changed meanwhile.
func (s *Service) compare(ctx context.Context, u *models.Upload, o models.Object, actor string) (settlement, error) {
	if out, ok, err := s.asKnown(ctx, u, o, actor); ok || err != nil {
		return out, err
	}
	// What is declared or pinned may change while it is compared; the row's lock tells, and
	// then it is compared again.
	for range 5 {
		out, err := s.judge(ctx, u.ID, o, actor)
		if err != nil {
			return out, err
		}
		if out != settledStale {
			s.metrics.verified(actor, out)
			return out, nil
		}
	}
	return "", models.Errorf(models.CodeBusy, "the upload keeps changing; try again")
}

// asKnown records what S3 attests if it is what the caller knows of the upload, which is
// the usual case: the record judges again, under the row's lock. Anything else is left to
// be judged from rows read anew.
func (s *Service) asKnown(ctx context.Context, u *models.Upload, o models.Object, actor string) (out settlement, ok bool, err error) {
	if !models.Uploads.May(u.State, models.UploadCompleted) {
		return "", false, nil
	}
	pins, err := s.records.Pins(ctx, u.ID)
	if err != nil {
		return "", false, err
	}
	want, conflict := models.Expected(u, pins)
	v := models.Verify(u, want, o)
	if !v.OK || conflict {
		return "", false, nil
	}
	out, err = s.record(ctx, u, o, v, !want.IsZero(), actor)
	if err != nil || (out != settledDone && out != settledRejected) {
		return "", false, err
	}
	s.metrics.verified(actor, out)
	return out, true, nil
}

// judge compares what S3 attests with an upload as it stands now, and records the verdict.
func (s *Service) judge(ctx context.Context, id models.UploadID, o models.Object, actor string) (settlement, error) {
	pins, err := s.records.Pins(ctx, id)
	if err != nil {
		return "", err
	}
	// What was claimed at complete is in the row by now, and in ours it may not be.
	u, _, err := s.records.Upload(ctx, models.Whose{}, id)
	if err != nil {
		return "", err
	}
	if !models.Uploads.May(u.State, models.UploadCompleted) {
		// Looked at after the pins: had the upload moved on before, they were gone.
		return settledBefore, s.late(ctx, &u, o)
	}
	want, conflict := models.Expected(&u, pins)
	v := models.Verify(&u, want, o)
	if v.OK && conflict {
		v = models.Verdict{Code: models.CodeDigestMismatch, Reason: "the pinned parts do not have the declared checksum"}
	}
	return s.record(ctx, &u, o, v, !want.IsZero(), actor)
}

// late deals with an object of an upload that has moved on: under a file that has its
// version it is foreign, whoever wrote it; of a closed session it is swept.
func (s *Service) late(ctx context.Context, u *models.Upload, o models.Object) error {
	switch u.State {
	case models.UploadCompleted, models.UploadCommitted:
		if o.VersionID == u.VersionID {
			if (u.ID != "" && o.UploadID != u.ID) || o.ETag != u.ETag {
				// Only a null version can be other than it was: the bucket keeps none.
				s.log.ErrorContext(ctx, "a verified object was overwritten in a bucket without versions; its file is not readable any more",
					"file", u.FileID, "store", u.Store)
			}
			return s.lateNull(ctx, u, o)
		}
		return s.records.NoteForeign(ctx, models.ForeignVersion{Store: u.Store, Key: u.Key, VersionID: o.VersionID,
			ReplicaID: u.ReplicaID, FileID: u.FileID}, s.utc())
	case models.UploadInit:
		return nil
	default:
		return s.records.EnsureReap(ctx, u.ReplicaID, s.utc())
	}
}

// lateNull has a null version reaped that came after its file had gone: it has the name of
// the file's own.
func (s *Service) lateNull(ctx context.Context, u *models.Upload, o models.Object) error {
	if o.VersionID != models.NullVersion {
		return nil
	}
	f, err := s.records.File(ctx, models.Whose{}, u.FileID)
	if err != nil {
		return err
	}
	switch f.State {
	case models.FileFailed, models.FileDeleting, models.FileDeleted:
		return s.records.EnsureReap(ctx, u.ReplicaID, s.utc())
	}
	return nil
}

func (s *Service) record(ctx context.Context, u *models.Upload, o models.Object, v models.Verdict, declared bool, actor string) (settlement, error) {
	now := s.utc()
	if v.Foreign {
		return settledForeign, s.records.NoteForeign(ctx, models.ForeignVersion{Store: u.Store, Key: u.Key, VersionID: o.VersionID,
			ReplicaID: u.ReplicaID, FileID: u.FileID}, now)
	}
	if !v.OK {
		ok, err := s.records.Reject(ctx, models.Rejection{UploadID: u.ID, Code: v.Code, Reason: v.Reason, VersionID: o.VersionID,
			Actor: actor, Now: now})
		if err != nil || !ok {
			return settledBefore, err
		}
		return settledRejected, nil
	}
	col := s.policy(u.Collection)
	out, err := s.records.Attest(ctx, models.Attestation{UploadID: u.ID, Object: o, Checksum: v.Checksum, Declared: declared,
		Steps: len(col.Steps) > 0, Collection: &col, Actor: actor, Traceparent: tracing.Traceparent(ctx), Now: now})
	if err != nil {
		return settledBefore, err
	}
	switch out {
	case models.Attested:
		return settledDone, nil
	case models.AttestRefused, models.AttestHandedOver:
		return settledRejected, nil
	case models.AttestStale:
		return settledStale, nil
	default:
		return settledBefore, nil
	}
}
