package testkit

import (
	"testing"

	"berth/internal/parts"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// S3Info is a bucket of a real S3 server.
type S3Info struct {
	Endpoint, Region     string
	AccessKey, SecretKey string
	Bucket               string
}

// Versions is what a bucket does about versions.
type Versions int

// The kinds of bucket. One that is suspended had versions before; one that is locked can
// keep a version from being deleted.
const (
	Versioned Versions = iota
	Suspended
	Unversioned
	Locked
)

// S3 makes a bucket for the test, with versions and CORS on. It is removed with
// all that is in it when the test is done.
func S3(t testing.TB) S3Info {
	t.Helper()
	return Bucket(t, Versioned)
}

// Bucket is S3 for a bucket of any kind.
func Bucket(t testing.TB, kind Versions) S3Info {
	t.Helper()
	s := shared(t)
	info := S3Info{Endpoint: s.S3, Region: parts.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey, Bucket: "t-" + lowerText(t)}
	client := info.Client()
	if kind == Unversioned || kind == Locked {
		if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &info.Bucket,
			ObjectLockEnabledForBucket: aws.Bool(kind == Locked)}); err != nil {
			t.Fatalf("testkit: %v", err)
		}
	} else if err := parts.EnsureBucket(t.Context(), client, info.Bucket); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	if kind == Suspended {
		info.Suspend(t)
	}
	t.Cleanup(func() {
		if err := parts.RemoveBucket(s.S3Dir, info.Bucket); err != nil {
			t.Errorf("testkit: remove bucket: %v", err)
		}
	})
	return info
}

// Suspend ends the making of versions: what is written from here on is the null version.
func (i S3Info) Suspend(t testing.TB) {
	t.Helper()
	if _, err := i.Client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &i.Bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusSuspended}}); err != nil {
		t.Fatalf("testkit: suspend versions: %v", err)
	}
}

// Client makes a client with the bucket's credentials, which retries nothing.
func (i S3Info) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &i.Endpoint, Region: i.Region, UsePathStyle: true, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, ""),
	})
}
