package objects

import (
	"context"
	"fmt"
	"io"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// maxPeek bounds what Peek reads, in bytes: it is for looking at a file's beginning, not
// for reading files.
const maxPeek = 64 << 10

// Peek reads the first n bytes of one version by a ranged GET; fewer where it has fewer.
// An empty object has no range to ask for: ask for none.
func (s *Store) Peek(ctx context.Context, key, versionID string, n int64) ([]byte, error) {
	const op = "GetObject"
	if key == "" || versionID == "" || n < 1 || n > maxPeek {
		return nil, invalid(op, "a key, a version and 1 to %d bytes are needed", maxPeek)
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key, VersionId: &versionID,
		Range: aws.String(fmt.Sprintf("bytes=0-%d", n-1)), ExpectedBucketOwner: s.owner})
	if err != nil {
		return nil, classify(ctx, op, err)
	}
	defer out.Body.Close() //nolint:errcheck // read, or given up
	b, err := io.ReadAll(io.LimitReader(out.Body, n))
	if err != nil {
		return nil, &models.ObjectError{Kind: models.ObjectUnavailable, Op: op, Code: "none", Err: withoutURL(err)}
	}
	return b, nil
}
