package objects

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// What versitygw 1.8.0 does where stores differ, or other than S3. When one of these
// fails after an upgrade, the note at it has become wrong.

// Where no checksum was sent, it attests a CRC64NVME of the whole, as S3 does: for a
// single PUT and for a multipart with no algorithm.
func TestVersitygwAttestsCRC64NVMEByItself(t *testing.T) {
	t.Parallel()
	d := newDesk(t, versitygw(t))
	body := randomBytes(100)
	o := d.put(t, d.spec("k", "", models.MethodSingle), body)
	want := []models.Checksum{{Algorithm: models.CRC64NVME, Type: models.FullObject, Value: models.CRC64NVME.Sum(body)}}
	if !slices.Equal(o.Checksums, want) {
		t.Errorf("attested %v", o.Checksums)
	}
	// With a checksum sent, that one alone.
	o = d.put(t, d.spec("pinned", models.SHA256, models.MethodSingle), body)
	if len(o.Checksums) != 1 || o.Checksums[0].Algorithm != models.SHA256 {
		t.Errorf("attested %v", o.Checksums)
	}
}

// A part of a sha256 upload that comes without its checksum is refused (S3 computes
// it). Parts of the full-object algorithms may come without: it computes them, and
// lists them.
func TestVersitygwWantsPinnedPartsForAComposite(t *testing.T) {
	t.Parallel()
	d := newDesk(t, versitygw(t))
	for alg, want := range map[models.Algorithm]int{models.SHA256: 400, models.CRC64NVME: 200, models.CRC32C: 200} {
		spec := d.spec("loose-"+string(alg), alg, models.MethodMultipart)
		id, err := d.CreateMultipart(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		body := randomBytes(50)
		p := signParts(t, d, spec, id, [][]byte{body}, [][]byte{nil})[0]
		wantStatus(t, send(t, p, body), want)
		if parts := listed(t, d, spec.Key, id, alg); want == 200 && (len(parts) != 1 || parts[0].Checksum != alg.Sum(body)) {
			t.Errorf("%s: listed %v", alg, parts)
		}
		// A checksum header that was not signed does not help: as on S3, it is refused.
		wantStatus(t, send(t, p, body, func(h http.Header) { h.Set(alg.Header(), alg.Sum(body)) }), 403)
	}
}

// A composite upload is not completed without each part's checksum, and a wrong answer
// to a repeated Complete names no version.
func TestVersitygwComplete(t *testing.T) {
	t.Parallel()
	d := newDesk(t, versitygw(t))
	spec := d.spec("k", models.SHA256, models.MethodMultipart)
	id, err := d.CreateMultipart(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	body := randomBytes(50)
	sum := digest(models.SHA256, body)
	wantStatus(t, send(t, signParts(t, d, spec, id, [][]byte{body}, [][]byte{sum})[0], body), 200)
	cs := models.CompleteSpec{Key: spec.Key, S3UploadID: id, Parts: listed(t, d, spec.Key, id, models.SHA256), Size: 50,
		Checksum: models.Checksum{Algorithm: models.SHA256, Type: models.Composite}}
	bare := cs
	bare.Parts = slices.Clone(cs.Parts)
	bare.Parts[0].Checksum = ""
	_, err = d.CompleteMultipart(t.Context(), bare)
	d.wantKind(t, err, models.ObjectInvalid)

	first, err := d.CompleteMultipart(t.Context(), cs)
	if err != nil || first.VersionID == "" {
		t.Fatal(first, err)
	}
	wantChecksum(t, first, models.CompositeOf(models.SHA256, [][]byte{sum}))
	again, err := d.CompleteMultipart(t.Context(), cs)
	if err != nil || again.VersionID != "" || again.ETag != first.ETag {
		t.Errorf("repeated: %+v, %v", again, err)
	}
}

// It lets a delete marker count as an object for if-none-match; S3 does not.
func TestVersitygwMarkerStandsInTheWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t, versitygw(t))
	spec := d.spec("k", "", models.MethodSingle)
	d.put(t, spec, []byte("abc"))
	hide(t, d, spec.Key)
	wantStatus(t, send(t, d.signPut(t, spec, 3, nil), []byte("abc")), 412)
}

// It gives an upload id marker that it then refuses. With this gone, restOfKey in
// multipart.go can go.
func TestVersitygwRefusesItsOwnMarker(t *testing.T) {
	t.Parallel()
	i := testkit.S3(t)
	c := i.Client()
	for range 3 {
		if _, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &i.Bucket, Key: aws.String("k")}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := c.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &i.Bucket, MaxUploads: aws.Int32(2)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &i.Bucket, MaxUploads: aws.Int32(2),
		KeyMarker: page.NextKeyMarker, UploadIdMarker: page.NextUploadIdMarker})
	if err == nil {
		t.Error("it takes its own marker now")
	}
}

func TestLockedIsNotDenied(t *testing.T) {
	t.Parallel()
	i := testkit.S3(t)
	c := i.Client()
	bucket := i.Bucket + "-lock"
	ctx := t.Context()
	if _, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket, ObjectLockEnabledForBucket: aws.Bool(true)}); err != nil {
		t.Fatal(err)
	}
	d := &desk{Store: mustNew(t, Config{Name: "locked", Bucket: bucket, Region: i.Region, Endpoint: i.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, "")})}
	held := d.put(t, d.spec("held", "", models.MethodSingle), []byte("abc"))
	free := d.put(t, d.spec("free", "", models.MethodSingle), []byte("abc"))
	hold := func(ctx context.Context, s types.ObjectLockLegalHoldStatus) error {
		_, err := c.PutObjectLegalHold(ctx, &s3.PutObjectLegalHoldInput{Bucket: &bucket, Key: &held.Key, VersionId: &held.VersionID, LegalHold: &types.ObjectLockLegalHold{Status: s}})
		return err
	}
	if err := hold(ctx, types.ObjectLockLegalHoldStatusOn); err != nil {
		t.Fatal(err)
	}
	refs := []models.VersionRef{{Key: held.Key, VersionID: held.VersionID}, {Key: free.Key, VersionID: free.VersionID}}
	results, err := d.DeleteVersions(ctx, refs)
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Err == nil || results[0].Err.Kind != models.ObjectLocked {
		t.Errorf("held: %v", results[0].Err)
	}
	if _, err := d.Head(ctx, held.Key, held.VersionID); err != nil {
		t.Errorf("the held version is gone: %v", err)
	}
	if err := hold(ctx, types.ObjectLockLegalHoldStatusOff); err != nil {
		t.Fatal(err)
	}
	results, err = d.DeleteVersions(ctx, refs)
	if err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Errorf("released: %v, %v", results, err)
	}
	if _, err := c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket}); err != nil {
		t.Error(err)
	}
}

func TestWrongCredentialsAndBuckets(t *testing.T) {
	t.Parallel()
	i := testkit.S3(t)
	ctx := t.Context()
	cfg := Config{Name: "x", Bucket: i.Bucket, Region: i.Region, Endpoint: i.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, "wrong", "")}
	d := &desk{Store: mustNew(t, cfg)}
	_, err := d.Head(ctx, "k", "")
	d.wantKind(t, err, models.ObjectDenied)
	_, err = d.CreateMultipart(ctx, models.ObjectSpec{Key: "k"})
	d.wantKind(t, err, models.ObjectDenied)
	_, err = d.DeleteVersions(ctx, []models.VersionRef{{Key: "k", VersionID: "v"}})
	d.wantKind(t, err, models.ObjectDenied)
	p := d.signPut(t, d.spec("k", "", models.MethodSingle), 3, nil)
	wantStatus(t, send(t, p, []byte("abc")), 403)

	cfg.Credentials = credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, "")
	cfg.Bucket = "there-is-no-such-bucket"
	d = &desk{Store: mustNew(t, cfg)}
	_, err = d.CreateMultipart(ctx, models.ObjectSpec{Key: "k"})
	d.wantKind(t, err, models.ObjectInvalid)
	for _, err := range d.ListVersions(ctx, "") {
		d.wantKind(t, err, models.ObjectInvalid)
	}
	// A missing bucket must not read as an upload that is gone: the reaper would be content.
	if err := d.AbortMultipart(ctx, "k", "00000000-0000-0000-0000-000000000000"); models.ObjectKind(err) != models.ObjectInvalid {
		t.Errorf("abort: %v", err)
	}
}

func TestCallerGoesAway(t *testing.T) {
	t.Parallel()
	d := newDesk(t, versitygw(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, head := d.Head(ctx, "k", "")
	_, create := d.CreateMultipart(ctx, models.ObjectSpec{Key: "k"})
	_, complete := d.CompleteMultipart(ctx, models.CompleteSpec{Key: "k", S3UploadID: "u", Parts: []models.Part{{Number: 1, Size: 1, ETag: "e"}}, Size: 1})
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	_, tooLate := d.Head(late, "k", "")
	for name, err := range map[string]error{"head": head, "create": create, "complete": complete, "abort": d.AbortMultipart(ctx, "k", "u")} {
		if !errors.Is(err, context.Canceled) || models.ObjectKind(err) != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !errors.Is(tooLate, context.DeadlineExceeded) || models.ObjectKind(tooLate) != "" {
		t.Errorf("deadline: %v", tooLate)
	}
}

// It begins a page of versions with the last of the page before, where that is its key's
// only one. We hear it once.
func TestVersitygwListsTheLastOfAPageAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t, versitygw(t))
	for n := range 5 {
		write(t, d, d.prefix+"once-"+strconv.Itoa(n), []byte("x"))
	}
	two := int32(2)
	in := &s3.ListObjectVersionsInput{Bucket: &d.bucket, Prefix: aws.String(d.prefix + "once-"), MaxKeys: &two}
	raw := 0
	for {
		out, err := d.client.ListObjectVersions(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		raw += len(out.Versions)
		if !aws.ToBool(out.IsTruncated) {
			break
		}
		in.KeyMarker, in.VersionIdMarker = out.NextKeyMarker, out.NextVersionIdMarker
	}
	if raw <= 5 {
		t.Errorf("the store lists %d versions: the note about it is wrong", raw)
	}
	small := *d.Store
	small.page = &two
	var keys []string
	for v, err := range small.ListVersions(t.Context(), d.prefix+"once-") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, v.Key)
	}
	if len(keys) != 5 || !slices.IsSorted(keys) {
		t.Errorf("heard %v", keys)
	}
}
