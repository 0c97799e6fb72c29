package controlplane

import (
	"context"
	"time"

	"berth/models"
)

// Form signs a POST policy form for a single upload whose size nobody told: the policy
// holds its length between the collection's bounds. What the form lets in after the first
// object is another version, noted as foreign and reaped.
//
// Codes: NOT_FOUND, INVALID_REQUEST, SESSION_CLOSED, SESSION_EXPIRED, STORE_UNAVAILABLE.
func (s *Service) Form(ctx context.Context, c models.Caller, id models.UploadID) (models.SignedForm, time.Time, error) {
	refuse := func(err error) (models.SignedForm, time.Time, error) { return models.SignedForm{}, time.Time{}, err }
	if err := c.Require(models.ScopeUpload); err != nil {
		return refuse(err)
	}
	u, _, err := s.upload(ctx, c, id)
	if err != nil {
		return refuse(err)
	}
	if err := withinLimits(c.Grant, u.ContentType, 0); err != nil {
		return refuse(err)
	}
	now := s.utc()
	if err := signable(&u, now); err != nil {
		return refuse(err)
	}
	if u.Method != models.MethodSingle || !u.Undeclared {
		return refuse(models.Errorf(models.CodeInvalidRequest, "only an upload of unknown size is sent by a form"))
	}
	st, err := s.objects(u.Store)
	if err != nil {
		return refuse(err)
	}
	col := s.policy(u.Collection)
	most := col.MaxSize
	if most == 0 {
		most = models.MaxSinglePut
	}
	if g := c.Grant; g != nil && g.MaxBytes > 0 {
		most = min(most, g.MaxBytes)
	}
	form, until, err := st.PresignPost(ctx, objectSpec(&u, &col), col.MinSize, min(most, models.MaxSinglePut), nil, s.life(&u, &col, now), now)
	if err != nil {
		return refuse(unavailable(err))
	}
	_, ok, err := s.records.Sign(ctx, models.Signing{ID: u.ID, Whose: c.Whose(), SignedUntil: until, ExpiresAt: now.Add(col.Deadline), Now: now})
	if err != nil {
		return refuse(err)
	}
	if !ok {
		return refuse(models.Errorf(models.CodeBusy, "the upload was changed meanwhile; try again"))
	}
	return form, until, nil
}

// UploadOf finds a caller's upload by what S3 calls it. Key and multipart upload id must
// be of one upload, and it the caller's own: any other combination is NOT_FOUND.
func (s *Service) UploadOf(ctx context.Context, c models.Caller, key, s3UploadID string) (models.UploadID, error) {
	names := make([]models.StoreName, 0, len(s.stores))
	for name := range s.stores {
		names = append(names, name)
	}
	id, err := s.records.UploadOf(ctx, c.Whose(), names, key, s3UploadID)
	if err != nil {
		return "", err
	}
	_, _, err = s.upload(ctx, c, id) // within the grant
	return id, err
}

// Bucket is the bucket of a store, for clients that speak S3's names.
func (s *Service) Bucket(name models.StoreName) string {
	if st, ok := s.stores[name]; ok {
		return st.Objects.Bucket()
	}
	return ""
}
