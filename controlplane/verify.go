package controlplane

import (
	"context"

	"berth/models"
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
// "" is whatever lies there now.
func (s *Service) verify(ctx context.Context, u *models.Upload, version, actor string) (settlement, error) {
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
			if o.UploadID != u.ID || o.ETag != u.ETag {
				// Only a null version can be other than it was: the bucket keeps none.
				s.log.ErrorContext(ctx, "a verified object was overwritten in a bucket without versions; its file is not readable any more",
					"file", u.FileID, "store", u.Store)
			}
			return nil
		}
		return s.records.NoteForeign(ctx, models.ForeignVersion{Store: u.Store, Key: u.Key, VersionID: o.VersionID,
			ReplicaID: u.ReplicaID, FileID: u.FileID}, s.utc())
	case models.UploadInit:
		return nil
	default:
		return s.records.EnsureReap(ctx, u.ReplicaID, s.utc())
	}
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
		Steps: len(col.Steps) > 0, Collection: &col, Actor: actor, Now: now})
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
