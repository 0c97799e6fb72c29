package controlplane

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/models"
)

// Import registers one version of an object that a store holds already as an active file,
// after a HEAD with checksums: no task, no processing chain, one file.active event. From
// then on the key is Berth's: on deletion every version of it goes. The record says what
// the store attests, never more: an object without a checksum becomes a file without one.
// Repeated for the same version, owner and collection it gives the same file, with before
// set.
//
// It is for admins of a tenant, and registers files of that tenant only. Codes:
// INVALID_REQUEST, METADATA_INVALID, NOT_FOUND (no such object, or another tenant's),
// DUPLICATE_FILE, QUOTA_EXCEEDED, TOO_LARGE, TYPE_NOT_ALLOWED, SIZE_MISMATCH,
// CHECKSUM_MISMATCH, BUSY, STORE_UNAVAILABLE.
func (s *Service) Import(ctx context.Context, c models.Caller, req ImportRequest) (f models.File, before bool, err error) {
	if err := admin(c); err != nil {
		return f, false, err
	}
	col, err := s.collection(req.Collection)
	if err != nil {
		return f, false, err
	}
	i, err := s.importing(c, req, &col)
	if err != nil {
		return f, false, err
	}
	o, err := s.stores[i.Replica.Store].Objects.Head(ctx, req.Key, req.VersionID)
	switch {
	case models.ObjectKind(err) == models.ObjectAbsent:
		return f, false, models.NotFound("object")
	case err != nil:
		return f, false, unavailable(err)
	}
	if err := attested(&i, req, o); err != nil {
		return f, false, err
	}
	outcome, f, err := s.records.Import(ctx, i)
	if err != nil {
		return f, false, err
	}
	switch outcome {
	case models.Imported, models.ImportedBefore:
		return f, outcome == models.ImportedBefore, nil
	case models.ImportForeign:
		return models.File{}, false, models.NotFound("object")
	case models.ImportKnown:
		err = models.Errorf(models.CodeDuplicateFile, "the object is a file's already").With("file_id", string(f.ID)).With("state", string(f.State))
	case models.ImportDuplicate:
		err = models.Errorf(models.CodeDuplicateFile, "the same file is already there").With("file_id", string(f.ID)).With("state", string(f.State))
	case models.ImportCondemned:
		err = models.Errorf(models.CodeBusy, "the object is being deleted as an orphan")
	default:
		err = models.Errorf(models.CodeQuotaExceeded, "the owner may have no more in this collection").
			With("max_files", col.MaxFiles).With("max_bytes", col.MaxBytes)
	}
	return models.File{}, false, err
}

// importing validates a request and makes the rows of it, as far as they are known before
// the store is asked.
func (s *Service) importing(c models.Caller, req ImportRequest, col *models.Collection) (i models.Importing, err error) {
	if req.Store == "" {
		req.Store = col.Store
	}
	st, ok := s.stores[req.Store]
	if !ok {
		return i, models.Errorf(models.CodeInvalidRequest, "store: there is no store %.60q", string(req.Store)).With("field", "store")
	}
	if err := importable(st.Prefix, req.Key); err != nil {
		return i, err
	}
	if len(req.VersionID) > 1024 || strings.ContainsFunc(req.VersionID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return i, models.Errorf(models.CodeInvalidRequest, "version_id: is not one of a store").With("field", "version_id")
	}
	name, err := models.CleanName(req.Name)
	if err != nil {
		return i, err
	}
	ctype, err := models.CleanContentType(req.ContentType)
	if err != nil {
		return i, err
	}
	meta, err := metadata(req.Metadata, col.MaxMetadataBytes)
	if err != nil {
		return i, err
	}
	if req.Size != nil && *req.Size < 0 {
		return i, models.Errorf(models.CodeInvalidRequest, "size: is negative").With("field", "size")
	}
	if want := req.Checksum; want != nil && (want.Value == "" || want.Algorithm != "" && !slices.Contains(models.Algorithms, want.Algorithm)) {
		return i, models.Errorf(models.CodeInvalidRequest, "checksum: needs a value, of an algorithm that collections have").With("field", "checksum")
	}
	now := s.utc()
	id := models.NewFileID()
	return models.Importing{
		Collection: col, Actor: c.Actor(), Now: now,
		File: models.File{
			ID: id, Tenant: c.Tenant, Owner: req.Owner, Collection: col.Name, Name: name, ContentType: ctype, Metadata: meta,
			State: models.FileActive, Guarded: col.Guarded(), CreatedAt: now, UpdatedAt: now, ActivatedAt: now,
		},
		Replica: models.Replica{
			ID: models.NewReplicaID(), FileID: id, Store: req.Store, Key: req.Key, Primary: true, State: models.ReplicaReady,
			CreatedAt: now, UpdatedAt: now,
		},
	}, nil
}

// maxKey is S3's limit of a key, in bytes.
const maxKey = 1024

// importable tells whether Berth can own a key: within the prefix that is its own in the
// store, where its roles have rights, and such that every client's URL still names it.
func importable(prefix, key string) error {
	bad := func(why string) error {
		return models.Errorf(models.CodeInvalidRequest, "key: %s", why).With("field", "key")
	}
	switch {
	case key == "" || len(key) > maxKey || !utf8.ValidString(key):
		return bad("must be 1 to 1024 bytes of UTF-8")
	case strings.ContainsFunc(key, unicode.IsControl):
		return bad("holds a control character")
	case !strings.HasPrefix(key, prefix):
		return bad("is outside of the store's prefix")
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "." || segment == ".." {
			return bad("has a segment that clients take out of a URL")
		}
	}
	return nil
}

// attested puts what the store says into the rows, and holds it against what the request
// expects and the collection takes.
func attested(i *models.Importing, req ImportRequest, o models.Object) error {
	if req.Size != nil && *req.Size != o.Size {
		return models.Errorf(models.CodeSizeMismatch, "expected %d bytes, the store holds %d", *req.Size, o.Size)
	}
	col := i.Collection
	if err := allowed(col, nil, i.File.Name, i.File.ContentType, o.Size, false); err != nil {
		return err
	}
	sum := models.Checksum{Algorithm: col.Algorithm, Type: models.FullObject} // without a value: none is attested
	for n, c := range o.Checksums {
		if n == 0 || c.Algorithm == col.Algorithm {
			sum = c
		}
	}
	if want := req.Checksum; want != nil {
		alg := cmp.Or(want.Algorithm, col.Algorithm)
		n := slices.IndexFunc(o.Checksums, func(c models.Checksum) bool {
			return c.Algorithm == alg && (want.Type == "" || c.Type == want.Type)
		})
		switch {
		case n < 0:
			return models.Errorf(models.CodeChecksumMismatch, "the store attests no %s checksum of the object", alg)
		case o.Checksums[n].Value != want.Value:
			return models.Errorf(models.CodeChecksumMismatch, "the store attests another %s checksum", alg)
		}
		sum, i.File.Declared = o.Checksums[n], true
	}
	if col.ChecksumRequired && sum.IsZero() {
		return models.Errorf(models.CodeChecksumMismatch, "the collection demands checksums, and the store attests none of the object")
	}
	f, r := &i.File, &i.Replica
	f.Size, f.Checksum, f.VersionID, f.ETag = o.Size, sum, o.VersionID, o.ETag
	r.Size, r.VersionID, r.ETag = o.Size, o.VersionID, o.ETag
	if sum.Type == models.FullObject {
		f.PartSize = o.Size // as of a single PUT; of a composite the boundaries are not known
	}
	if col.Dedupe != models.DedupeNone {
		i.Identity = models.IdentityOf(sum, f.PartSize, o.Size)
	}
	return nil
}
