package controlplane

import (
	"context"

	"berth/models"
)

// Upload shows an upload, with what S3 holds of it while it is being sent.
func (s *Service) Upload(ctx context.Context, c models.Caller, id models.UploadID) (UploadView, error) {
	u, f, err := s.upload(ctx, c, id)
	if err != nil {
		return UploadView{}, err
	}
	v := UploadView{Upload: u}
	switch u.State {
	case models.UploadCommitted:
		v.File = &f
	case models.UploadRejected:
		if u.ReusedFile != "" {
			return s.handedOver(ctx, c, u)
		}
	case models.UploadUploading:
		// Past its end the answer is expired, though nobody has written it down yet.
		if models.Closed(&u, s.utc()) != nil {
			v.State = models.UploadExpired
			break
		}
		parts, err := s.parts(ctx, &u)
		if err != nil {
			return UploadView{}, err
		}
		if err := s.seen(ctx, &u, len(parts)); err != nil {
			return UploadView{}, err
		}
		p := &Progress{}
		for _, part := range parts {
			p.Parts++
			p.Bytes += part.Size
		}
		v.Progress = p
	}
	return v, nil
}

// handedOver shows an upload whose bytes turned out to be a file that was there already:
// to its owner it is committed, as that file. Its own object is reaped.
func (s *Service) handedOver(ctx context.Context, c models.Caller, u models.Upload) (UploadView, error) {
	f, err := s.records.File(ctx, c.Whose(), u.ReusedFile)
	if err != nil {
		return UploadView{}, err
	}
	v := UploadView{Upload: u, File: &f, Instant: true}
	v.State, v.FileID, v.ReasonCode, v.Reason = models.UploadCommitted, f.ID, "", ""
	return v, nil
}

// Abort ends an upload that is not wanted. Its file fails, the owner's reservation is
// released, and what lies at S3 is reaped: again, once the last signed URL has expired.
// Repeated, it changes nothing. A Complete in flight is BUSY.
func (s *Service) Abort(ctx context.Context, c models.Caller, id models.UploadID) (UploadView, error) {
	if err := c.Require(models.ScopeUpload); err != nil {
		return UploadView{}, err
	}
	if _, _, err := s.upload(ctx, c, id); err != nil {
		return UploadView{}, err
	}
	if _, err := s.records.CloseUpload(ctx, models.Closing{ID: id, Whose: c.Whose(), To: models.UploadAborted,
		Code: models.CodeSessionClosed, Reason: "the upload was aborted", Actor: c.Actor(), Now: s.utc()}); err != nil {
		return UploadView{}, err
	}
	u, f, err := s.upload(ctx, c, id)
	if err != nil {
		return UploadView{}, err
	}
	switch u.State {
	case models.UploadCompleting:
		return UploadView{}, models.Errorf(models.CodeBusy, "the upload is being completed")
	case models.UploadCommitted:
		return UploadView{}, models.Errorf(models.CodeSessionClosed, "the upload is committed: delete its file instead").With("file_id", string(f.ID))
	}
	return UploadView{Upload: u}, nil
}

// Commit attaches a completed upload whose collection or opener deferred that.
// Repeated, it gives the same file.
//
// Codes: NOT_FOUND, INVALID_REQUEST, METADATA_INVALID, TYPE_NOT_ALLOWED, TOO_LARGE,
// SESSION_NOT_COMPLETED, SESSION_EXPIRED, SESSION_CLOSED.
func (s *Service) Commit(ctx context.Context, c models.Caller, id models.UploadID, req CommitRequest) (models.File, error) {
	if err := c.Require(models.ScopeUpload); err != nil {
		return models.File{}, err
	}
	u, f, err := s.upload(ctx, c, id)
	if err != nil {
		return models.File{}, err
	}
	if u.State == models.UploadCommitted {
		return f, nil
	}
	if u.State == models.UploadRejected && u.ReusedFile != "" { // committed, as the older file
		return s.records.File(ctx, c.Whose(), u.ReusedFile)
	}
	if f.Parent != "" {
		return models.File{}, models.Errorf(models.CodeSessionNotCompleted, "a derived file is attached when the file that it is derived from is published")
	}
	col := s.policy(u.Collection)
	name, err := models.CleanName(req.Name)
	if err != nil {
		return models.File{}, err
	}
	ctype := ""
	if req.ContentType != "" {
		if ctype, err = models.CleanContentType(req.ContentType); err != nil {
			return models.File{}, err
		}
	}
	meta := req.Metadata
	if len(meta) > 0 {
		if meta, err = metadata(meta, col.MaxMetadataBytes); err != nil {
			return models.File{}, err
		}
	}
	effective := ctype
	if effective == "" {
		effective = u.ContentType
	}
	if err := allowed(&col, nil, name, effective, u.Size, false); err != nil {
		return models.File{}, err
	}
	if err := withinLimits(c.Grant, effective, u.Size); err != nil {
		return models.File{}, err
	}
	now := s.utc()
	ok, err := s.records.Commit(ctx, models.Committing{ID: id, Whose: c.Whose(), Name: name, ContentType: ctype, Metadata: meta,
		Steps: len(col.Steps) > 0, Actor: c.Actor(), Now: now})
	if err != nil {
		return models.File{}, err
	}
	if u, f, err = s.upload(ctx, c, id); err != nil {
		return models.File{}, err
	}
	if ok || u.State == models.UploadCommitted {
		return f, nil
	}
	if err := models.Closed(&u, now); err != nil {
		return models.File{}, err
	}
	if u.State == models.UploadCompleted {
		return models.File{}, models.Expired()
	}
	return models.File{}, models.Errorf(models.CodeSessionNotCompleted, "the upload is %s", u.State)
}
