package objects

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// CreateMultipart begins a multipart upload. Its object will carry the upload's id, by
// which alone a finished object is known to be ours. It is not repeated blindly: a lost
// answer leaves an upload behind, which ListMultiparts finds.
func (s *Store) CreateMultipart(ctx context.Context, spec models.ObjectSpec) (string, error) {
	const op = "CreateMultipartUpload"
	in := &s3.CreateMultipartUploadInput{
		Bucket: &s.bucket, Key: &spec.Key, ExpectedBucketOwner: s.owner,
		ContentType:  optional(spec.ContentType),
		StorageClass: types.StorageClass(spec.StorageClass),
	}
	if spec.UploadID != "" {
		in.Metadata = map[string]string{models.MetaUpload: string(spec.UploadID)}
	}
	if spec.Algorithm != "" { // the type alone is refused by S3
		in.ChecksumAlgorithm = types.ChecksumAlgorithm(strings.ToUpper(string(spec.Algorithm)))
		in.ChecksumType = types.ChecksumType(strings.ToUpper(string(spec.Type)))
	}
	if spec.SSEKMSKeyID != "" {
		in.ServerSideEncryption = types.ServerSideEncryptionAwsKms
		in.SSEKMSKeyId = &spec.SSEKMSKeyID
	}
	out, err := s.client.CreateMultipartUpload(ctx, in, s.notTwice)
	if err != nil {
		return "", classify(ctx, op, err)
	}
	if aws.ToString(out.UploadId) == "" {
		return "", unreadable(op, "no upload id")
	}
	return *out.UploadId, nil
}

// ListParts lists what the store holds of an upload, in the order of the part numbers.
// Checksums are alg's; a store may list none. It ends at the first error.
func (s *Store) ListParts(ctx context.Context, key, s3UploadID string, alg models.Algorithm) iter.Seq2[models.Part, error] {
	const op = "ListParts"
	return func(yield func(models.Part, error) bool) {
		in := &s3.ListPartsInput{Bucket: &s.bucket, Key: &key, UploadId: &s3UploadID, ExpectedBucketOwner: s.owner, MaxParts: s.page}
		for {
			out, err := s.client.ListParts(ctx, in)
			if err != nil {
				yield(models.Part{}, classify(ctx, op, err))
				return
			}
			for i := range out.Parts {
				p := &out.Parts[i]
				if !yield(models.Part{
					Number: int(aws.ToInt32(p.PartNumber)), Size: aws.ToInt64(p.Size), ETag: bare(p.ETag), Checksum: partChecksum(p, alg),
				}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			next := aws.ToString(out.NextPartNumberMarker)
			if next == "" || next == aws.ToString(in.PartNumberMarker) {
				yield(models.Part{}, unreadable(op, "a truncated page with no next one"))
				return
			}
			in.PartNumberMarker = &next
		}
	}
}

// CompleteMultipart makes the object out of the parts, if their sum is spec.Size, their
// checksums make spec.Checksum, and nothing lies at the key. Parts are as ListParts
// gave them, in ascending order.
//
// The object holds what the answer says: version, ETag and checksums. VersionID is "" where it
// says none: in a bucket without versions, and when versitygw is asked the same again.
// UploadID is not known from here. Head, of the current version then, tells both.
//
// ObjectNoUpload, ObjectExists and ObjectUnavailable leave open whether the object was
// made, by this call or one before; only Head settles it. The other kinds mean that it was not.
func (s *Store) CompleteMultipart(ctx context.Context, spec models.CompleteSpec) (models.Object, error) {
	const op = "CompleteMultipartUpload"
	var sum int64
	whole := spec.Checksum
	composite := whole.Type == models.Composite && whole.Algorithm != ""
	parts := make([]types.CompletedPart, len(spec.Parts))
	digests := make([][]byte, 0, len(spec.Parts))
	for i := range spec.Parts {
		p := &spec.Parts[i]
		sum += p.Size
		n := int32(p.Number) // #nosec G115 -- at most 10,000
		parts[i] = types.CompletedPart{PartNumber: &n, ETag: aws.String(`"` + p.ETag + `"`)}
		if p.Checksum == "" || whole.Algorithm == "" {
			continue // with no algorithm declared at the start, S3 refuses parts' checksums
		}
		d, ok := whole.Algorithm.ParseDigest(p.Checksum)
		if !ok {
			return models.Object{}, &models.ObjectError{Kind: models.ObjectBadPart, Op: op, Code: "none", Part: p.Number,
				Err: fmt.Errorf("part %d: its checksum is no %s", p.Number, whole.Algorithm)}
		}
		digests = append(digests, d)
		setPartChecksum(&parts[i], whole.Algorithm, p.Checksum)
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &s.bucket, Key: &spec.Key, UploadId: &spec.S3UploadID, ExpectedBucketOwner: s.owner,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		MpuObjectSize:   &spec.Size,
		IfNoneMatch:     aws.String("*"),
	}
	switch {
	case composite && !whole.IsZero() && len(digests) == len(parts):
		// The value follows from the parts' checksums, which the store checks one by one.
		// To compare here keeps the upload alive, and spares asking what each store makes
		// of a composite value in the header.
		if got := models.CompositeOf(whole.Algorithm, digests); got.Value != whole.Value {
			return models.Object{}, &models.ObjectError{Kind: models.ObjectBadDigest, Op: op, Code: "none",
				Err: errors.New("the parts' checksums make another value than was declared")}
		}
	case !composite && !whole.IsZero():
		// The value without the type is answered BadDigest by S3, though right.
		setWholeChecksum(in, whole)
	}
	var part int
	out, err := s.client.CompleteMultipartUpload(ctx, in, s.notTwice, readPartNumber(&part))
	if err != nil {
		err = classify(ctx, op, err)
		var oe *models.ObjectError
		if errors.As(err, &oe) {
			oe.Part = part
			// S3 calls a wrong object size an InvalidRequest, like much else. What we sent
			// tells which it was.
			if oe.Code == "InvalidRequest" && sum != spec.Size {
				oe.Kind = models.ObjectBadSize
			}
		}
		return models.Object{}, err
	}
	return models.Object{
		Key: spec.Key, VersionID: aws.ToString(out.VersionId), ETag: bare(out.ETag), Size: spec.Size,
		Checksums: checksums(out.ChecksumType, out.ChecksumSHA256, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32),
	}, nil
}

// AbortMultipart throws an upload and its parts away. One that is not there is success.
// A part in flight may still land: abort again until ListParts finds no upload.
func (s *Store) AbortMultipart(ctx context.Context, key, s3UploadID string) error {
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &s.bucket, Key: &key, UploadId: &s3UploadID, ExpectedBucketOwner: s.owner})
	err = classify(ctx, "AbortMultipartUpload", err)
	if k := models.ObjectKind(err); k == models.ObjectNoUpload || k == models.ObjectAbsent {
		return nil
	}
	return err
}

// ListMultiparts lists the open multipart uploads whose keys begin with prefix, by key.
// A prefix is not a key: compare. It ends at the first error.
func (s *Store) ListMultiparts(ctx context.Context, prefix string) iter.Seq2[models.OpenMultipart, error] {
	const op = "ListMultipartUploads"
	return func(yield func(models.OpenMultipart, error) bool) {
		in := &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: optional(prefix), ExpectedBucketOwner: s.owner, MaxUploads: s.page,
			EncodingType: types.EncodingTypeUrl}
		var seen map[string]bool // upload ids of the key that the last page ended in
		for {
			out, err := s.client.ListMultipartUploads(ctx, in)
			if err = classify(ctx, op, err); refusesOwnMarker(err, in) {
				// versitygw gives an upload id marker and then does not take it. By the key
				// marker alone it goes on after the key: the key's other uploads first.
				if err = s.restOfKey(ctx, op, *in.KeyMarker, seen, yield); err == errStopped {
					return
				} else if err == nil {
					in.UploadIdMarker = nil
					continue
				}
			}
			if err != nil {
				yield(models.OpenMultipart{}, err)
				return
			}
			for i := range out.Uploads {
				if !yield(openMultipart(&out.Uploads[i], out.EncodingType), nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			key, id := plainKey(aws.ToString(out.NextKeyMarker), out.EncodingType), aws.ToString(out.NextUploadIdMarker)
			if key == "" || (key == aws.ToString(in.KeyMarker) && id == aws.ToString(in.UploadIdMarker)) {
				yield(models.OpenMultipart{}, unreadable(op, "a truncated page with no next one"))
				return
			}
			in.KeyMarker, in.UploadIdMarker = &key, optional(id)
			seen = map[string]bool{}
			for i := range out.Uploads {
				if u := openMultipart(&out.Uploads[i], out.EncodingType); u.Key == key {
					seen[u.S3UploadID] = true
				}
			}
		}
	}
}

func openMultipart(u *types.MultipartUpload, e types.EncodingType) models.OpenMultipart {
	return models.OpenMultipart{Key: plainKey(aws.ToString(u.Key), e), S3UploadID: aws.ToString(u.UploadId), Initiated: aws.ToTime(u.Initiated)}
}

func refusesOwnMarker(err error, in *s3.ListMultipartUploadsInput) bool {
	var oe *models.ObjectError
	return in.UploadIdMarker != nil && errors.As(err, &oe) && oe.Code == "InvalidArgument"
}

// errStopped says that the caller wants no more.
var errStopped = errors.New("stopped")

// restOfKey lists the uploads of one key that were not seen.
func (s *Store) restOfKey(ctx context.Context, op, key string, seen map[string]bool, yield func(models.OpenMultipart, error) bool) error {
	out, err := s.client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: &key, ExpectedBucketOwner: s.owner, EncodingType: types.EncodingTypeUrl})
	if err != nil {
		return classify(ctx, op, err)
	}
	for i := range out.Uploads {
		if u := openMultipart(&out.Uploads[i], out.EncodingType); u.Key == key && !seen[u.S3UploadID] && !yield(u, nil) {
			return errStopped
		}
	}
	return nil
}

// unreadable is an answer that the store should not have given.
func unreadable(op, what string) *models.ObjectError {
	return &models.ObjectError{Kind: models.ObjectUnavailable, Op: op, Code: "none", Err: errors.New("the store's answer: " + what)}
}

// bare takes the quotes off an ETag.
func bare(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }
