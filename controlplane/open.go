package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"berth/models"
	"berth/tracing"
)

// Open begins a session to send one file. The intent, with the owner's reservation and
// the task that will clean up, is stored before anything exists at S3; a multipart is
// begun after that, outside the transaction. A crash between the two leaves an init that
// a repeated open takes over, or that expires and is reaped.
//
// Codes: INVALID_REQUEST, METADATA_INVALID, TYPE_NOT_ALLOWED, TOO_LARGE, FORBIDDEN,
// DUPLICATE_FILE, QUOTA_EXCEEDED, IDEMPOTENCY_CONFLICT, IDEMPOTENCY_IN_PROGRESS,
// STORE_UNAVAILABLE.
func (s *Service) Open(ctx context.Context, c models.Caller, req OpenRequest) (UploadView, error) {
	if err := c.Require(models.ScopeUpload); err != nil {
		return UploadView{}, err
	}
	now := s.utc()
	o, err := s.plan(c, req, now)
	if err != nil {
		return UploadView{}, err
	}
	o.Upload.Traceparent = tracing.Traceparent(ctx)
	var first Signed
	if o.Upload.Method == models.MethodSingle && !o.Upload.Undeclared && !mustPin(&o.Upload, o.Collection) {
		// Signed before it is stored, released after: what is stored is when it ends.
		if first, err = s.signAll(ctx, &o.Upload, nil, firstNumbers(&o.Upload), now); err != nil {
			return UploadView{}, err
		}
		o.Upload.SignedUntil = first.ExpiresAt
	}
	outcome, u, f, err := s.records.Open(ctx, o)
	if err != nil {
		return UploadView{}, err
	}
	s.metrics.opened(o.Collection.Name, outcome)
	tracing.Note(ctx, attrOutcome, string(outcome))
	if u.ID != "" {
		about(ctx, &u)
	}
	switch outcome {
	case models.OpenedNew:
		if u.Method == models.MethodSingle {
			return UploadView{Upload: u, Parts: first.Parts, PartsExpireAt: first.ExpiresAt}, nil
		}
		return s.begin(ctx, c, u, false, req.IdempotencyKey != "")
	case models.OpenedContinued:
		v, err := s.goOn(ctx, c, u)
		v.Resumed = true
		return v, err
	case models.OpenedReplayed, models.OpenedReplayedContinued:
		if u.State == models.UploadInit && now.Sub(u.UpdatedAt) < beginLease {
			return UploadView{}, errKeyRunning
		}
		v, err := s.goOn(ctx, c, u)
		v.Replayed, v.Resumed = true, outcome == models.OpenedReplayedContinued
		return v, err
	case models.OpenedInstant:
		return s.instant(ctx, c, f)
	case models.OpenedReplayedInstant:
		if err := withinGrant(c, f); err != nil {
			return UploadView{}, err
		}
		v, err := s.instant(ctx, c, f)
		v.Replayed = true
		return v, err
	case models.OpenedDuplicate:
		if o.Collection.Dedupe == models.DedupeReuse && f.State == models.FileActive {
			return s.instant(ctx, c, f)
		}
		e := models.Errorf(models.CodeDuplicateFile, "the same file is already there")
		if f.ID != "" {
			e = e.With("file_id", string(f.ID)).With("state", string(f.State))
		}
		return UploadView{}, e
	case models.OpenedConflict:
		return UploadView{}, errKeyConflict
	case models.OpenedTooMany:
		return UploadView{}, models.Errorf(models.CodeQuotaExceeded, "the owner has too many open uploads in this collection").With("max_open", o.Collection.MaxOpen)
	case models.OpenedOverGrant:
		return UploadView{}, models.Errorf(models.CodeForbidden, "the grant's uploads are used up")
	default:
		return UploadView{}, models.Errorf(models.CodeQuotaExceeded, "the owner may have no more in this collection").
			With("max_files", o.Collection.MaxFiles).With("max_bytes", o.Collection.MaxBytes)
	}
}

// plan validates a request and makes the rows of it. It changes nothing.
func (s *Service) plan(c models.Caller, req OpenRequest, now time.Time) (models.Opening, error) {
	req, col, err := s.policyOf(c, req)
	if err != nil {
		return models.Opening{}, err
	}
	name, err := models.CleanName(req.Name)
	if err != nil {
		return models.Opening{}, err
	}
	ctype, err := models.CleanContentType(req.ContentType)
	if err != nil {
		return models.Opening{}, err
	}
	meta, err := metadata(req.Metadata, col.MaxMetadataBytes)
	if err != nil {
		return models.Opening{}, err
	}
	commit := col.Commit
	switch req.Commit {
	case "":
	case models.CommitAuto, models.CommitDeferred:
		commit = req.Commit
	default:
		return models.Opening{}, models.Errorf(models.CodeInvalidRequest, "commit: is neither auto nor deferred").With("field", "commit")
	}
	if err := allowed(&col, c.Grant, name, ctype, req.Size, req.SizeUnknown); err != nil {
		return models.Opening{}, err
	}
	g, sum, err := cut(&col, req)
	if err != nil {
		return models.Opening{}, err
	}
	st := s.stores[col.Store]
	u := models.Upload{
		ID: models.NewUploadID(), Tenant: c.Tenant, Owner: c.Owner, Collection: col.Name, FileID: models.NewFileID(),
		ReplicaID: models.NewReplicaID(), State: models.UploadInit, Geometry: g, Size: req.Size, Checksum: sum,
		Undeclared: req.SizeUnknown, Commit: commit, Identity: models.IdentityOf(sum, g.PartSize, req.Size), Store: col.Store,
		Key: models.NewKey(st.Prefix, col.Name, models.Extension(name)), ContentType: ctype,
		ExpiresAt: now.Add(col.Deadline), HardExpires: now.Add(max(col.HardDeadline, col.Deadline)),
		CreatedAt: now, UpdatedAt: now,
	}
	if g.Method == models.MethodSingle {
		u.State = models.UploadUploading
	}
	o := models.Opening{
		Upload: u, Collection: &col, Continue: req.Continue, Grace: col.Grace, Actor: c.Actor(), Now: now,
		IdempotencyKey: req.IdempotencyKey, RequestHash: req.RequestHash, IdempotencyExpiry: now.Add(idempotencyTTL),
		File: models.File{
			ID: u.FileID, Tenant: c.Tenant, Owner: c.Owner, Collection: col.Name, Name: name, Size: req.Size,
			PartSize: g.PartSize, ContentType: ctype, Checksum: sum, Declared: !sum.IsZero(), State: models.FilePreparing,
			Metadata: meta, UploadID: u.ID, Parent: req.Parent, Guarded: col.Guarded(), CreatedAt: now, UpdatedAt: now,
		},
		Replica: models.Replica{
			ID: u.ReplicaID, FileID: u.FileID, Store: u.Store, Key: u.Key, Primary: true, State: models.ReplicaWriting,
			Size: req.Size, CreatedAt: now, UpdatedAt: now,
		},
		Reap: models.Task{
			ID: models.NewTaskID(), Kind: models.TaskReap, Target: string(u.ReplicaID), RunAt: u.ExpiresAt.Add(col.Grace),
			MaxAttempts: models.DefaultMaxAttempts, CreatedAt: now,
		},
	}
	if gr := c.Grant; gr != nil {
		o.GrantID, o.GrantFiles, o.GrantEnds, o.Derive = gr.ID, gr.MaxFiles, gr.Expires, gr.Derive
	}
	return o, nil
}

// policyOf is the policy of what is opened. What a step derives belongs to the collection
// of the file that it is derived from, but none of the rules for what owners send: it is
// attached with that file, and goes with it.
func (s *Service) policyOf(c models.Caller, req OpenRequest) (OpenRequest, models.Collection, error) {
	derive := (*models.Derivation)(nil)
	if c.Grant != nil {
		derive = c.Grant.Derive
	}
	if derive == nil {
		if req.Parent != "" {
			return req, models.Collection{}, models.Errorf(models.CodeForbidden, "only a processing step sends derived files")
		}
		col, err := s.collection(req.Collection)
		return req, col, err
	}
	if req.Parent != "" && req.Parent != derive.Parent {
		return req, models.Collection{}, models.NotFound("file")
	}
	if req.Collection != "" && req.Collection != c.Grant.Collection {
		return req, models.Collection{}, models.Errorf(models.CodeForbidden, "a derived file is of its parent's collection")
	}
	req.Parent, req.Collection, req.Commit, req.Continue = derive.Parent, c.Grant.Collection, models.CommitDeferred, false
	col := s.policy(req.Collection)
	if _, ok := s.stores[col.Store]; !ok {
		return req, col, models.Errorf(models.CodeStoreUnavailable, "the collection is not configured any more")
	}
	col.Extensions, col.ContentTypes, col.MinSize, col.MaxSize = nil, nil, 0, 0
	col.MaxFiles, col.MaxBytes, col.MaxOpen, col.Dedupe = 0, 0, 0, models.DedupeNone
	return req, col, nil
}

// cut plans how the bytes come and what S3 will attest of them. Of an upload whose size
// nobody told, nothing is planned and nothing is declared: S3's own checksum is recorded.
func cut(col *models.Collection, req OpenRequest) (models.Geometry, models.Checksum, error) {
	if !req.SizeUnknown {
		g, err := models.Plan(req.Size, col.PartSize, col.SingleMax)
		if err != nil {
			return g, models.Checksum{}, err
		}
		sum, err := models.Declare(req.Checksum, col.Algorithm, g)
		return g, sum, err
	}
	if col.ChecksumRequired {
		return models.Geometry{}, models.Checksum{}, models.Errorf(models.CodeInvalidRequest, "the collection demands checksums, which uploads of unknown size do not have").With("field", "checksum")
	}
	switch req.Method {
	case models.MethodSingle:
		return models.Geometry{Method: req.Method, PartCount: 1}, models.Checksum{}, nil
	case models.MethodMultipart:
		return models.Geometry{Method: req.Method, PartCount: models.MaxParts}, models.Checksum{}, nil
	}
	return models.Geometry{}, models.Checksum{}, models.Errorf(models.CodeInvalidRequest, "method: is neither single nor multipart").With("field", "method")
}

// allowed holds a file against the collection and the caller's grant.
func allowed(col *models.Collection, g *models.Grant, name, ctype string, size int64, unknown bool) error {
	if size < 0 {
		return models.Errorf(models.CodeInvalidRequest, "size: is negative").With("field", "size")
	}
	if g != nil {
		switch {
		case g.Upload != "":
			return models.Errorf(models.CodeForbidden, "the grant is for one upload that is open already")
		case g.MaxFiles > 0 && g.ID == "":
			return models.Errorf(models.CodeForbidden, "the grant limits its uploads and has no id to count them by")
		case g.Collection != "" && g.Collection != col.Name:
			return models.Errorf(models.CodeForbidden, "the grant is for another collection")
		}
		if err := withinLimits(g, ctype, size); err != nil {
			return err
		}
	}
	if col.MaxSize > 0 && size > col.MaxSize {
		return models.Errorf(models.CodeTooLarge, "the collection takes files of at most %d bytes", col.MaxSize).With("max_size", col.MaxSize)
	}
	if size < col.MinSize && !unknown {
		return models.Errorf(models.CodeInvalidRequest, "size: the collection takes files of at least %d bytes", col.MinSize).With("field", "size")
	}
	if len(col.Extensions) > 0 && !slices.Contains(col.Extensions, models.Extension(name)) {
		return models.Errorf(models.CodeTypeNotAllowed, "the collection does not take files with this extension").With("extensions", col.Extensions)
	}
	if !models.TypeAllowed(col.ContentTypes, ctype) {
		return models.Errorf(models.CodeTypeNotAllowed, "the collection does not take %s", ctype).With("content_types", col.ContentTypes)
	}
	return nil
}

// withinLimits holds what is sent against a grant, nil if there is none: when it is opened,
// and whenever its bytes are signed for, put together or attached, since a wider token of
// the same owner may have opened it. size is 0 where nobody knows it yet.
func withinLimits(g *models.Grant, ctype string, size int64) error {
	switch {
	case g == nil:
		return nil
	case g.MaxBytes > 0 && size > g.MaxBytes:
		return models.Errorf(models.CodeTooLarge, "the grant takes files of at most %d bytes", g.MaxBytes).With("max_size", g.MaxBytes)
	case !models.TypeAllowed(g.ContentTypes, ctype):
		return models.Errorf(models.CodeTypeNotAllowed, "the grant does not take %s", ctype)
	}
	return nil
}

// metadata checks that raw is one JSON object that fits; nil is an empty one.
func metadata(raw json.RawMessage, limit int) (json.RawMessage, error) {
	if limit <= 0 {
		limit = models.MaxMetadataBytes
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return json.RawMessage("{}"), nil
	}
	if len(raw) > limit {
		return nil, models.Errorf(models.CodeMetadataInvalid, "metadata: is longer than %d bytes", limit).With("field", "metadata")
	}
	if raw[0] != '{' || !json.Valid(raw) {
		return nil, models.Errorf(models.CodeMetadataInvalid, "metadata: is not a JSON object").With("field", "metadata")
	}
	if bytes.Contains(raw, []byte(`\u0000`)) {
		return nil, models.Errorf(models.CodeMetadataInvalid, "metadata: holds a NUL").With("field", "metadata")
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return nil, models.Errorf(models.CodeMetadataInvalid, "metadata: is not a JSON object").With("field", "metadata")
	}
	return out.Bytes(), nil
}

// begin has S3 begin the multipart of an init and records it. Whoever finds the upload
// moved on takes back what it made. again says that it is not the first to try. keep
// leaves a failed one for the retry that an idempotency key announces; otherwise it is
// closed at once, so that its reservation is not held for nothing.
func (s *Service) begin(ctx context.Context, c models.Caller, u models.Upload, again, keep bool) (UploadView, error) {
	st, err := s.objects(u.Store)
	if err != nil {
		return UploadView{}, err
	}
	col := s.policy(u.Collection)
	s3id, err := s.multipart(ctx, st, objectSpec(&u, &col), again)
	if err != nil {
		if !keep {
			s.giveUp(ctx, u, c)
		}
		return UploadView{}, unavailable(err)
	}
	now := s.utc()
	u.S3UploadID = s3id
	var first Signed
	if !mustPin(&u, &col) && !u.Undeclared {
		if first, err = s.signAll(ctx, &u, nil, firstNumbers(&u), now); err != nil {
			return UploadView{}, err
		}
	}
	ok, err := s.records.Begin(ctx, u, s3id, first.ExpiresAt, c.Actor(), now)
	if err != nil {
		return UploadView{}, err
	}
	if !ok {
		// Another request began it, or it was aborted: what was made here is nobody's, unless
		// both found the same. If this fails too, the reaper finds it: of a contested upload
		// its task outlives the activation.
		v, err := s.Upload(ctx, c, u.ID)
		if err != nil {
			return UploadView{}, err
		}
		if v.S3UploadID != s3id {
			if err := st.AbortMultipart(context.WithoutCancel(ctx), u.Key, s3id); err != nil {
				s.log.WarnContext(ctx, "a multipart that lost its race was not aborted", "upload", u.ID, "err", err)
			}
		}
		return v, models.Closed(&v.Upload, now)
	}
	u.State, u.UpdatedAt = models.UploadUploading, now
	return UploadView{Upload: u, Parts: first.Parts, PartsExpireAt: first.ExpiresAt}, nil
}

// multipart begins a multipart upload. An attempt before this one may have died when S3
// had begun it already: what is listed of the key is gone on with, since nobody would
// ever look for it again once the file is active.
func (s *Service) multipart(ctx context.Context, st Objects, spec models.ObjectSpec, again bool) (string, error) {
	if again {
		for m, err := range st.ListMultiparts(ctx, spec.Key) {
			if err != nil {
				return "", err
			}
			if m.Key == spec.Key {
				return m.S3UploadID, nil
			}
		}
	}
	return st.CreateMultipart(ctx, spec)
}

// giveUp closes what could not be begun, unless another request has begun it meanwhile.
func (s *Service) giveUp(ctx context.Context, u models.Upload, c models.Caller) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := s.records.CloseUpload(ctx, models.Closing{ID: u.ID, Whose: c.Whose(), From: models.UploadInit, To: models.UploadAborted,
		Code: models.CodeStoreUnavailable, Reason: "the multipart upload could not be begun", Actor: c.Actor(), Now: s.utc()}); err != nil {
		s.log.WarnContext(ctx, "an upload that could not be begun was not closed; it will expire", "upload", u.ID, "err", err)
	}
}

// goOn answers for an upload that is there already: begun if it is not, with its URL if
// it is a single PUT. A multipart client asks which parts are missing.
func (s *Service) goOn(ctx context.Context, c models.Caller, u models.Upload) (UploadView, error) {
	now := s.utc()
	if u.State == models.UploadInit && models.Closed(&u, now) == nil {
		// Before a second multipart may come to be: the activation would cancel the task that
		// looks for the one of them that is left over.
		ok, err := s.records.Contest(ctx, u.ID, now)
		if err != nil {
			return UploadView{}, err
		}
		if ok {
			return s.begin(ctx, c, u, true, true)
		}
	}
	v, err := s.Upload(ctx, c, u.ID)
	if err != nil || v.State != models.UploadUploading || models.Closed(&v.Upload, now) != nil {
		return v, err
	}
	col := s.policy(u.Collection)
	if u.Method == models.MethodSingle && !u.Undeclared && !mustPin(&u, &col) {
		signed, err := s.Sign(ctx, c, u.ID, SignRequest{From: 1, To: 1})
		if err != nil {
			return v, err
		}
		v.Parts, v.PartsExpireAt = signed.Parts, signed.ExpiresAt
	}
	return v, nil
}

// instant answers with the file that is already there: no byte is sent.
func (s *Service) instant(ctx context.Context, c models.Caller, f models.File) (UploadView, error) {
	v := UploadView{File: &f, Instant: true}
	if f.UploadID == "" { // imported: there never was an upload
		v.Upload = models.Upload{FileID: f.ID, Collection: f.Collection, State: models.UploadCommitted, Size: f.Size,
			Geometry: models.Geometry{Method: models.MethodSingle, PartSize: f.PartSize, PartCount: 1}, Checksum: f.Checksum}
		return v, nil
	}
	u, _, err := s.records.Upload(ctx, c.Whose(), f.UploadID)
	v.Upload = u
	return v, err
}

func firstNumbers(u *models.Upload) []PartRequest {
	out := make([]PartRequest, min(firstParts, u.PartCount))
	for i := range out {
		out[i].Number = i + 1
	}
	return out
}

func objectSpec(u *models.Upload, col *models.Collection) models.ObjectSpec {
	return models.ObjectSpec{
		Key: u.Key, UploadID: u.ID, ContentType: u.ContentType, Algorithm: u.Checksum.Algorithm, Type: u.Checksum.Type,
		StorageClass: col.StorageClass, SSEKMSKeyID: col.SSEKMSKeyID,
	}
}
