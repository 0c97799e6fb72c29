package controlplane

import (
	"context"
	"errors"
	"time"

	"berth/models"
)

// Complete puts the parts together at S3, verifies what came of it, and records it.
// Repeated, it gives the same result; two at once do one completion, and the second
// waits for the first.
//
// Codes: NOT_FOUND, SESSION_CLOSED, SESSION_EXPIRED, BUSY, MISSING_PARTS,
// SIZE_MISMATCH, PART_CORRUPT, CHECKSUM_MISMATCH, DIGEST_MISMATCH, INVALID_REQUEST,
// TOO_LARGE, TYPE_NOT_ALLOWED, STORE_UNAVAILABLE. Those that name parts leave the session open, so that the client can
// mend and go on.
func (s *Service) Complete(ctx context.Context, c models.Caller, id models.UploadID, req CompleteRequest) (UploadView, error) {
	if err := c.Require(models.ScopeUpload); err != nil {
		return UploadView{}, err
	}
	u, _, err := s.upload(ctx, c, id)
	if err != nil {
		return UploadView{}, err
	}
	if err := withinLimits(c.Grant, u.ContentType, u.Size); err != nil {
		return UploadView{}, err
	}
	claim, err := claimed(&u, req)
	if err != nil {
		return UploadView{}, err
	}
	if u.Method == models.MethodSingle {
		err = s.completeSingle(ctx, &u, claim)
	} else {
		err = s.completeMultipart(ctx, c, &u, claim, req.Parts)
	}
	if err != nil {
		return UploadView{}, err
	}
	v, err := s.Upload(ctx, c, id)
	if err != nil {
		return v, err
	}
	if !claim.IsZero() && !v.Attested.IsZero() && claim.Algorithm == v.Attested.Algorithm &&
		claim.Type == v.Attested.Type && claim.Value != v.Attested.Value {
		return v, digestMismatch()
	}
	return v, nil
}

func digestMismatch() error {
	return models.Errorf(models.CodeDigestMismatch, "the checksum given is not that of the bytes that were declared or sent")
}

// claimed checks the optional checksum of a complete against what was declared.
func claimed(u *models.Upload, req CompleteRequest) (models.Checksum, error) {
	for _, p := range req.Parts {
		if p.Number < 1 || p.Number > u.PartCount {
			return models.Checksum{}, outOfRange(u, "a part that the request names")
		}
	}
	if req.Checksum == nil {
		return models.Checksum{}, nil
	}
	if u.Undeclared {
		return models.Checksum{}, models.Errorf(models.CodeInvalidRequest, "checksum: nothing was declared at open").With("field", "checksum")
	}
	sum, err := models.Declare(req.Checksum, u.Checksum.Algorithm, u.Geometry)
	if err != nil {
		return sum, err
	}
	if sum.Algorithm != u.Checksum.Algorithm {
		return sum, models.Errorf(models.CodeInvalidRequest, "checksum: the upload's algorithm is %s", u.Checksum.Algorithm).With("field", "checksum")
	}
	if !u.Checksum.IsZero() && !sum.IsZero() && sum.Value != u.Checksum.Value {
		return sum, digestMismatch()
	}
	return sum, nil
}

// done tells whether an upload needs no completing any more, with the error that stands
// for its end, if it ended badly.
func done(u *models.Upload, now time.Time) (bool, error) {
	switch u.State {
	case models.UploadCompleted, models.UploadCommitted:
		return true, nil
	case models.UploadRejected:
		if u.ReusedFile != "" {
			return true, nil
		}
		return true, models.Closed(u, now)
	case models.UploadInit:
		if err := models.Closed(u, now); err != nil {
			return true, err
		}
		return true, models.Errorf(models.CodeMissingParts, "no part has been sent").With("parts", []int{1})
	default:
		if u.State == models.UploadUploading && u.Commit == models.CommitAuto {
			// Past its end too: where all of the bytes are there, repair would take them. What
			// waits for a commit has lost it with its session.
			return false, nil
		}
		err := models.Closed(u, now)
		return err != nil, err
	}
}

// lacking is why bytes that have not arrived, or not as they should, keep a complete from
// being done: for a client that may still send them. Past its end nobody may.
func (s *Service) lacking(u *models.Upload, err error) error {
	if s.utc().Before(u.ExpiresAt) {
		return err
	}
	return models.Expired()
}

// completeSingle has nothing to put together: it looks whether the object is there. The
// client's list of one part adds nothing to what S3 attests.
func (s *Service) completeSingle(ctx context.Context, u *models.Upload, claim models.Checksum) error {
	if ok, err := done(u, s.utc()); ok {
		return err
	}
	pins, err := s.records.Pins(ctx, u.ID)
	if err != nil {
		return err
	}
	want, conflict := models.Expected(u, pins)
	if conflict || (!claim.IsZero() && !want.IsZero() && claim.Value != want.Value) {
		return digestMismatch()
	}
	if !claim.IsZero() {
		// Nothing was declared before: what is claimed now must be what S3 attests, or the
		// file must not become active. Asked before anything is recorded.
		st, err := s.objects(u.Store)
		if err != nil {
			return err
		}
		o, ok, err := s.ours(ctx, st, u)
		if err != nil {
			return err
		}
		if ok && !attests(o, claim) {
			return digestMismatch()
		}
	}
	out, err := s.verify(ctx, u, "", actorComplete)
	if err != nil {
		return err
	}
	switch out {
	case settledAbsent, settledForeign:
		return s.lacking(u, models.Errorf(models.CodeMissingParts, "the bytes have not arrived").With("parts", []int{1}))
	case settledDone:
		return nil
	}
	return s.ended(ctx, u)
}

func attests(o models.Object, want models.Checksum) bool {
	for _, sum := range o.Checksums {
		if sum == want {
			return true
		}
	}
	return false
}

// completeMultipart takes the right to complete, or waits for whoever has it.
func (s *Service) completeMultipart(ctx context.Context, c models.Caller, u *models.Upload, claim models.Checksum, parts []models.Part) error {
	if err := s.comparable(ctx, u, claim); err != nil {
		return err
	}
	wait := 25 * time.Millisecond
	for {
		now := s.utc()
		if ok, err := done(u, now); ok {
			return err
		}
		began, ok, err := s.records.BeginComplete(ctx, *u, now.Add(completeLease), now, c.Actor())
		if err != nil {
			return err
		}
		if ok {
			return s.holding(ctx, &began, func() error { return s.assemble(ctx, &began, claim, parts, c.Grant) })
		}
		*u = began
		if ok, err := done(u, now); ok {
			return err
		}
		// Another request completes. Its result is ours too.
		select {
		case <-ctx.Done():
			return models.Errorf(models.CodeBusy, "the upload is being completed").Because(ctx.Err())
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Second)
		fresh, _, err := s.records.Upload(ctx, c.Whose(), u.ID)
		if err != nil {
			return err
		}
		*u = fresh
	}
}

// comparable holds what is claimed at complete against what was pinned, before anything is
// begun: a wrong claim changes nothing.
func (s *Service) comparable(ctx context.Context, u *models.Upload, claim models.Checksum) error {
	if claim.IsZero() {
		return nil
	}
	pins, err := s.records.Pins(ctx, u.ID)
	if err != nil {
		return err
	}
	if want, _ := models.Expected(u, pins); !want.IsZero() && want.Value != claim.Value && models.Uploads.May(u.State, models.UploadCompleted) {
		return digestMismatch()
	}
	return nil
}

// holding keeps the lease of a Complete alive while do is at it: S3 may take minutes, and
// a process that died must not hold an upload for as long.
func (s *Service) holding(ctx context.Context, u *models.Upload, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		t := time.NewTicker(completeLease / 3)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if ok, err := s.records.RenewComplete(ctx, *u, s.utc().Add(completeLease)); err == nil && !ok {
				return // it is over, or another's
			}
		}
	}()
	return do()
}

const actorComplete = "complete"

// assemble runs one attempt: list, compare, Complete, verify. u is in completing, and
// its attempt number is ours. g is the grant of whoever asks, nil if there is none.
func (s *Service) assemble(ctx context.Context, u *models.Upload, claim models.Checksum, claimed []models.Part, g *models.Grant) error {
	st, err := s.objects(u.Store)
	if err != nil {
		return s.yield(ctx, u, err)
	}
	pins, err := s.records.Pins(ctx, u.ID)
	if err != nil {
		return s.yield(ctx, u, err)
	}
	want, conflict := models.Expected(u, pins)
	if conflict || (!claim.IsZero() && !want.IsZero() && claim.Value != want.Value) {
		return s.yield(ctx, u, digestMismatch())
	}
	if want.IsZero() && !claim.IsZero() {
		want = claim // S3 compares it; it is not kept, since it may be wrong
	}
	var listed []models.Part
	for p, err := range st.ListParts(ctx, u.Key, u.S3UploadID, u.Checksum.Algorithm) {
		if models.ObjectKind(err) == models.ObjectNoUpload {
			return s.settleGone(ctx, u, "")
		}
		if err != nil {
			return s.yield(ctx, u, unavailable(err))
		}
		if p.Number <= u.PartCount { // S3 refuses gaps; what lies beyond our count is not ours
			listed = append(listed, p)
		}
	}
	if bad := models.CheckParts(u, listed, pins, claimed); bad != nil {
		why := partProblem(bad)
		if models.CheckParts(u, listed, pins, nil) != nil { // not for what the client's list alone says
			why = s.lacking(u, why)
		}
		return s.yield(ctx, u, why)
	}
	size := u.Size
	if u.Undeclared {
		if size, err = s.fits(ctx, u, listed, g); err != nil {
			return err
		}
	}
	object, err := st.CompleteMultipart(ctx, models.CompleteSpec{Key: u.Key, S3UploadID: u.S3UploadID, Parts: listed, Size: size, Checksum: want})
	switch models.ObjectKind(err) {
	case "":
		if err != nil { // the caller went away: S3 may have done it
			return err
		}
	case models.ObjectConflict:
		// Another call of the same is in progress, or was a moment ago: what it comes to is
		// seen in the object, or the parts are all still there.
		out, err := s.verify(ctx, u, "", actorComplete)
		if err != nil {
			return err
		}
		if out == settledAbsent || out == settledForeign {
			return s.yield(ctx, u, models.Errorf(models.CodeBusy, "the store is busy with this upload; try again"))
		}
		return s.ended(ctx, u)
	case models.ObjectNoUpload, models.ObjectExists:
		// Ambiguous: an earlier Complete may have succeeded. The object tells.
		return s.settleGone(ctx, u, "")
	case models.ObjectBadPart:
		e := models.Errorf(models.CodePartCorrupt, "S3 refused a part")
		if p := partOf(err); p > 0 {
			e = e.With("parts", []int{p})
		}
		return s.yield(ctx, u, e.Because(err))
	case models.ObjectBadSize:
		return s.yield(ctx, u, models.Errorf(models.CodeSizeMismatch, "the parts do not add up to the declared size").Because(err))
	case models.ObjectBadDigest:
		return s.yield(ctx, u, models.Errorf(models.CodeChecksumMismatch, "the parts do not have the declared checksum").Because(err))
	case models.ObjectDenied, models.ObjectInvalid, models.ObjectLocked, models.ObjectAbsent:
		return s.yield(ctx, u, unavailable(err))
	default:
		// Unreachable or 5xx: S3 may have done it all the same. The attempt keeps its lease;
		// the event, a repeated call after it, or repair settles it.
		return unavailable(err)
	}
	return s.settleGone(ctx, u, object.VersionID)
}

// fits adds up parts whose sum nobody declared, and rejects what the collection or the
// grant does not take before S3 is asked to put it together.
func (s *Service) fits(ctx context.Context, u *models.Upload, listed []models.Part, g *models.Grant) (int64, error) {
	var size int64
	for _, p := range listed {
		size += p.Size
	}
	col := s.policy(u.Collection)
	err := models.SizeAllowed(&col, size)
	if err == nil && g != nil && g.MaxBytes > 0 && size > g.MaxBytes {
		err = models.Errorf(models.CodeTooLarge, "the grant takes files of at most %d bytes", g.MaxBytes).With("max_size", g.MaxBytes)
	}
	if err == nil {
		return size, nil
	}
	if _, err := s.records.Reject(ctx, models.Rejection{UploadID: u.ID, Code: models.ErrorCode(err), Reason: models.Sentence(err),
		Actor: actorComplete, Now: s.utc()}); err != nil {
		return 0, err
	}
	return 0, err
}

// settleGone verifies after Complete, or where the multipart is gone for a reason that
// only the object can tell.
func (s *Service) settleGone(ctx context.Context, u *models.Upload, version string) error {
	out, err := s.verify(ctx, u, version, actorComplete)
	if err != nil {
		return err
	}
	if out == settledAbsent || out == settledForeign {
		_, err := s.records.CloseUpload(ctx, models.Closing{ID: u.ID, To: models.UploadExpired, Code: models.CodeSessionExpired, Attempt: u.Attempt,
			Reason: "the store no longer has the multipart upload", Actor: actorComplete, Now: s.utc()})
		if err != nil {
			return err
		}
	}
	return s.ended(ctx, u)
}

// ended reads an upload again and answers with the error that stands for its end, if it
// ended badly.
func (s *Service) ended(ctx context.Context, u *models.Upload) error {
	fresh, _, err := s.records.Upload(ctx, models.Whose{}, u.ID)
	if err != nil {
		return err
	}
	if ok, err := done(&fresh, s.utc()); ok {
		return err
	}
	return nil
}

// yield gives the right to complete back with the reason why. A session that is not past
// its end has shown life, and slides.
func (s *Service) yield(ctx context.Context, u *models.Upload, why error) error {
	now := s.utc()
	expires := u.ExpiresAt
	if now.Before(expires) {
		col := s.policy(u.Collection)
		expires = now.Add(col.Deadline)
	}
	if _, err := s.records.Yield(context.WithoutCancel(ctx), *u, string(models.ErrorCode(why)), expires, now); err != nil {
		return errors.Join(why, err)
	}
	return why
}

func partProblem(p *models.PartProblem) error {
	const most = 1000 // an answer that names more helps nobody
	text := map[models.Code]string{
		models.CodeMissingParts: "parts have not arrived",
		models.CodeSizeMismatch: "parts have another size than they should",
		models.CodePartCorrupt:  "parts have another checksum than they should",
	}[p.Code]
	return models.Errorf(p.Code, "%s", text).With("parts", p.Parts[:min(len(p.Parts), most)]).With("count", len(p.Parts))
}

func partOf(err error) int {
	var e *models.ObjectError
	if errors.As(err, &e) {
		return e.Part
	}
	return 0
}
