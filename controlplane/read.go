package controlplane

import (
	"context"
	"mime"
	"strings"

	"berth/models"
)

// ContentURL signs a GET of exactly the recorded version of an active file. Nothing
// else can be read (F4), also when its bytes are already there. What a step derived is read
// while the file that it is derived from can be.
//
// Codes: NOT_FOUND, NOT_READY, BLOB_CORRUPT, STORE_UNAVAILABLE.
func (s *Service) ContentURL(ctx context.Context, c models.Caller, id models.FileID) (ReadURL, error) {
	if err := c.Require(models.ScopeRead); err != nil {
		return ReadURL{}, err
	}
	f, r, ok, err := s.records.Readable(ctx, c.Whose(), id)
	if err != nil {
		return ReadURL{}, err
	}
	if err := withinGrant(c, f); err != nil {
		return ReadURL{}, err
	}
	if f.State != models.FileActive {
		return ReadURL{}, models.Errorf(models.CodeNotReady, "the file is %s", f.State).With("state", string(f.State))
	}
	if f.Parent != "" { // a thumbnail shows what it is of
		parent, err := s.records.File(ctx, c.Whose(), f.Parent)
		if err != nil {
			return ReadURL{}, err
		}
		if parent.State != models.FileActive {
			return ReadURL{}, models.Errorf(models.CodeNotReady, "the file that it is derived from is %s", parent.State).With("state", string(parent.State))
		}
	}
	if !ok {
		return ReadURL{}, models.Errorf(models.CodeStoreUnavailable, "the file has no readable replica")
	}
	st, err := s.objects(r.Store)
	if err != nil {
		return ReadURL{}, err
	}
	col := s.policy(f.Collection)
	// A null version is whatever lies there: without versions of their own, other bytes may
	// have taken the place of those that were verified.
	if col.VerifyOnRead || r.VersionID == models.NullVersion {
		if err := s.intact(ctx, st, f, r); err != nil {
			return ReadURL{}, err
		}
	}
	life := col.URLExpiry
	if life <= 0 {
		life = readExpiry
	}
	url, until, err := st.PresignGet(ctx, r.Key, r.VersionID, disposition(&col, f), f.ContentType, life, s.utc())
	if err != nil {
		return ReadURL{}, unavailable(err)
	}
	return ReadURL{URL: url, ExpiresAt: until, File: f, PartSize: f.PartSize}, nil
}

// intact looks again at what a read URL would give.
func (s *Service) intact(ctx context.Context, st Objects, f models.File, r models.Replica) error {
	corrupt := func(why string) error {
		s.log.ErrorContext(ctx, "an active file's object is not what was recorded", "file", f.ID, "replica", r.ID, "why", why)
		return models.Errorf(models.CodeBlobCorrupt, "the stored object is not what was recorded")
	}
	o, err := st.Head(ctx, r.Key, r.VersionID)
	switch {
	case models.ObjectKind(err) == models.ObjectAbsent:
		return corrupt("absent")
	case err != nil:
		return unavailable(err)
	case o.VersionID != r.VersionID:
		return corrupt("another version")
	case f.UploadID != "" && o.UploadID != f.UploadID && r.Primary:
		return corrupt("another upload")
	case o.Size != f.Size:
		return corrupt("another size")
	case !f.Checksum.IsZero() && !attests(o, f.Checksum):
		return corrupt("another checksum")
	}
	return nil
}

// disposition names the file as its owner did. Only types that the collection lists are
// shown in the browser; the rest is downloaded, so that nobody's HTML runs on the
// store's origin.
func disposition(col *models.Collection, f models.File) string {
	kind := "attachment"
	if len(col.InlineTypes) > 0 && models.TypeAllowed(col.InlineTypes, f.ContentType) {
		kind = "inline"
	}
	// RFC 6266: filename* for everybody, a plain ASCII filename for the rest.
	ascii := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' || r == '%' {
			return '_'
		}
		return r
	}, f.Name)
	out := mime.FormatMediaType(kind, map[string]string{"filename": ascii})
	if out == "" {
		out = kind
	}
	if ascii != f.Name {
		out += "; filename*=UTF-8''" + escape5987(f.Name)
	}
	return out
}

// escape5987 is the value-chars escaping of RFC 5987.
func escape5987(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$&+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}
