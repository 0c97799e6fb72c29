package objects

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Names of headers that objects are written with.
const (
	metaUpload   = "x-amz-meta-" + models.MetaUpload
	storageClass = "x-amz-storage-class"
	sse          = "x-amz-server-side-encryption"
	sseKeyID     = "x-amz-server-side-encryption-aws-kms-key-id"
	sseKMS       = "aws:kms"
)

// PresignParts signs one PUT for each part: of exactly its size and, where its digest
// is given, of exactly its bytes. Headers are all that a client must send but host and
// content-length. The time is when the URLs truly end, which is before now+expires when
// the credentials end sooner. All is refused, or all is signed.
func (s *Store) PresignParts(ctx context.Context, key, s3UploadID string, parts []models.PartToSign, alg models.Algorithm, expires time.Duration, now time.Time) ([]models.SignedPart, time.Time, error) {
	const op = "PresignUploadPart"
	if key == "" || s3UploadID == "" {
		return nil, time.Time{}, invalid(op, "key or upload id is empty")
	}
	if len(parts) > models.MaxParts {
		return nil, time.Time{}, invalid(op, "more than %d parts", models.MaxParts)
	}
	anySize := 0
	for i := range parts {
		p := &parts[i]
		switch {
		case p.Number < 1 || p.Number > models.MaxParts:
			return nil, time.Time{}, invalid(op, "part number %d is not 1 to %d", p.Number, models.MaxParts)
		case p.Size == models.AnySize && len(p.Digest) == 0:
			anySize++
		case p.Size < 1 || p.Size > models.MaxPartSize:
			return nil, time.Time{}, invalid(op, "part %d: size %d is not 1 to %d", p.Number, p.Size, models.MaxPartSize)
		case len(p.Digest) > 0 && len(p.Digest) != alg.Size():
			return nil, time.Time{}, invalid(op, "part %d: %d bytes are no digest of %q", p.Number, len(p.Digest), string(alg))
		}
	}
	t, err := s.stamp(ctx, op, expires, now)
	if err != nil {
		return nil, time.Time{}, err
	}
	switch anySize {
	case 0:
		return s.signer.signParts(&t, key, s3UploadID, parts, alg), t.until, nil
	case len(parts):
		return s.signAnySize(&t, key, s3UploadID, parts), t.until, nil
	}
	return nil, time.Time{}, invalid(op, "some parts have a size and some have none")
}

// signAnySize signs parts whose length is the client's to choose: content-length is not
// signed, and S3 alone bounds it.
func (s *Store) signAnySize(t *stamp, key, s3UploadID string, parts []models.PartToSign) []models.SignedPart {
	out := make([]models.SignedPart, len(parts))
	for i, p := range parts {
		q := []pair{{"partNumber", strconv.Itoa(p.Number)}, {"uploadId", s3UploadID}, {"x-id", "UploadPart"}}
		out[i] = models.SignedPart{Number: p.Number, Size: models.AnySize, Method: "PUT",
			URL: s.signer.sign(t, request{method: "PUT", key: key, query: q})}
	}
	return out
}

// PresignPut signs the PUT of a whole object, which succeeds only while nothing lies at
// the key. An empty object must come with the digest of no bytes: a content-length of
// zero is not signed, so that nothing else would pin it.
//
// The SDK's presign client leaves the content type of an empty object unsigned; it is
// signed here, so that the object gets the type that was agreed.
func (s *Store) PresignPut(ctx context.Context, spec models.ObjectSpec, size int64, digest []byte, expires time.Duration, now time.Time) (models.SignedPart, time.Time, error) {
	const op = "PresignPutObject"
	refuse := func(e *models.ObjectError) (models.SignedPart, time.Time, error) {
		return models.SignedPart{}, time.Time{}, e
	}
	switch {
	case spec.Key == "":
		return refuse(invalid(op, "the key is empty"))
	case size < 0 || size > models.MaxSinglePut:
		return refuse(invalid(op, "size %d is not 0 to %d", size, int64(models.MaxSinglePut)))
	case size == 0 && len(digest) == 0:
		return refuse(invalid(op, "an empty object is pinned by its digest only, and none is given"))
	case len(digest) > 0 && len(digest) != spec.Algorithm.Size():
		return refuse(invalid(op, "%d bytes are no digest of %q", len(digest), string(spec.Algorithm)))
	}
	t, err := s.stamp(ctx, op, expires, now)
	if err != nil {
		return models.SignedPart{}, time.Time{}, err
	}
	headers := append(objectHeaders(spec, digest), models.Header{Name: "if-none-match", Value: "*"})
	slices.SortFunc(headers, byName)
	out := models.SignedPart{Number: 1, Size: size, Method: "PUT", Headers: headers}
	out.URL = s.signer.sign(&t, request{method: "PUT", key: spec.Key, query: []pair{{"x-id", "PutObject"}}, headers: headers, size: size})
	return out, t.until, nil
}

// objectHeaders are the headers that an object's properties are set with.
func objectHeaders(spec models.ObjectSpec, digest []byte) models.Headers {
	h := make(models.Headers, 0, 8)
	add := func(name, value string) {
		if value != "" {
			h = append(h, models.Header{Name: name, Value: value})
		}
	}
	add("content-type", spec.ContentType)
	add(metaUpload, string(spec.UploadID))
	add(storageClass, spec.StorageClass)
	if spec.SSEKMSKeyID != "" {
		add(sse, sseKMS)
		add(sseKeyID, spec.SSEKMSKeyID)
	}
	if len(digest) > 0 {
		add(spec.Algorithm.Header(), base64.StdEncoding.EncodeToString(digest))
	}
	return h
}

// PresignGet signs the GET of one version; versionID "" is whatever is current then.
// disposition and contentType, where given, are what the answer will say.
func (s *Store) PresignGet(ctx context.Context, key, versionID string, disposition, contentType string, expires time.Duration, now time.Time) (string, time.Time, error) {
	const op = "PresignGetObject"
	if key == "" {
		return "", time.Time{}, invalid(op, "the key is empty")
	}
	t, err := s.stamp(ctx, op, expires, now)
	if err != nil {
		return "", time.Time{}, err
	}
	q := []pair{{"x-id", "GetObject"}}
	for _, p := range []pair{
		{"response-content-disposition", disposition},
		{"response-content-type", contentType},
		{"versionId", versionID},
	} {
		if p.value != "" {
			q = append(q, p)
		}
	}
	return s.signer.sign(&t, request{method: "GET", key: key, query: q}), t.until, nil
}

// stamp has the credentials and fixes time and expiry for one call.
func (s *Store) stamp(ctx context.Context, op string, expires time.Duration, now time.Time) (stamp, error) {
	if now.IsZero() {
		now = s.clock()
	}
	c, err := s.credentials(ctx, op)
	if err != nil {
		return stamp{}, err
	}
	t, err := s.signer.stamp(c, expires, now)
	if errors.Is(err, errCredentialsOver) {
		return stamp{}, &models.ObjectError{Kind: models.ObjectUnavailable, Op: op, Code: "ExpiredToken", Err: err}
	}
	if err != nil {
		return stamp{}, invalid(op, "%w", err)
	}
	return t, nil
}

func (s *Store) credentials(ctx context.Context, op string) (aws.Credentials, error) {
	c, err := s.creds.Retrieve(ctx)
	if err == nil {
		return c, nil
	}
	if cause := ctx.Err(); cause != nil {
		return c, fmt.Errorf("%s: %w", op, cause)
	}
	return c, &models.ObjectError{Kind: models.ObjectUnavailable, Op: op, Code: "none",
		Err: errors.New("no credentials: " + withoutURL(err).Error())}
}
