package controlplane

import (
	"context"
	"fmt"
	"time"

	"berth/models"
)

// Sign gives URLs that accept exactly the bytes of each part. What a URL pins and when
// it ends is stored before it leaves; signing is progress, and slides the session's end.
//
// Codes: NOT_FOUND, SESSION_CLOSED, SESSION_EXPIRED, BUSY, PART_OUT_OF_RANGE,
// PART_CONFLICT, INVALID_REQUEST, TOO_LARGE, TYPE_NOT_ALLOWED, STORE_UNAVAILABLE.
func (s *Service) Sign(ctx context.Context, c models.Caller, id models.UploadID, req SignRequest) (Signed, error) {
	if err := c.Require(models.ScopeUpload); err != nil {
		return Signed{}, err
	}
	u, _, err := s.upload(ctx, c, id)
	if err != nil {
		return Signed{}, err
	}
	if err := withinLimits(c.Grant, u.ContentType, u.Size); err != nil {
		return Signed{}, err
	}
	now := s.utc()
	if err := signable(&u, now); err != nil {
		return Signed{}, err
	}
	col := s.policy(u.Collection)
	parts, pins, err := asked(&u, &col, req)
	if err != nil {
		return Signed{}, err
	}
	signed, err := s.signAll(ctx, &u, pins, parts, now)
	if err != nil {
		return Signed{}, err
	}
	conflicts, ok, err := s.records.Sign(ctx, models.Signing{ID: u.ID, Whose: c.Whose(), Pins: pins,
		SignedUntil: signed.ExpiresAt, ExpiresAt: now.Add(col.Deadline), Now: now})
	if err != nil {
		return Signed{}, err
	}
	if len(conflicts) > 0 {
		return Signed{}, partConflict(conflicts)
	}
	if !ok {
		if u, _, err = s.upload(ctx, c, id); err != nil {
			return Signed{}, err
		}
		if err := signable(&u, s.utc()); err != nil {
			return Signed{}, err
		}
		return Signed{}, models.Errorf(models.CodeBusy, "the upload was changed meanwhile; try again")
	}
	s.metrics.signed(len(signed.Parts))
	return signed, nil
}

func partConflict(parts []int) error {
	return models.Errorf(models.CodePartConflict, "parts are already pinned to other bytes").With("parts", parts)
}

func signable(u *models.Upload, now time.Time) error {
	if err := models.Closed(u, now); err != nil {
		return err
	}
	switch u.State {
	case models.UploadUploading:
		return nil
	case models.UploadCompleting:
		return models.Errorf(models.CodeBusy, "the upload is being completed")
	case models.UploadInit:
		return models.Errorf(models.CodeBusy, "the upload is being begun")
	default:
		return models.Errorf(models.CodeSessionClosed, "all bytes of the upload have arrived")
	}
}

// asked validates the whole request before anything of it is done.
func asked(u *models.Upload, col *models.Collection, req SignRequest) ([]PartRequest, []models.Pin, error) {
	parts := req.Parts
	if len(parts) > 0 && (req.From != 0 || req.To != 0) {
		return nil, nil, models.Errorf(models.CodeInvalidRequest, "send parts, or from and to, not both")
	}
	if len(parts) == 0 {
		if req.From < 1 || req.To > u.PartCount || req.From > req.To {
			return nil, nil, outOfRange(u, fmt.Sprintf("the range %d to %d", req.From, req.To))
		}
		parts = make([]PartRequest, 0, req.To-req.From+1)
		for n := req.From; n <= req.To; n++ {
			parts = append(parts, PartRequest{Number: n})
		}
	}
	if len(parts) > models.MaxParts {
		return nil, nil, models.Errorf(models.CodeInvalidRequest, "parts: more than %d", models.MaxParts).With("field", "parts")
	}
	seen := make([]bool, u.PartCount+1)
	var pins []models.Pin
	for _, p := range parts {
		if p.Number < 1 || p.Number > u.PartCount {
			return nil, nil, outOfRange(u, fmt.Sprintf("part %d", p.Number))
		}
		if seen[p.Number] {
			return nil, nil, models.Errorf(models.CodeInvalidRequest, "parts: part %d is named twice", p.Number).With("field", "parts")
		}
		seen[p.Number] = true
		if p.Checksum == "" {
			if mustPin(u, col) {
				return nil, nil, models.Errorf(models.CodeInvalidRequest, "parts: the %s checksum of part %d must be given", u.Checksum.Algorithm, p.Number).With("field", "parts")
			}
			continue
		}
		digest, ok := u.Checksum.Algorithm.ParseDigest(p.Checksum)
		if !ok {
			return nil, nil, models.Errorf(models.CodeInvalidRequest, "parts: the checksum of part %d is not the base64 of a %s digest (%d bytes)",
				p.Number, u.Checksum.Algorithm, u.Checksum.Algorithm.Size()).With("field", "parts")
		}
		if w := whole(u); w != nil && string(w) != string(digest) {
			return nil, nil, partConflict([]int{p.Number})
		}
		pins = append(pins, models.Pin{Number: p.Number, Digest: digest})
	}
	return parts, pins, nil
}

func outOfRange(u *models.Upload, what string) error {
	return models.Errorf(models.CodePartOutOfRange, "%s is outside 1 to %d", what, u.PartCount).With("part_count", u.PartCount)
}

// mustPin tells whether a part's URL is given only for bytes whose checksum is known:
// where the collection says so, and for a composite, which is over the parts' checksums
// and which S3 can only be asked for if every part came with one (some stores refuse a
// part without).
func mustPin(u *models.Upload, col *models.Collection) bool {
	return u.Checksum.Type == models.Composite || (col.ChecksumRequired && whole(u) == nil && u.Checksum.IsZero())
}

// whole is the digest of a single PUT's bytes where it is known without a pin: declared,
// or of nothing at all.
func whole(u *models.Upload) []byte {
	if u.Method != models.MethodSingle || u.Checksum.Algorithm == "" {
		return nil
	}
	want, _ := models.Expected(u, nil)
	d, _ := u.Checksum.Algorithm.ParseDigest(want.Value)
	return d
}

// life is how long a URL of an upload may live: the setting, or less where the session
// ends before. Signing slides the session's end, up to its hard one.
func (s *Service) life(u *models.Upload, col *models.Collection, now time.Time) time.Duration {
	return max(min(col.URLExpiry, u.HardExpires.Sub(now), max(u.ExpiresAt.Sub(now), col.Deadline)), minURLExpiry)
}

// signAll signs parts of an upload. It stores nothing: the URLs must not leave before
// what they allow is stored.
func (s *Service) signAll(ctx context.Context, u *models.Upload, pins []models.Pin, parts []PartRequest, now time.Time) (Signed, error) {
	st, err := s.objects(u.Store)
	if err != nil {
		return Signed{}, err
	}
	col := s.policy(u.Collection)
	life := s.life(u, &col, now)
	digests := make(map[int][]byte, len(pins))
	for _, p := range pins {
		digests[p.Number] = p.Digest
	}
	if u.Undeclared && u.Method == models.MethodSingle {
		return Signed{}, models.Errorf(models.CodeInvalidRequest, "an upload of unknown size in one request is sent by a form")
	}
	if u.Method == models.MethodSingle {
		digest := digests[1]
		if digest == nil {
			digest = whole(u)
		}
		p, until, err := st.PresignPut(ctx, objectSpec(u, &col), u.Size, digest, life, now)
		if err != nil {
			return Signed{}, unavailable(err)
		}
		p.Number = 1
		return Signed{Parts: []models.SignedPart{p}, ExpiresAt: until}, nil
	}
	todo := make([]models.PartToSign, len(parts))
	for i, p := range parts {
		todo[i] = models.PartToSign{Number: p.Number, Size: u.PartLength(u.Size, p.Number), Digest: digests[p.Number]}
		if u.Undeclared {
			todo[i].Size = models.AnySize
		}
	}
	out, until, err := st.PresignParts(ctx, u.Key, u.S3UploadID, todo, u.Checksum.Algorithm, life, now)
	if err != nil {
		return Signed{}, unavailable(err)
	}
	return Signed{Parts: out, ExpiresAt: until}, nil
}

// Parts lists what S3 holds of an upload.
func (s *Service) Parts(ctx context.Context, c models.Caller, id models.UploadID) (PartList, error) {
	u, _, err := s.upload(ctx, c, id)
	if err != nil {
		return PartList{}, err
	}
	if err := models.Closed(&u, s.utc()); err != nil {
		return PartList{}, err
	}
	parts, err := s.parts(ctx, &u)
	if err != nil {
		return PartList{}, err
	}
	if err := s.seen(ctx, &u, len(parts)); err != nil {
		return PartList{}, err
	}
	return PartList{Parts: parts, Missing: models.MissingRanges(parts, u.PartCount)}, nil
}

// seen slides the end of a session at which more parts are seen than ever before: parts
// are also sent by URLs that were signed long ago.
func (s *Service) seen(ctx context.Context, u *models.Upload, n int) error {
	if n == 0 || u.Method != models.MethodMultipart || u.State != models.UploadUploading {
		return nil
	}
	now := s.utc()
	col := s.policy(u.Collection)
	return s.records.Touch(ctx, u.ID, n, now.Add(col.Deadline), now)
}

// parts is S3's list, or for a single PUT the object as its one part. A multipart that
// S3 no longer knows has no parts: it was completed, or taken away.
func (s *Service) parts(ctx context.Context, u *models.Upload) ([]models.Part, error) {
	st, err := s.objects(u.Store)
	if err != nil {
		return nil, err
	}
	if u.Method == models.MethodSingle || u.State == models.UploadCompleted {
		o, err := st.Head(ctx, u.Key, u.VersionID)
		switch {
		case models.ObjectKind(err) == models.ObjectAbsent:
			return nil, nil
		case err != nil:
			return nil, unavailable(err)
		case o.UploadID != u.ID:
			return nil, nil
		case u.Method == models.MethodMultipart:
			all := make([]models.Part, u.PartCount)
			for i := range all {
				all[i] = models.Part{Number: i + 1, Size: u.PartLength(u.Size, i+1)}
			}
			return all, nil
		}
		p := models.Part{Number: 1, Size: o.Size, ETag: o.ETag}
		for _, sum := range o.Checksums {
			if sum.Algorithm == u.Checksum.Algorithm {
				p.Checksum = sum.Value
			}
		}
		return []models.Part{p}, nil
	}
	if u.S3UploadID == "" {
		return nil, nil
	}
	var parts []models.Part
	for p, err := range st.ListParts(ctx, u.Key, u.S3UploadID, u.Checksum.Algorithm) {
		if models.ObjectKind(err) == models.ObjectNoUpload {
			return nil, nil
		}
		if err != nil {
			return nil, unavailable(err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}
