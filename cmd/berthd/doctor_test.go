package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/cmd/berthd/doctor"
	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.yaml.in/yaml/v3"
)

// patient is a configuration in good health, and the parts to make it ill.
type patient struct {
	config.Config
	s3    testkit.S3Info
	queue testkit.SQSInfo
}

func healthy(t *testing.T) *patient {
	t.Helper()
	p := &patient{s3: testkit.S3(t)}
	p.queue = testkit.Notifications(t, p.s3)
	style := true
	p.Config = config.Config{
		Listen:   "127.0.0.1:0",
		Database: config.Database{URL: config.Secret(testkit.DB(t))},
		Auth:     config.Auth{HS256Secret: testSecret},
		Stores: map[string]config.Store{"main": {
			Endpoint: p.s3.Endpoint, Region: p.s3.Region, Bucket: p.s3.Bucket, Prefix: "up/", PathStyle: &style,
			AccessKeyID: p.s3.AccessKey, SecretAccessKey: config.Secret(p.s3.SecretKey),
		}},
		Events: config.Events{QueueURL: p.queue.QueueURL, Endpoint: p.queue.Endpoint, Region: p.queue.Region, AccessKeyID: "x", SecretAccessKey: "x"},
		CORS:   config.CORS{AllowedOrigins: []string{"https://app.example.com"}},
		Collections: map[string]config.Collection{
			// versitygw 1.8.0 keeps what breaks off, unless its checksum is signed.
			"default": {ChecksumRequired: true}, "fast": {Algorithm: "crc64nvme", ChecksumRequired: true}, "small": {Algorithm: "crc32c", ChecksumRequired: true},
		},
	}
	p.letSend(t, `{"Statement":[{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"SQS:SendMessage","Resource":"*",
		"Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::`+p.s3.Bucket+`"},"StringEquals":{"aws:SourceAccount":"111122223333"}}}]}`)
	return p
}

func (p *patient) letSend(t *testing.T, policy string) {
	t.Helper()
	if _, err := p.queue.Client().SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: &p.queue.QueueURL, Attributes: map[string]string{"Policy": policy},
	}); err != nil {
		t.Fatal(err)
	}
}

// through sends what goes to the store through a proxy that the test has a hand in.
func (p *patient) through(t *testing.T, before func(http.ResponseWriter, *http.Request) bool, after func(*http.Response)) {
	t.Helper()
	to, err := url.Parse(p.s3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0),                                              // of what the doctor breaks off on purpose
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }, // the host is signed
		ModifyResponse: func(r *http.Response) error {
			if after != nil {
				after(r)
			}
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil && before(w, r) {
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s := p.Stores["main"]
	s.Endpoint = server.URL
	p.Stores["main"] = s
}

// examine runs the command and returns what it found.
func (p *patient) examine(t *testing.T, want int, args ...string) doctor.Report {
	t.Helper()
	text, err := yaml.Marshal(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, msgs bytes.Buffer
	code := run(t.Context(), append([]string{"doctor", "--json", "--config", file}, args...), streams{&out, &msgs})
	var r doctor.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), msgs.String())
	}
	if code != want {
		t.Errorf("exit %d, want %d: %s\n%s", code, want, msgs.String(), out.String())
	}
	if s := out.String() + msgs.String(); strings.Contains(s, "X-Amz-") || strings.Contains(s, p.s3.SecretKey) || strings.Contains(s, testSecret) {
		t.Errorf("the report holds a secret or a signature:\n%s", s)
	}
	return r
}

func told(r doctor.Report, check string, status doctor.Status, text string) *doctor.Finding {
	for i, f := range r.Findings {
		if f.Check == check && f.Status == status && strings.Contains(f.Found, text) {
			return &r.Findings[i]
		}
	}
	return nil
}

func TestDoctorFindsNothingWhereNothingIs(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Collections["kept"] = config.Collection{ChecksumRequired: true, StorageClass: "STANDARD"}
	reaps := testkit.SQS(t)
	p.Reap = config.Reap{Dispatch: config.DispatchSQS, QueueURL: reaps.QueueURL}
	others := "of somebody else"
	if _, err := p.queue.Client().SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &p.queue.QueueURL, MessageBody: &others}); err != nil {
		t.Fatal(err)
	}
	r := p.examine(t, 0)
	for _, f := range r.Findings {
		// versitygw knows no lifecycle; everything else is as it should be.
		if want := f.Check == "lifecycle"; (f.Status != doctor.OK) != want {
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{"database", "schema", "queue", "reap queue", "dead letters", "queue policy", "credentials", "bucket", "clock", "versioning", "cors",
		"cors in earnest", "write", "conditional write", "length", "checksum sha256", "checksum crc64nvme", "checksum crc32c",
		"multipart sha256", "multipart crc64nvme", "multipart crc32c", "collections' storage", "cut-off body", "events", "cleaning"} {
		if told(r, check, doctor.OK, "") == nil {
			t.Errorf("nothing good is said of %s", check)
		}
	}
	left, err := p.s3.Client().ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &p.s3.Bucket})
	if err != nil || len(left.Versions)+len(left.DeleteMarkers) > 0 {
		t.Errorf("left in the bucket: %v, %d versions, %d markers", err, len(left.Versions), len(left.DeleteMarkers))
	}
	open, err := p.s3.Client().ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &p.s3.Bucket})
	if err != nil || len(open.Uploads) > 0 {
		t.Errorf("left open: %v, %d uploads", err, len(open.Uploads))
	}
	// What was not the doctor's is there, and to be seen at once.
	testkit.Eventually(t, 10*time.Second, func() error {
		out, err := p.queue.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &p.queue.QueueURL, MaxNumberOfMessages: 10, VisibilityTimeout: 30})
		if err != nil {
			return err
		}
		for _, m := range out.Messages {
			if *m.Body == others {
				return nil
			}
		}
		return fmt.Errorf("not among %d messages", len(out.Messages))
	})
}

func TestDoctorNamesEachFaultAndItsMend(t *testing.T) {
	t.Parallel()
	const wait = "4s"
	for _, c := range []struct {
		name   string
		harm   func(*testing.T, *patient)
		args   []string
		check  string
		status doctor.Status
		found  string
		mend   string // part of the words, or of the Terraform
	}{
		{"no CORS", func(t *testing.T, p *patient) {
			if _, err := p.s3.Client().DeleteBucketCors(t.Context(), &s3.DeleteBucketCorsInput{Bucket: &p.s3.Bucket}); err != nil {
				t.Fatal(err)
			}
		}, nil, "cors", doctor.Failure, "there is none", "cors_allowed_origins"},
		{"a header that is not exposed", func(t *testing.T, p *patient) {
			p.cors(t, func(r *types.CORSRule) {
				r.ExposeHeaders = []string{"x-amz-version-id", "x-amz-checksum-sha256", "x-amz-checksum-crc64nvme", "x-amz-checksum-crc32c", "Etag-Of-Another"}
			})
		}, nil, "cors", doctor.Failure, "the header ETag is not exposed", "expose"},
		{"a method that is not allowed", func(t *testing.T, p *patient) {
			p.cors(t, func(r *types.CORSRule) { r.AllowedMethods = []string{"GET", "HEAD", "POST"} })
		}, nil, "cors", doctor.Failure, "the method PUT is not allowed", "PUT"},
		{"an origin that is not allowed", func(t *testing.T, p *patient) {
			p.cors(t, func(r *types.CORSRule) { r.AllowedOrigins = []string{"https://elsewhere.example.com"} })
		}, nil, "cors", doctor.Failure, "no rule allows this origin", `cors_allowed_origins = ["https://app.example.com"]`},
		{"a header that may not be sent", func(t *testing.T, p *patient) {
			p.cors(t, func(r *types.CORSRule) { r.AllowedHeaders = []string{"content-type", "x-amz-*"} })
		}, nil, "cors", doctor.Failure, "PUT may not carry the header if-none-match", "if-none-match"},
		{"a proxy that eats CORS", func(t *testing.T, p *patient) {
			p.through(t, nil, func(r *http.Response) { r.Header.Del("Access-Control-Expose-Headers") })
		}, nil, "cors in earnest", doctor.Failure, "does not expose ETag", "CDN"},
		{"versioning suspended", func(t *testing.T, p *patient) {
			if _, err := p.s3.Client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &p.s3.Bucket,
				VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusSuspended}}); err != nil {
				t.Fatal(err)
			}
		}, nil, "versioning", doctor.Failure, "suspended", "aws_s3_bucket_versioning"},
		{"a queue without policy", func(t *testing.T, p *patient) { p.letSend(t, "") },
			nil, "queue policy", doctor.Warning, "the queue has no policy", "aws:SourceArn"},
		{"a policy for another bucket", func(t *testing.T, p *patient) {
			p.letSend(t, `{"Statement":[{"Effect":"Allow","Principal":{"Service":["s3.amazonaws.com"]},"Action":["SQS:SendMessage"],
				"Condition":{"ArnEquals":{"aws:SourceArn":["arn:aws:s3:::another"]}}}]}`)
		}, nil, "queue policy", doctor.Warning, "does not let S3 send for this bucket", "aws:SourceArn"},
		{"a policy for everybody's buckets", func(t *testing.T, p *patient) {
			p.letSend(t, `{"Statement":[{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"sqs:SendMessage"}]}`)
		}, nil, "queue policy", doctor.Warning, "any account's bucket", "aws:SourceAccount"},
		{"the store's clock is ahead", func(t *testing.T, p *patient) { p.through(t, nil, date(10*time.Minute)) },
			nil, "clock", doctor.Failure, "behind the store's", "NTP"},
		{"the store's clock is behind, a little", func(t *testing.T, p *patient) { p.through(t, nil, date(-time.Minute)) },
			nil, "clock", doctor.Warning, "ahead of the store's", "NTP"},
		{"no lifecycle", func(t *testing.T, p *patient) {
			p.through(t, onLifecycle(http.StatusNotFound, `<Error><Code>NoSuchLifecycleConfiguration</Code></Error>`), nil)
		}, nil, "lifecycle", doctor.Failure, "no rule aborts incomplete uploads", "abort_incomplete_days"},
		{"a lifecycle for another prefix", func(t *testing.T, p *patient) {
			p.through(t, onLifecycle(http.StatusOK, `<LifecycleConfiguration><Rule><ID>x</ID><Status>Enabled</Status><Filter><Prefix>other/</Prefix></Filter>
				<AbortIncompleteMultipartUpload><DaysAfterInitiation>8</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>`), nil)
		}, nil, "lifecycle", doctor.Failure, `under the whole prefix "up/"`, "abort_incomplete_days"},
		{"a lifecycle that deletes files", func(t *testing.T, p *patient) {
			p.through(t, onLifecycle(http.StatusOK, `<LifecycleConfiguration><Rule><ID>tidy</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>
				<Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>`), nil)
		}, nil, "lifecycle", doctor.Failure, `rule "tidy" deletes the current versions`, "Take the expiration"},
		{"events that do not arrive", func(t *testing.T, p *patient) { p.deaf(t) },
			[]string{"--wait", wait}, "events", doctor.Failure, "did not arrive within 4s", "notification configuration"},
		{"events that do not arrive, for want of a policy", func(t *testing.T, p *patient) { p.deaf(t); p.letSend(t, "") },
			[]string{"--wait", wait}, "events", doctor.Failure, "likely: the queue has no policy that lets S3 send", "policy"},
		{"neither queue nor webhook", func(_ *testing.T, p *patient) { p.Events.QueueURL = "" },
			nil, "notification", doctor.Warning, "S3 is not heard", "events.queue_url"},
		{"a webhook that nobody takes", func(_ *testing.T, p *patient) {
			p.Events.QueueURL = ""
			s := p.Stores["main"]
			s.NotificationToken = "a-token-of-the-store-s-own"
			p.Stores["main"] = s
		}, []string{"--wait", "2s"}, "events", doctor.Failure, "no running berthd was called", "/v1/notifications/main"},
		{"a queue that is not there", func(_ *testing.T, p *patient) { p.Events.QueueURL += "-none" },
			[]string{"--wait", wait}, "queue", doctor.Failure, "cannot be reached", "events.queue_url"},
		{"a bucket that is not there", func(_ *testing.T, p *patient) {
			s := p.Stores["main"]
			s.Bucket = "no-such-bucket"
			p.Stores["main"] = s
		}, nil, "bucket", doctor.Failure, "does not exist", `module "bucket"`},
		{"wrong credentials", func(_ *testing.T, p *patient) {
			s := p.Stores["main"]
			s.SecretAccessKey = "another"
			p.Stores["main"] = s
		}, nil, "bucket", doctor.Failure, "refuses these credentials", "s3:ListBucket"},
		{"a database that lacks migrations", func(t *testing.T, p *patient) { p.Database.URL = config.Secret(testkit.EmptyDB(t)) },
			nil, "schema", doctor.Failure, "migrations", "berthd migrate"},
		{"no database", func(_ *testing.T, p *patient) { p.Database.URL = "postgres://berth:hunter2@127.0.0.1:1/berth" },
			nil, "database", doctor.Failure, "cannot be reached", "database.url"},
		{"a store that takes other bytes", func(t *testing.T, p *patient) { p.through(t, nil, agreeable(http.StatusBadRequest)) },
			nil, "checksum sha256", doctor.Failure, "other bytes under a signed sha256 are taken", "enforces signed checksums"},
		{"a store that takes other lengths", func(t *testing.T, p *patient) { p.through(t, nil, agreeable(http.StatusForbidden)) },
			nil, "length", doctor.Failure, "more bytes than were signed are taken", "content-length"},
		{"a store that writes twice", func(t *testing.T, p *patient) { p.through(t, nil, agreeable(http.StatusPreconditionFailed)) },
			nil, "conditional write", doctor.Warning, "can be used again", "Nothing is lost"},
		{"a store that attests nothing", func(t *testing.T, p *patient) {
			p.through(t, nil, func(r *http.Response) {
				for name := range r.Header {
					if strings.HasPrefix(strings.ToLower(name), "x-amz-checksum-") {
						r.Header.Del(name)
					}
				}
			})
		}, nil, "checksum sha256", doctor.Failure, "attests no sha256", "Choose another algorithm"},
		{"a store that loses metadata", func(t *testing.T, p *patient) {
			p.through(t, nil, func(r *http.Response) { r.Header.Del("X-Amz-Meta-Berth-Upload") })
		}, nil, "checksum sha256", doctor.Failure, "does not keep x-amz-meta-berth-upload", "metadata"},
		// Of the real store, as it is.
		{"a store that keeps what breaks off", func(_ *testing.T, p *patient) { p.Collections["fast"] = config.Collection{Algorithm: "crc64nvme"} },
			nil, "cut-off body", doctor.Failure, "262144 of 1048576 bytes came, and the store attests 1048576. A file of fast can become active", "Set checksum_required: true for the collections fast"},
		{"a store that keeps what breaks off, under composites", func(_ *testing.T, p *patient) { p.Collections["default"] = config.Collection{} },
			nil, "cut-off body", doctor.Warning, "Uploads whose size nobody declared can become active", "collections = { default = { checksum_required = true"},
		{"a store that keeps what breaks off, checksum or not", func(t *testing.T, p *patient) { p.through(t, keeping, nil) },
			nil, "cut-off body", doctor.Failure, "also where its checksum is signed", "enforces signed checksums"},
		{"a key that may not be used", func(t *testing.T, p *patient) {
			p.Collections["sealed"] = config.Collection{ChecksumRequired: true, SSEKMSKeyID: "alias/sealed"}
			p.through(t, func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut || r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != "alias/sealed" {
					return false
				}
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `<Error><Code>AccessDenied</Code></Error>`)
				return true
			}, nil)
		}, nil, "collections' storage", doctor.Failure, "403 AccessDenied, as the collections sealed want it (key alias/sealed)", "kms:GenerateDataKey"},
		{"a class that does not answer reads", func(t *testing.T, p *patient) {
			p.Collections["cold"] = config.Collection{ChecksumRequired: true, StorageClass: "GLACIER"}
			p.through(t, func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || r.Header.Get("Range") == "" {
					return false
				}
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `<Error><Code>InvalidObjectState</Code></Error>`)
				return true
			}, nil)
		}, nil, "collections' storage", doctor.Failure, "cannot be read", "STANDARD_IA"},
		{"probes that cannot be removed", func(t *testing.T, p *patient) {
			p.through(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("delete") {
					return false
				}
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `<Error><Code>AccessDenied</Code></Error>`)
				return true
			}, nil)
		}, nil, "cleaning", doctor.Failure, "AccessDenied", "s3:DeleteObjectVersion"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := healthy(t)
			c.harm(t, p)
			want := 0
			if c.status == doctor.Failure {
				want = exitFailed
			}
			r := p.examine(t, want, c.args...)
			f := told(r, c.check, c.status, c.found)
			if f == nil {
				t.Fatalf("not found in\n%+v", r.Findings)
			}
			if !strings.Contains(f.Mend+f.Terraform, c.mend) || f.Mend == "" {
				t.Errorf("the mend of %q is %q and %q", f.Found, f.Mend, f.Terraform)
			}
			// What the modules make, they mend.
			switch c.check {
			case "cors", "versioning", "queue policy", "lifecycle", "events", "notification", "bucket", "cleaning":
				if f.Terraform == "" && f.Status == doctor.Failure && p.Events.QueueURL != "" { // a store's own webhook is not Terraform's
					t.Errorf("the mend of %q is in no Terraform", f.Found)
				}
			}
		})
	}
}

func (p *patient) cors(t *testing.T, change func(*types.CORSRule)) {
	t.Helper()
	client := p.s3.Client()
	got, err := client.GetBucketCors(t.Context(), &s3.GetBucketCorsInput{Bucket: &p.s3.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	change(&got.CORSRules[0])
	if _, err := client.PutBucketCors(t.Context(), &s3.PutBucketCorsInput{Bucket: &p.s3.Bucket, CORSConfiguration: &types.CORSConfiguration{CORSRules: got.CORSRules}}); err != nil {
		t.Fatal(err)
	}
}

// deaf takes the patient to a queue that hears of no bucket.
func (p *patient) deaf(t *testing.T) {
	t.Helper()
	attrs, err := p.queue.Client().GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &p.queue.QueueURL, AttributeNames: []sqstypes.QueueAttributeName{"Policy"}})
	if err != nil {
		t.Fatal(err)
	}
	p.queue = testkit.SQS(t)
	p.Events.QueueURL = p.queue.QueueURL
	p.letSend(t, attrs.Attributes["Policy"])
}

// keeping is a store that makes whole what breaks off, whatever was signed: it answers that it
// is there.
func keeping(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodPut && r.ContentLength == 1<<20 {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			broken.Store(r.URL.Path, true)
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
	}
	if _, kept := broken.Load(r.URL.Path); r.Method == http.MethodHead && kept {
		w.Header().Set("Content-Length", "1048576")
		w.WriteHeader(http.StatusOK)
		return true
	}
	return false
}

// broken are the paths, random ones, of what keeping keeps.
var broken sync.Map

// whole passes on whole requests only, as nginx does.
func whole(w http.ResponseWriter, r *http.Request) bool {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return true
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return false
}

// A store that is right, and one that is behind a proxy which passes on whole requests only,
// is not accused; nor is one of collections that sign all checksums.
func TestDoctorAccusesNoStoreThatDropsWhatBreaksOff(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	if r := p.examine(t, 0); told(r, "cut-off body", doctor.OK, "all collections demand it") == nil {
		t.Errorf("%+v", r.Findings)
	}
	p.Collections = map[string]config.Collection{"default": {}, "fast": {Algorithm: "crc64nvme"}}
	p.through(t, whole, nil)
	if r := p.examine(t, 0); told(r, "cut-off body", doctor.OK, "leaves nothing behind") == nil {
		t.Errorf("%+v", r.Findings)
	}
}

func date(by time.Duration) func(*http.Response) {
	return func(r *http.Response) { r.Header.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat)) }
}

func onLifecycle(status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("lifecycle") {
			return false
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// agreeable answers 200 where the store refused a PUT with the status.
func agreeable(status int) func(*http.Response) {
	return func(r *http.Response) {
		if r.Request.Method == http.MethodPut && r.StatusCode == status {
			r.StatusCode = http.StatusOK
		}
	}
}

// Consumers take the probe's message before the doctor can; then they say so.
func TestDoctorHearsOfWhatARunningBerthdTook(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	start(t, p.Config)
	if r := p.examine(t, 0); told(r, "events", doctor.OK, "a running berthd heard of a probe") == nil {
		t.Errorf("%+v", r.Findings)
	}
}

func TestDoctorHearsOfWebhooks(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Events.QueueURL = ""
	s := p.Stores["main"]
	s.NotificationToken = "a-token-of-the-store-s-own"
	p.Stores["main"] = s
	b := start(t, p.Config)
	// The store's own webhook: whatever it notifies is posted as it came.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			out, err := p.queue.Client().ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &p.queue.QueueURL, WaitTimeSeconds: 1})
			if err != nil {
				continue
			}
			for _, m := range out.Messages {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/notifications/main", strings.NewReader(*m.Body))
				if err != nil {
					continue
				}
				req.Header.Set("Authorization", "Bearer "+s.NotificationToken.Reveal())
				if resp, err := http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		}
	}()
	defer func() { cancel(); <-done }()
	if r := p.examine(t, 0); told(r, "events", doctor.OK, "a running berthd heard of a probe") == nil {
		t.Errorf("%+v", r.Findings)
	}
}

func TestDoctorWritesNothingWhenToldTo(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.through(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return false
		}
		t.Errorf("%s %s", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusTeapot)
		return true
	}, nil)
	if r := p.examine(t, 0, "--no-probe"); told(r, "cors", doctor.OK, "") == nil {
		t.Errorf("%+v", r.Findings)
	}
}

func TestDoctorAsText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := doctor.Render(&out, doctor.Report{Failures: 1, Findings: []doctor.Finding{
		{Check: "database", Status: doctor.OK, Found: "answers"},
		{Check: "cors", Store: "main", Status: doctor.Failure, Found: "there is none", Mend: "Make one.", Terraform: "apply"},
	}})
	want := "ok    database: answers\nFAIL  main cors: there is none\n        mend: Make one.\n        terraform: apply\n2 checks, 1 failures, 0 warnings\n"
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Where nothing can be mounted, a variable holds the whole configuration.
func TestConfigurationInAVariable(t *testing.T) {
	p := healthy(t)
	text, err := yaml.Marshal(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.TextEnv, string(text))
	t.Setenv("BERTH_DATABASE_URL", "postgres://berth@127.0.0.1:1/elsewhere") // a variable of a key wins
	var out, msgs bytes.Buffer
	code := run(t.Context(), []string{"doctor", "--no-probe"}, streams{&out, &msgs})
	if code != exitFailed || !strings.Contains(out.String(), "FAIL  database: cannot be reached") || !strings.Contains(out.String(), "main bucket: "+p.s3.Bucket) {
		t.Errorf("exit %d: %s%s", code, out.String(), msgs.String())
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	p := start(t, realConfig(t))
	var out, msgs bytes.Buffer
	if code := run(t.Context(), []string{"health", "--url", p.url}, streams{&out, &msgs}); code != 0 {
		t.Errorf("of a process that is ready: exit %d: %s", code, msgs.String())
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"health", "--url", p.url}, streams{&out, &msgs}); code != exitFailed {
		t.Errorf("of a process that has ended: exit %d", code)
	}
}

// A process whose database is away is not ready, and lives: a restart would not mend it.
func TestHealthOfOneWhoseDatabaseIsAway(t *testing.T) {
	t.Parallel()
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer p.Close()
	for want, args := range map[int][]string{exitFailed: {"health", "--url", p.URL}, 0: {"health", "--live", "--url", p.URL}} {
		var out, msgs bytes.Buffer
		if code := run(t.Context(), args, streams{&out, &msgs}); code != want {
			t.Errorf("%v: exit %d, want %d: %s", args, code, want, msgs.String())
		}
	}
}
