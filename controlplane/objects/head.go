package objects

import (
	"cmp"
	"context"
	"strings"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Head asks what the store attests of one version; versionID "" is the current one. A
// delete marker is ObjectAbsent.
func (s *Store) Head(ctx context.Context, key, versionID string) (models.Object, error) {
	o, err := s.head(ctx, key, versionID)
	if versionID != models.NullVersion || models.ObjectKind(err) != models.ObjectAbsent {
		return o, err
	}
	// versitygw does not know a current null version by its id. It is the current one, or
	// there is none.
	if o, cerr := s.head(ctx, key, ""); models.ObjectKind(cerr) != models.ObjectAbsent && (cerr != nil || o.VersionID == models.NullVersion) {
		return o, cerr
	}
	return models.Object{}, err
}

func (s *Store) head(ctx context.Context, key, versionID string) (models.Object, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &s.bucket, Key: &key, VersionId: optional(versionID), ExpectedBucketOwner: s.owner,
		ChecksumMode: types.ChecksumModeEnabled, // without it no checksum is answered
	})
	if err != nil {
		return models.Object{}, classify(ctx, opHead, err)
	}
	o := models.Object{
		Key: key, VersionID: cmp.Or(aws.ToString(out.VersionId), models.NullVersion), ETag: bare(out.ETag),
		Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified),
		Checksums: checksums(out.ChecksumType, out.ChecksumSHA256, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32),
	}
	for name, v := range out.Metadata { // names come in whatever case the store keeps
		if strings.EqualFold(name, models.MetaUpload) {
			o.UploadID = models.UploadID(v)
		}
	}
	return o, nil
}
