package parts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Region is the one that both the S3 and the SQS server answer in.
const Region = "us-east-1"

// S3Options says what kind of S3 server to run.
type S3Options struct {
	Dir     string // objects, versions and keys; made on the first start
	Port    int    // 0: a free one
	Log     string // file; empty: only the tail is kept, for errors
	Webhook string // URL that takes the notifications; it must answer already
}

// S3 is a running versitygw on a folder.
type S3 struct {
	Port                 int
	Endpoint             string
	AccessKey, SecretKey string

	dir   string
	child *Child
}

// StartS3 starts versitygw on loopback and waits until it answers.
func StartS3(ctx context.Context, o S3Options) (*S3, error) {
	path, err := versitygw()
	if err != nil {
		return nil, err
	}
	s := &S3{dir: o.Dir}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil { // the objects are nobody else's to read
		return nil, fmt.Errorf("versitygw: %w", err)
	}
	for _, d := range []string{s.objects(), s.versions(), s.attributes()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("versitygw: %w", err)
		}
	}
	if s.AccessKey, err = Secret(filepath.Join(o.Dir, "access-key"), 20); err != nil {
		return nil, fmt.Errorf("versitygw: %w", err)
	}
	if s.SecretKey, err = Secret(filepath.Join(o.Dir, "secret-key"), 40); err != nil {
		return nil, fmt.Errorf("versitygw: %w", err)
	}
	err = onPort("versitygw", o.Port, func(port int) error {
		s.Port, s.Endpoint = port, "http://"+Addr(port)
		return s.start(ctx, path, o)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *S3) objects() string    { return filepath.Join(s.dir, "objects") }
func (s *S3) versions() string   { return filepath.Join(s.dir, "versions") }
func (s *S3) attributes() string { return filepath.Join(s.dir, "attributes") }

// versitygw finds the program: BERTH_VERSITYGW, then .dev/bin of the project we
// are in, then PATH.
func versitygw() (string, error) {
	if path := os.Getenv("BERTH_VERSITYGW"); path != "" {
		return path, nil
	}
	if root, err := ProjectRoot(); err == nil {
		path := filepath.Join(root, ".dev", "bin", "versitygw")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("versitygw")
	if err != nil {
		return "", errors.New("versitygw: neither in .dev/bin nor on PATH; run make setup")
	}
	return path, nil
}

// ProjectRoot is the folder with go.mod that we are in or under.
func ProjectRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("project root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("project root: no go.mod here or above")
		}
		dir = up
	}
}

func (s *S3) start(ctx context.Context, path string, o S3Options) error {
	args := []string{"--port", Addr(s.Port), "--region", Region, "--quiet", "--keep-alive"}
	if o.Webhook != "" {
		args = append(args, "--event-webhook-url", o.Webhook)
	}
	args = append(args, "posix", "--versioning-dir", s.versions())
	if !storesAttributes(s.objects()) {
		args = append(args, "--sidecar", s.attributes())
	}
	child, err := Start(Command{
		Part: "versitygw", Path: path, Args: append(args, s.objects()), Dir: o.Dir, Log: o.Log,
		// The keys go by the environment: everybody can read a command line.
		Env:  append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey),
		Stop: syscall.SIGTERM, DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	client := s.Client()
	err = child.Await(ctx, func(ctx context.Context) error {
		_, err := client.ListBuckets(ctx, &s3.ListBucketsInput{})
		return err
	})
	if err != nil {
		return errors.Join(err, child.Stop(5*time.Second))
	}
	s.child = child
	return nil
}

// Client makes a client with the root keys, which retries nothing.
func (s *S3) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint), Region: Region, UsePathStyle: true, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, ""),
	})
}

// EnsureBucket makes the bucket unless it is there, and sets what Berth needs
// of it: versions on, and CORS so that a browser can send parts and read what
// S3 attests.
func (s *S3) EnsureBucket(ctx context.Context, name string) error {
	return EnsureBucket(ctx, s.Client(), name)
}

// EnsureBucket does the same through any client.
func EnsureBucket(ctx context.Context, client *s3.Client, name string) error {
	_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name})
	var ours *types.BucketAlreadyOwnedByYou
	if err != nil && !errors.As(err, &ours) {
		return fmt.Errorf("bucket %s: create: %w", name, err)
	}
	_, err = client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket:                  &name,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		return fmt.Errorf("bucket %s: versioning: %w", name, err)
	}
	_, err = client.PutBucketCors(ctx, &s3.PutBucketCorsInput{
		Bucket: &name,
		CORSConfiguration: &types.CORSConfiguration{CORSRules: []types.CORSRule{{
			AllowedOrigins: []string{"*"},
			AllowedMethods: []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodHead},
			AllowedHeaders: []string{"content-type", "content-md5", "x-amz-*", "if-none-match"},
			// By name: S3 takes a wildcard here, but not every store does.
			ExposeHeaders: []string{
				"ETag", "x-amz-version-id", "x-amz-checksum-type", "x-amz-checksum-crc32", "x-amz-checksum-crc32c",
				"x-amz-checksum-crc64nvme", "x-amz-checksum-sha1", "x-amz-checksum-sha256",
			},
			MaxAgeSeconds: aws.Int32(3600),
		}}},
	})
	if err != nil {
		return fmt.Errorf("bucket %s: CORS: %w", name, err)
	}
	return nil
}

// RemoveBucket removes the bucket and all in it, from below: it is for tests,
// where listing and deleting would take longer than the test.
func RemoveBucket(dir, name string) error {
	s := &S3{dir: dir}
	return errors.Join(
		os.RemoveAll(filepath.Join(s.objects(), name)),
		os.RemoveAll(filepath.Join(s.versions(), name)),
		os.RemoveAll(filepath.Join(s.attributes(), name)),
	)
}

// Child is the server's process.
func (s *S3) Child() *Child { return s.child }

// Stop ends the server in an orderly way.
func (s *S3) Stop() error {
	if s == nil {
		return nil
	}
	return s.child.Stop(10 * time.Second)
}
