package objects

import (
	"cmp"
	"context"
	"iter"
	"net/url"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// deleteBatch is the most that one DeleteObjects takes.
const deleteBatch = 1000

// ListVersions lists the versions and delete markers of all keys that begin with
// prefix: by key and, of one key, the newest first. On one page the SDK gives markers
// apart from versions; they are put back in order here. What a store lists twice in a row,
// as versitygw 1.8.0 does with the last of a page, comes once. A prefix is not a key:
// compare. It ends at the first error.
func (s *Store) ListVersions(ctx context.Context, prefix string) iter.Seq2[models.ObjectVersion, error] {
	const op = "ListObjectVersions"
	return func(yield func(models.ObjectVersion, error) bool) {
		in := &s3.ListObjectVersionsInput{Bucket: &s.bucket, Prefix: optional(prefix), ExpectedBucketOwner: s.owner, MaxKeys: s.page,
			EncodingType: types.EncodingTypeUrl}
		var last models.VersionRef
		for {
			out, err := s.client.ListObjectVersions(ctx, in)
			if err != nil {
				yield(models.ObjectVersion{}, classify(ctx, op, err))
				return
			}
			for v := range merged(out.Versions, out.DeleteMarkers) {
				v.Key = plainKey(v.Key, out.EncodingType)
				ref := models.VersionRef{Key: v.Key, VersionID: v.VersionID}
				if ref == last {
					continue
				}
				last = ref
				if !yield(v, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			key, id := plainKey(aws.ToString(out.NextKeyMarker), out.EncodingType), aws.ToString(out.NextVersionIdMarker)
			if key == "" || (key == aws.ToString(in.KeyMarker) && id == aws.ToString(in.VersionIdMarker)) {
				yield(models.ObjectVersion{}, unreadable(op, "a truncated page with no next one"))
				return
			}
			in.KeyMarker, in.VersionIdMarker = &key, optional(id)
		}
	}
}

// plainKey undoes the encoding of a listing. It is asked for because XML cannot hold
// every key that others may write; a store that does not know it answers without.
func plainKey(key string, e types.EncodingType) string {
	if e != types.EncodingTypeUrl {
		return key
	}
	plain, err := url.QueryUnescape(key)
	if err != nil {
		return key
	}
	return plain
}

// merged gives a page's two lists as one: by key, then the latest, then by time. Each
// list is in the store's order already.
func merged(versions []types.ObjectVersion, markers []types.DeleteMarkerEntry) iter.Seq[models.ObjectVersion] {
	return func(yield func(models.ObjectVersion) bool) {
		v, m := 0, 0
		for v < len(versions) || m < len(markers) {
			if m == len(markers) || (v < len(versions) && before(versionOf(&versions[v]), markerOf(&markers[m]))) {
				if !yield(versionOf(&versions[v])) {
					return
				}
				v++
				continue
			}
			if !yield(markerOf(&markers[m])) {
				return
			}
			m++
		}
	}
}

func before(a, b models.ObjectVersion) bool {
	switch {
	case a.Key != b.Key:
		return a.Key < b.Key
	case a.Latest != b.Latest:
		return a.Latest
	}
	return !a.Modified.Before(b.Modified)
}

func versionOf(v *types.ObjectVersion) models.ObjectVersion {
	return models.ObjectVersion{
		Key: aws.ToString(v.Key), VersionID: cmp.Or(aws.ToString(v.VersionId), models.NullVersion), Latest: aws.ToBool(v.IsLatest),
		Size: aws.ToInt64(v.Size), ETag: bare(v.ETag), Modified: aws.ToTime(v.LastModified),
	}
}

func markerOf(m *types.DeleteMarkerEntry) models.ObjectVersion {
	return models.ObjectVersion{
		Key: aws.ToString(m.Key), VersionID: cmp.Or(aws.ToString(m.VersionId), models.NullVersion), Latest: aws.ToBool(m.IsLatest),
		Marker: true, Modified: aws.ToTime(m.LastModified),
	}
}

// DeleteVersions deletes exactly the versions named. Results come in the order of refs;
// one that is not there is success. A ref without a key or a version id refuses the
// whole call before anything is deleted. On an error of the call, the results are those
// of the batches that were answered.
func (s *Store) DeleteVersions(ctx context.Context, refs []models.VersionRef) ([]models.DeleteResult, error) {
	const op = "DeleteObjects"
	for i, r := range refs {
		if r.Key == "" || r.VersionID == "" {
			return nil, invalid(op, "ref %d has no key or no version id: it would only hide the object", i)
		}
	}
	results := make([]models.DeleteResult, 0, len(refs))
	for len(refs) > 0 {
		batch := refs[:min(len(refs), deleteBatch)]
		refs = refs[len(batch):]
		got, err := s.deleteBatch(ctx, op, batch)
		if err != nil {
			return results, err
		}
		results = append(results, got...)
	}
	return results, nil
}

func (s *Store) deleteBatch(ctx context.Context, op string, refs []models.VersionRef) ([]models.DeleteResult, error) {
	ids := make([]types.ObjectIdentifier, len(refs))
	for i := range refs {
		ids[i] = types.ObjectIdentifier{Key: &refs[i].Key, VersionId: &refs[i].VersionID}
	}
	// Not quiet: a store that says nothing of a version has not said that it is gone.
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &s.bucket, ExpectedBucketOwner: s.owner, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(false)}})
	if err != nil {
		return nil, classify(ctx, op, err)
	}
	said := make(map[models.VersionRef]*models.ObjectError, len(refs))
	ref := func(key, version *string) models.VersionRef {
		return models.VersionRef{Key: aws.ToString(key), VersionID: cmp.Or(aws.ToString(version), models.NullVersion)}
	}
	for i := range out.Deleted {
		said[ref(out.Deleted[i].Key, out.Deleted[i].VersionId)] = nil
	}
	for i := range out.Errors {
		e := &out.Errors[i]
		oe := answer(op, aws.ToString(e.Code), aws.ToString(e.Message), 0)
		if oe.Kind == models.ObjectAbsent {
			oe = nil
		}
		said[ref(e.Key, e.VersionId)] = oe
	}
	results := make([]models.DeleteResult, len(refs))
	for i, r := range refs {
		oe, known := said[r]
		if !known {
			oe = unreadable(op, "nothing said of the version")
		}
		results[i] = models.DeleteResult{Key: r.Key, VersionID: r.VersionID, Err: oe}
	}
	return results, nil
}
