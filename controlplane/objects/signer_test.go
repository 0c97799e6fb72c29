package objects

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"pgregory.net/rapid"
)

// sdkAt is the SDK's presign client with its clock held: everything but the time is
// the SDK's own.
type sdkAt struct {
	v4  *v4.Signer
	now time.Time
}

func (a sdkAt) PresignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, hash, service, region string, _ time.Time, opts ...func(*v4.SignerOptions)) (string, http.Header, error) {
	return a.v4.PresignHTTP(ctx, c, r, hash, service, region, a.now, opts...)
}

func sdkPresigner(cfg Config, now time.Time, expires time.Duration) *s3.PresignClient {
	o := s3.Options{Region: cfg.Region, UsePathStyle: cfg.PathStyle, Credentials: cfg.Credentials}
	e := cfg.PublicEndpoint
	if e == "" {
		e = cfg.Endpoint
	}
	if e != "" {
		o.BaseEndpoint = &e
	}
	return s3.NewPresignClient(s3.New(o), func(o *s3.PresignOptions) {
		o.Presigner = sdkAt{v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), now}
		o.Expires = expires
	})
}

var (
	keys = rapid.OneOf(
		rapid.SampledFrom([]string{
			"default/0123456789abcdef0123456789abcdef.pdf", "a b", "a+b", "100%", "%2F", "~tilde-._", "ü/日本/🙂.txt",
			"q?x=1&y=2#z", "semi;colon:at@eq=comma,", "quote'\"<>`{}|\\^[]", "/leading", "double//slash/", ".", "..", "a/../b", "tab\there", " ", "*!()$",
		}),
		rapid.StringN(1, 40, 200),
	)
	values = rapid.OneOf(
		rapid.SampledFrom([]string{"", "text/plain", "text/plain; charset=utf-8", "a  b   c", " padded ", "attachment; filename*=UTF-8''%C3%BC%20x.pdf", "a+b/c~d"}),
		rapid.StringMatching(`[ -~]{0,60}`),
	)
	configs = rapid.Custom(func(t *rapid.T) Config {
		token := rapid.SampledFrom([]string{"", "FwoGZXIvYXdzE+/=", strings.Repeat("t0k/+=", 150)}).Draw(t, "token")
		cfg := Config{
			Name:           "s",
			Bucket:         rapid.SampledFrom([]string{"bucket", "with.dots.in-it", "b2-3"}).Draw(t, "bucket"),
			Region:         rapid.SampledFrom([]string{"us-east-1", "eu-central-1", "cn-north-1", "auto", "us-gov-west-1"}).Draw(t, "region"),
			Endpoint:       rapid.SampledFrom([]string{"", "http://127.0.0.1:7070", "https://s3.example.com", "https://s3.example.com:443", "http://s3.example.com:80", "https://s3.example.com:9000", "http://[::1]:7070", "https://ref.example.co/storage/v1/s3", "https://ref.example.co/odd path/"}).Draw(t, "endpoint"),
			PublicEndpoint: rapid.SampledFrom([]string{"", "", "https://files.example.org", "http://localhost:8080"}).Draw(t, "public"),
			PathStyle:      rapid.Bool().Draw(t, "path style"),
			Credentials:    credentials.NewStaticCredentialsProvider("AKIA+odd/"+rapid.StringMatching(`[A-Z0-9]{4}`).Draw(t, "ak"), "secret", token),

			ExpectedBucketOwner: rapid.SampledFrom([]string{"", "111122223333"}).Draw(t, "owner"),
		}
		if strings.Contains(cfg.Endpoint, "[") { // an address of six has no virtual hosts, for the SDK neither
			cfg.PathStyle = true
		}
		return cfg
	})
	times = rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(1_600_000_000, 2_000_000_000).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
	})
	lives = rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(int64(time.Second), int64(maxExpiry*time.Second)).Draw(t, "life"))
	})
	algorithms = rapid.SampledFrom(models.Algorithms)
)

// same fails unless URL and headers are those that the SDK makes.
func same(t *rapid.T, url string, headers models.Headers, want *v4.PresignedHTTPRequest) {
	t.Helper()
	if url != want.URL {
		t.Fatalf("URL\n got %s\nwant %s", url, want.URL)
	}
	n := 0
	for name, v := range want.SignedHeader {
		if name == "Host" || name == "Content-Length" {
			continue
		}
		n++
		if got := headers.Get(strings.ToLower(name)); got != v[0] {
			t.Fatalf("header %s: got %q, want %q", name, got, v[0])
		}
	}
	if !slices.IsSortedFunc(headers, byName) {
		t.Fatalf("headers not ascending: %v", headers)
	}
	if n != len(headers) {
		t.Fatalf("headers %v, the SDK signs %v", headers, want.SignedHeader)
	}
}

func TestPartURLsAreTheSDKs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg, now, life, key := configs.Draw(t, "config"), times.Draw(t, "now"), lives.Draw(t, "life"), keys.Draw(t, "key")
		uploadID, alg := keys.Draw(t, "upload id"), algorithms.Draw(t, "alg")
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) models.PartToSign {
			p := models.PartToSign{Number: rapid.IntRange(1, models.MaxParts).Draw(t, "n"), Size: rapid.Int64Range(1, models.MaxPartSize).Draw(t, "size")}
			if rapid.Bool().Draw(t, "pinned") {
				p.Digest = rapid.SliceOfN(rapid.Byte(), alg.Size(), alg.Size()).Draw(t, "digest")
			}
			return p
		}), 1, 5).Draw(t, "parts")
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, until, err := s.PresignParts(context.Background(), key, uploadID, parts, alg, life, now)
		if err != nil {
			t.Fatal(err)
		}
		if want := now.Truncate(time.Second).Add(life.Truncate(time.Second)); !until.Equal(want) {
			t.Fatalf("until %v, want %v", until, want)
		}
		sdk := sdkPresigner(cfg, now, life)
		for i, p := range parts {
			in := &s3.UploadPartInput{Bucket: &cfg.Bucket, Key: &key, UploadId: &uploadID, PartNumber: aws.Int32(int32(p.Number)),
				ContentLength: &p.Size, ExpectedBucketOwner: optional(cfg.ExpectedBucketOwner)}
			if p.Digest != nil {
				v := aws.String(base64.StdEncoding.EncodeToString(p.Digest))
				switch alg {
				case models.SHA256:
					in.ChecksumSHA256 = v
				case models.CRC64NVME:
					in.ChecksumCRC64NVME = v
				case models.CRC32C:
					in.ChecksumCRC32C = v
				}
			}
			want, err := sdk.PresignUploadPart(context.Background(), in)
			if err != nil {
				t.Fatal(err)
			}
			g := got[i]
			same(t, g.URL, g.Headers, want)
			if g.Number != p.Number || g.Size != p.Size || g.Method != want.Method {
				t.Fatalf("part %+v of %+v", g, p)
			}
		}
	})
}

func TestPutURLsAreTheSDKs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg, now, life := configs.Draw(t, "config"), times.Draw(t, "now"), lives.Draw(t, "life")
		alg := algorithms.Draw(t, "alg")
		spec := models.ObjectSpec{
			Key: keys.Draw(t, "key"), UploadID: models.UploadID(values.Draw(t, "upload")), ContentType: values.Draw(t, "type"), Algorithm: alg,
			StorageClass: rapid.SampledFrom([]string{"", "STANDARD_IA"}).Draw(t, "class"),
			SSEKMSKeyID:  rapid.SampledFrom([]string{"", "arn:aws:kms:eu-west-1:111122223333:key/a b"}).Draw(t, "kms"),
		}
		size := rapid.Int64Range(1, models.MaxSinglePut).Draw(t, "size")
		in := &s3.PutObjectInput{Bucket: &cfg.Bucket, Key: &spec.Key, ContentLength: &size, IfNoneMatch: aws.String("*"),
			ContentType: optional(spec.ContentType), StorageClass: types.StorageClass(spec.StorageClass),
			SSEKMSKeyId: optional(spec.SSEKMSKeyID), ExpectedBucketOwner: optional(cfg.ExpectedBucketOwner)}
		if spec.UploadID != "" {
			in.Metadata = map[string]string{models.MetaUpload: string(spec.UploadID)}
		}
		if spec.SSEKMSKeyID != "" {
			in.ServerSideEncryption = types.ServerSideEncryptionAwsKms
		}
		var digest []byte
		if rapid.Bool().Draw(t, "pinned") {
			digest = rapid.SliceOfN(rapid.Byte(), alg.Size(), alg.Size()).Draw(t, "digest")
			v := aws.String(base64.StdEncoding.EncodeToString(digest))
			switch alg {
			case models.SHA256:
				in.ChecksumSHA256 = v
			case models.CRC64NVME:
				in.ChecksumCRC64NVME = v
			case models.CRC32C:
				in.ChecksumCRC32C = v
			}
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := s.PresignPut(context.Background(), spec, size, digest, life, now)
		if err != nil {
			t.Fatal(err)
		}
		want, err := sdkPresigner(cfg, now, life).PresignPutObject(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got.URL, got.Headers, want)
	})
}

func TestGetURLsAreTheSDKs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg, now, life := configs.Draw(t, "config"), times.Draw(t, "now"), lives.Draw(t, "life")
		key, version := keys.Draw(t, "key"), values.Draw(t, "version")
		disposition, ctype := values.Draw(t, "disposition"), values.Draw(t, "type")
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := s.PresignGet(context.Background(), key, version, disposition, ctype, life, now)
		if err != nil {
			t.Fatal(err)
		}
		want, err := sdkPresigner(cfg, now, life).PresignGetObject(context.Background(), &s3.GetObjectInput{
			Bucket: &cfg.Bucket, Key: &key, VersionId: optional(version), ResponseContentDisposition: optional(disposition),
			ResponseContentType: optional(ctype), ExpectedBucketOwner: optional(cfg.ExpectedBucketOwner)})
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, nil, want)
	})
}

// An empty object's content type is signed by the SDK's signer, though not by its
// presign client; see PresignPut.
func TestEmptyPutIsTheSDKSigners(t *testing.T) {
	t.Parallel()
	cfg := plainConfig()
	s := mustNew(t, cfg)
	now := time.Unix(1_700_000_000, 0)
	empty := models.SHA256.New().Sum(nil)
	got, _, err := s.PresignPut(t.Context(), models.ObjectSpec{Key: "a b", UploadID: "upl_1", ContentType: "text/plain", Algorithm: models.SHA256}, 0, empty, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest(http.MethodPut, "http://127.0.0.1:7070/bucket/a%20b?x-id=PutObject&X-Amz-Expires=3600", nil)
	for _, h := range got.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	if len(got.Headers) != 4 || got.Headers.Get("content-type") != "text/plain" || got.Headers.Get("x-amz-checksum-sha256") == "" {
		t.Fatalf("headers %v", got.Headers)
	}
	c, _ := cfg.Credentials.Retrieve(t.Context())
	want, _, err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).PresignHTTP(t.Context(), c, req, unsigned, "s3", cfg.Region, now)
	if err != nil || got.URL != want {
		t.Fatalf("%v\n got %s\nwant %s", err, got.URL, want)
	}
}

// A fixed URL, so that a change of ours and the SDK's together is seen too.
func TestGoldenURL(t *testing.T) {
	t.Parallel()
	cfg := plainConfig()
	cfg.Endpoint, cfg.PathStyle = "", false
	s := mustNew(t, cfg)
	got, _, err := s.PresignParts(t.Context(), "default/a b.bin", "U1", []models.PartToSign{{Number: 7, Size: 5 << 20, Digest: models.CRC64NVME.New().Sum(nil)}},
		models.CRC64NVME, 15*time.Minute, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	const want = "https://bucket.s3.us-east-1.amazonaws.com/default/a%20b.bin?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID%2F20231114%2Fus-east-1%2Fs3%2Faws4_request" +
		"&X-Amz-Date=20231114T221320Z&X-Amz-Expires=900&X-Amz-SignedHeaders=content-length%3Bhost%3Bx-amz-checksum-crc64nvme&partNumber=7&uploadId=U1&x-id=UploadPart" +
		"&X-Amz-Signature=eda46ba988bc5fe806ca449724903712fe32913ce210c0c7667ddd7bbbf28b0b"
	if got[0].URL != want {
		t.Fatalf("\n got %s\nwant %s", got[0].URL, want)
	}
}

func TestNoChecksumInAQuery(t *testing.T) {
	t.Parallel()
	s := mustNew(t, plainConfig())
	for _, alg := range models.Algorithms {
		d := alg.New().Sum(nil)
		parts, _, err := s.PresignParts(t.Context(), "k", "u", []models.PartToSign{{Number: 1, Size: 1, Digest: d}}, alg, time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		put, _, err := s.PresignPut(t.Context(), models.ObjectSpec{Key: "k", Algorithm: alg}, 1, d, time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range append(parts, put) {
			u, err := url.Parse(p.URL)
			if err != nil {
				t.Fatal(err)
			}
			for name := range u.Query() {
				if strings.Contains(strings.ToLower(name), "checksum") {
					t.Errorf("%s: the query holds %s, where S3 does not enforce it", alg, name)
				}
			}
			if p.Headers.Get(alg.Header()) == "" || !strings.Contains(u.Query().Get("X-Amz-SignedHeaders"), alg.Header()) {
				t.Errorf("%s: not a signed header: %v", alg, p.Headers)
			}
		}
	}
}

// expiring gives credentials that end at a time.
type expiring struct {
	until time.Time
	err   error
}

func (e expiring) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "token", CanExpire: true, Expires: e.until}, e.err
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second).Add(700 * time.Millisecond)
	second := now.Truncate(time.Second)
	for _, c := range []struct {
		name        string
		asked, life time.Duration // life of the credentials from now, 0: none
		want        time.Duration // from the signing second; 0: refused
		kind        models.ObjectErrorKind
	}{
		{name: "as asked", asked: time.Hour, want: time.Hour},
		{name: "whole seconds", asked: 90*time.Second + 999*time.Millisecond, want: 90 * time.Second},
		{name: "less than a second", asked: time.Millisecond, want: time.Second},
		{name: "a week at most", asked: 1000 * time.Hour, want: 604800 * time.Second},
		{name: "credentials outlive it", asked: time.Hour, life: 2 * time.Hour, want: time.Hour},
		{name: "credentials end first", asked: time.Hour, life: 10 * time.Minute, want: 10 * time.Minute},
		{name: "credentials have ended", asked: time.Hour, life: -time.Second, kind: models.ObjectUnavailable},
		{name: "nothing asked", asked: 0, kind: models.ObjectInvalid},
		{name: "the past asked", asked: -time.Hour, kind: models.ObjectInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := plainConfig()
			if c.life != 0 {
				cfg.Credentials = expiring{until: now.Add(c.life)}
			}
			s := mustNew(t, cfg)
			parts, until, err := s.PresignParts(t.Context(), "k", "u", []models.PartToSign{{Number: 1, Size: 1}}, models.SHA256, c.asked, now)
			if c.want == 0 {
				if models.ObjectKind(err) != c.kind || parts != nil {
					t.Fatalf("want %s, got %v, %v", c.kind, err, parts)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := second.Add(c.want); !until.Equal(want) {
				t.Errorf("until %v, want %v", until, want)
			}
			u, _ := url.Parse(parts[0].URL)
			if got := u.Query().Get("X-Amz-Expires"); got != strconv.Itoa(int(c.want/time.Second)) {
				t.Errorf("X-Amz-Expires=%s, want %v", got, c.want)
			}
		})
	}
}

func TestCredentialLife(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cfg := plainConfig()
	if _, ends := mustNew(t, cfg).CredentialLife(t.Context(), now); ends {
		t.Error("static credentials have no end")
	}
	end := now.Add(time.Hour)
	cfg.Credentials = expiring{until: end}
	if got, ends := mustNew(t, cfg).CredentialLife(t.Context(), now); !ends || !got.Equal(end) {
		t.Errorf("got %v %v", got, ends)
	}
	cfg.Credentials = expiring{err: errors.New("no metadata service at http://169.254.169.254/latest")}
	s := mustNew(t, cfg)
	if got, ends := s.CredentialLife(t.Context(), now); !ends || !got.Equal(now) {
		t.Errorf("credentials that cannot be had end now; got %v %v", got, ends)
	}
	_, _, err := s.PresignGet(t.Context(), "k", "v", "", "", time.Hour, now)
	if models.ObjectKind(err) != models.ObjectUnavailable || strings.Contains(err.Error(), "://") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.PresignGet(ctx, "k", "v", "", "", time.Hour, now); !errors.Is(err, context.Canceled) || models.ObjectKind(err) != "" {
		t.Errorf("a caller that went away: got %v", err)
	}
}

func TestRefusesToSign(t *testing.T) {
	t.Parallel()
	s := mustNew(t, plainConfig())
	now := time.Now()
	sha := make([]byte, 32)
	part := func(p models.PartToSign) error {
		good := models.PartToSign{Number: 1, Size: 1}
		_, _, err := s.PresignParts(t.Context(), "k", "u", []models.PartToSign{good, p}, models.SHA256, time.Hour, now)
		return err
	}
	put := func(spec models.ObjectSpec, size int64, d []byte) error {
		_, _, err := s.PresignPut(t.Context(), spec, size, d, time.Hour, now)
		return err
	}
	many := make([]models.PartToSign, models.MaxParts+1)
	_, _, tooMany := s.PresignParts(t.Context(), "k", "u", many, models.SHA256, time.Hour, now)
	_, _, noKey := s.PresignParts(t.Context(), "", "u", nil, models.SHA256, time.Hour, now)
	_, _, noUpload := s.PresignParts(t.Context(), "k", "", nil, models.SHA256, time.Hour, now)
	_, _, noGetKey := s.PresignGet(t.Context(), "", "v", "", "", time.Hour, now)
	ok := models.ObjectSpec{Key: "k", Algorithm: models.SHA256}
	for name, err := range map[string]error{
		"part 0":            part(models.PartToSign{Number: 0, Size: 1}),
		"part 10001":        part(models.PartToSign{Number: 10001, Size: 1}),
		"no size":           part(models.PartToSign{Number: 2}),
		"5 GiB + 1":         part(models.PartToSign{Number: 2, Size: models.MaxPartSize + 1}),
		"another digest":    part(models.PartToSign{Number: 2, Size: 1, Digest: sha[:8]}),
		"too many":          tooMany,
		"no key":            noKey,
		"no upload":         noUpload,
		"no key to get":     noGetKey,
		"put: no key":       put(models.ObjectSpec{}, 1, nil),
		"put: negative":     put(ok, -1, nil),
		"put: too large":    put(ok, models.MaxSinglePut+1, nil),
		"put: empty, loose": put(ok, 0, nil),
		"put: short digest": put(ok, 1, sha[:31]),
		"put: no algorithm": put(models.ObjectSpec{Key: "k"}, 1, sha),
	} {
		if models.ObjectKind(err) != models.ObjectInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"no bucket":        func(c *Config) { c.Bucket = "" },
		"no region":        func(c *Config) { c.Region = "" },
		"no credentials":   func(c *Config) { c.Credentials = nil },
		"access point":     func(c *Config) { c.Bucket = "arn:aws:s3:eu-west-1:1:accesspoint/x" },
		"directory bucket": func(c *Config) { c.Bucket = "b--use1-az4--x-s3" },
		"no scheme":        func(c *Config) { c.Endpoint = "127.0.0.1:7070" },
		"user in it":       func(c *Config) { c.PublicEndpoint = "https://u:p@example.org" },
		"query in it":      func(c *Config) { c.Endpoint = "https://example.org/?a=b" },
	} {
		cfg := plainConfig()
		change(&cfg)
		if s, err := New(cfg); err == nil || s != nil {
			t.Errorf("%s: taken", name)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: the error holds a password", name)
		}
	}
}

// Credentials are rotated on a running server: the next URL is the new pair's, also
// where only the secret is new, and its session token too.
func TestKeyCacheFollowsTheCredentials(t *testing.T) {
	t.Parallel()
	s := mustNew(t, plainConfig())
	now := time.Unix(1_700_000_000, 0)
	seen := map[string]bool{}
	for _, c := range []aws.Credentials{
		{AccessKeyID: "A", SecretAccessKey: "1"}, {AccessKeyID: "B", SecretAccessKey: "1"}, {AccessKeyID: "B", SecretAccessKey: "2"},
		{AccessKeyID: "B", SecretAccessKey: "2", SessionToken: "t"}, {AccessKeyID: "A", SecretAccessKey: "1"},
	} {
		s.creds = credentials.StaticCredentialsProvider{Value: c}
		got, _, err := s.PresignGet(t.Context(), "k", "v", "", "", time.Hour, now)
		if err != nil {
			t.Fatal(err)
		}
		cfg := plainConfig()
		cfg.Credentials = s.creds
		want, err := sdkPresigner(cfg, now, time.Hour).PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: &cfg.Bucket, Key: aws.String("k"), VersionId: aws.String("v")})
		if err != nil || got != want.URL {
			t.Errorf("%s %s: %v\n got %s\nwant %s", c.AccessKeyID, c.SecretAccessKey, err, got, want.URL)
		}
		seen[got] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d different URLs", len(seen))
	}
}

// Two pairs of credentials, two days, many callers: nobody gets another's key.
func TestKeyCacheUnderRace(t *testing.T) {
	t.Parallel()
	cfg := plainConfig()
	cfg.Credentials = &alternating{}
	s := mustNew(t, cfg)
	s.creds = cfg.Credentials // not cached: each call gets the next pair
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				now := time.Unix(1_700_000_000+int64((i+j)%3)*86_400, 0)
				parts, _, err := s.PresignParts(t.Context(), "k", "u", []models.PartToSign{{Number: j + 1, Size: 9}}, models.SHA256, time.Hour, now)
				if err != nil {
					t.Error(err)
					return
				}
				u, _ := url.Parse(parts[0].URL)
				access, _, _ := strings.Cut(u.Query().Get("X-Amz-Credential"), "/")
				fresh := plainConfig()
				fresh.Credentials = credentials.NewStaticCredentialsProvider(access, "secret-of-"+access, "")
				want, _, err := mustNew(t, fresh).PresignParts(t.Context(), "k", "u", []models.PartToSign{{Number: j + 1, Size: 9}}, models.SHA256, time.Hour, now)
				if err != nil || want[0].URL != parts[0].URL {
					t.Errorf("%v: another's key: %s", err, parts[0].URL)
					return
				}
			}
		})
	}
	wg.Wait()
}

type alternating struct {
	mu sync.Mutex
	n  int
}

func (a *alternating) Retrieve(context.Context) (aws.Credentials, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	id := fmt.Sprintf("AK%d", a.n%2)
	return aws.Credentials{AccessKeyID: id, SecretAccessKey: "secret-of-" + id}, nil
}

// A URL costs its text, its headers and nothing that grows with the number of parts.
func TestSigningAllocates(t *testing.T) { // not in parallel: it counts
	s := mustNew(t, plainConfig())
	for _, n := range []int{1, 100, models.MaxParts} {
		parts := benchParts(n)
		got := testing.AllocsPerRun(3, func() {
			if _, _, err := s.PresignParts(t.Context(), benchKey, benchUploadID, parts, models.SHA256, time.Hour, benchNow); err != nil {
				t.Fatal(err)
			}
		})
		if most := float64(3*n + 40); got > most { // 40: hashes and buffers, where the pool is empty
			t.Errorf("%d parts: %.0f allocations, want at most %.0f", n, got, most)
		}
	}
}

func plainConfig() Config {
	return Config{Name: "main", Bucket: "bucket", Region: "us-east-1", Endpoint: "http://127.0.0.1:7070", PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("AKID", "secret", "")}
}

func mustNew(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}
