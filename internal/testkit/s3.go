package testkit

import (
	"testing"

	"berth/internal/parts"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// S3Info is a bucket of a real S3 server.
type S3Info struct {
	Endpoint, Region     string
	AccessKey, SecretKey string
	Bucket               string
}

// S3 makes a bucket for the test, with versions and CORS on. It is removed with
// all that is in it when the test is done.
func S3(t testing.TB) S3Info {
	t.Helper()
	s := shared(t)
	info := S3Info{Endpoint: s.S3, Region: parts.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey, Bucket: "t-" + lowerText(t)}
	if err := parts.EnsureBucket(t.Context(), info.Client(), info.Bucket); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(func() {
		if err := parts.RemoveBucket(s.S3Dir, info.Bucket); err != nil {
			t.Errorf("testkit: remove bucket: %v", err)
		}
	})
	return info
}

// Client makes a client with the bucket's credentials, which retries nothing.
func (i S3Info) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &i.Endpoint, Region: i.Region, UsePathStyle: true, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, ""),
	})
}
