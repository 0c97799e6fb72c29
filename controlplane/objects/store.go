package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/models"
	"berth/tracing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Config says which bucket a Store is and how it is reached.
type Config struct {
	Name           models.StoreName
	Bucket, Region string
	Endpoint       string // empty: AWS's own for the region
	PublicEndpoint string // what clients reach, where it differs; presigned URLs carry it
	PathStyle      bool
	// ChecksumWhenRequired turns off the trailing checksums that the SDK sends by
	// itself, which some stores refuse.
	ChecksumWhenRequired bool
	Credentials          aws.CredentialsProvider
	HTTPClient           *http.Client     // nil: one with its own connection pool
	Silence              time.Duration    // longest within a call, 0: a minute; not of an HTTPClient that is given
	Clock                func() time.Time // nil: time.Now; for callers that sign at the zero time
	ExpectedBucketOwner  string           // account id; empty: not checked
	Trace                *tracing.Tracer  // nil: off
}

// attempts bounds the calls made for one operation, the first included.
const attempts = 3

// Store is one bucket on one endpoint. It is safe for concurrent use.
type Store struct {
	name   models.StoreName
	bucket string
	owner  *string
	client *s3.Client
	once   aws.Retryer // for calls that may not be repeated blindly
	creds  aws.CredentialsProvider
	clock  func() time.Time
	signer *signer
	page   *int32 // entries of one page of a listing
}

// pageSize is the most that S3 lists at once.
const pageSize = 1000

// New makes a Store. It makes no call: an unreachable store is found by its first use.
func New(cfg Config) (*Store, error) {
	fail := func(what string) (*Store, error) {
		return nil, fmt.Errorf("objects: store %q: %s", cfg.Name, what)
	}
	switch {
	case cfg.Bucket == "":
		return fail("has no bucket")
	case strings.HasPrefix(cfg.Bucket, "arn:"), strings.HasSuffix(cfg.Bucket, "--x-s3"):
		return fail("access points and directory buckets are signed otherwise and not supported")
	case cfg.Region == "":
		return fail("has no region")
	case cfg.Credentials == nil:
		return fail("has no credentials")
	}
	for _, e := range []string{cfg.Endpoint, cfg.PublicEndpoint} {
		if err := checkEndpoint(e); err != nil {
			return fail(err.Error())
		}
	}
	creds := cfg.Credentials
	if _, cached := creds.(*aws.CredentialsCache); !cached {
		creds = aws.NewCredentialsCache(creds)
	}
	clock := cfg.Clock
	if clock == nil {
		clock = time.Now
	}
	httpClient := cfg.HTTPClient
	if httpClient == nil {
		httpClient = newHTTPClient(cmp.Or(cfg.Silence, silence))
	}
	public := cfg.PublicEndpoint
	if public == "" {
		public = cfg.Endpoint
	}
	sig, err := newSigner(cfg.Bucket, cfg.Region, public, cfg.PathStyle, cfg.ExpectedBucketOwner)
	if err != nil {
		return fail(err.Error())
	}
	opts := s3.Options{
		Region:       cfg.Region,
		UsePathStyle: cfg.PathStyle,
		Credentials:  creds,
		HTTPClient:   httpClient,
		Retryer:      retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = attempts }),
	}
	if cfg.Endpoint != "" {
		opts.BaseEndpoint = aws.String(cfg.Endpoint)
	}
	if cfg.Trace.On() {
		opts.APIOptions = append(opts.APIOptions, traced(cfg.Trace, cfg.Name, cfg.Bucket))
	}
	if cfg.ChecksumWhenRequired {
		opts.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		opts.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}
	return &Store{
		name: cfg.Name, bucket: cfg.Bucket, owner: optional(cfg.ExpectedBucketOwner),
		client: s3.New(opts), once: newOnceRetryer(),
		creds: creds, clock: clock, signer: sig, page: aws.Int32(pageSize),
	}, nil
}

// Name is the store's configured name.
func (s *Store) Name() models.StoreName { return s.name }

// Origin is the web origin of presigned URLs: what a page must be allowed to send to.
func (s *Store) Origin() string { return s.signer.origin }

// Bucket is the bucket's name.
func (s *Store) Bucket() string { return s.bucket }

// CredentialLife tells until when the present credentials live; false: they have no
// end. Credentials that cannot be had end now.
func (s *Store) CredentialLife(ctx context.Context, now time.Time) (time.Time, bool) {
	c, err := s.creds.Retrieve(ctx)
	if err != nil {
		return now, true
	}
	return c.Expires, c.CanExpire
}

func checkEndpoint(e string) error {
	if e == "" {
		return nil
	}
	u, err := url.Parse(e)
	if err != nil {
		return errors.New("the endpoint is not a URL")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the endpoint must be http(s)://host[:port][/path]")
	}
	return nil
}

// newHTTPClient bounds every wait that is not the caller's: a store that takes the
// connection and goes silent, wherever in a call, costs a minute, not a worker. There is
// no limit on the whole call: S3 may work minutes on a Complete, with the header sent.
func newHTTPClient(silence time.Duration) *http.Client {
	return &http.Client{
		Transport: attentive{most: silence, next: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ExpectContinueTimeout: time.Second,
			MaxIdleConns:          256,
			MaxIdleConnsPerHost:   128,
			IdleConnTimeout:       90 * time.Second,
			ForceAttemptHTTP2:     true,
		}},
		// A redirect would be answered with a signature for another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// newOnceRetryer repeats only what certainly had no effect: a connection that was
// never made, and a store that said it is too busy. A lost answer to CreateMultipart or
// Complete is ambiguous, and only the caller can settle it.
func newOnceRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = attempts
		o.Retryables = []retry.IsErrorRetryable{
			retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
				var op *net.OpError
				if errors.As(err, &op) && op.Op == "dial" {
					return aws.TrueTernary
				}
				return aws.UnknownTernary
			}),
			retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes},
		}
	})
}

func (s *Store) notTwice(o *s3.Options) { o.Retryer = s.once }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
