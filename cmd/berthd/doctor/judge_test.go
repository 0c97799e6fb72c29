package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

func TestCORSFaults(t *testing.T) {
	t.Parallel()
	const origin = "https://app.example.com"
	good := types.CORSRule{AllowedOrigins: []string{"https://*.example.com"}, AllowedMethods: CORSMethods,
		AllowedHeaders: []string{"Content-Type", "If-None-Match", "X-Amz-*"}, ExposeHeaders: []string{"etag", "X-Amz-Version-Id", "x-amz-checksum-*"}}
	with := func(change func(*types.CORSRule)) types.CORSRule {
		r := good
		change(&r)
		return r
	}
	for _, c := range []struct {
		name  string
		rules []types.CORSRule
		more  []string
		want  []string
	}{
		{"good", []types.CORSRule{good}, nil, nil},
		{"any header", []types.CORSRule{with(func(r *types.CORSRule) { r.AllowedHeaders = []string{"*"} })}, nil, nil},
		{"another origin", []types.CORSRule{with(func(r *types.CORSRule) { r.AllowedOrigins = []string{"https://example.com"} })}, nil, []string{"no rule allows this origin"}},
		{"an origin's case counts", []types.CORSRule{with(func(r *types.CORSRule) { r.AllowedOrigins = []string{"https://APP.example.com"} })}, nil, []string{"no rule allows this origin"}},
		{"no form uploads", []types.CORSRule{with(func(r *types.CORSRule) { r.AllowedMethods = []string{"PUT", "GET", "HEAD"} })}, nil, []string{"the method POST is not allowed"}},
		{"a header of the collections'", []types.CORSRule{with(func(r *types.CORSRule) {
			r.AllowedHeaders = []string{"content-type", "if-none-match", "x-amz-meta-*", "x-amz-checksum-*"}
		})},
			[]string{"x-amz-storage-class"}, []string{"PUT may not carry the header x-amz-storage-class"}},
		// The first rule that fits is the one that counts, though the second exposes more.
		{"the first rule hides", []types.CORSRule{with(func(r *types.CORSRule) { r.AllowedMethods, r.ExposeHeaders = []string{"GET"}, nil }), good}, nil,
			[]string{"the header ETag is not exposed to GET", "the header x-amz-version-id is not exposed to GET", "the header x-amz-checksum-sha256 is not exposed to GET",
				"the header x-amz-checksum-crc64nvme is not exposed to GET", "the header x-amz-checksum-crc32c is not exposed to GET"}},
		// But a rule that does not allow the headers does not fit a preflight.
		{"a rule that does not fit is passed over", []types.CORSRule{with(func(r *types.CORSRule) { r.AllowedMethods, r.AllowedHeaders = []string{"PUT"}, nil }), good}, nil, nil},
	} {
		if got := corsFaults(c.rules, origin, c.more); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLifecycleFaults(t *testing.T) {
	t.Parallel()
	const prefix = "berth/"
	rule := func(change func(*types.LifecycleRule)) types.LifecycleRule {
		r := types.LifecycleRule{ID: aws.String("r"), Status: types.ExpirationStatusEnabled,
			AbortIncompleteMultipartUpload: &types.AbortIncompleteMultipartUpload{DaysAfterInitiation: aws.Int32(8)},
			NoncurrentVersionExpiration:    &types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(30)}}
		change(&r)
		return r
	}
	plain := rule(func(*types.LifecycleRule) {})
	for _, c := range []struct {
		name  string
		rules []types.LifecycleRule
		want  []string
	}{
		{"good", []types.LifecycleRule{plain}, nil},
		{"of a prefix above", []types.LifecycleRule{rule(func(r *types.LifecycleRule) { r.Filter = &types.LifecycleRuleFilter{Prefix: aws.String("be")} })}, nil},
		{"the old form of a prefix", []types.LifecycleRule{rule(func(r *types.LifecycleRule) { r.Prefix = aws.String("berth/") })}, nil}, //nolint:staticcheck // the deprecated form is the subject
		{"none", nil, []string{"no rule aborts", "no rule expires"}},
		{"disabled", []types.LifecycleRule{rule(func(r *types.LifecycleRule) { r.Status = types.ExpirationStatusDisabled })}, []string{"no rule aborts", "no rule expires"}},
		{"of a prefix below", []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter = &types.LifecycleRuleFilter{Prefix: aws.String("berth/tmp/")}
		})}, []string{"no rule aborts", "no rule expires"}},
		{"of a tag", []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter = &types.LifecycleRuleFilter{And: &types.LifecycleRuleAndOperator{Tags: []types.Tag{{}}}}
		})}, []string{"no rule aborts", "no rule expires"}},
		{"aborts what lives", []types.LifecycleRule{rule(func(r *types.LifecycleRule) { r.AbortIncompleteMultipartUpload.DaysAfterInitiation = aws.Int32(3) })},
			[]string{`rule "r" aborts uploads after 3 days, while uploads may live 168h0m0s`}},
		{"deletes files", []types.LifecycleRule{plain, rule(func(r *types.LifecycleRule) {
			r.Filter = &types.LifecycleRuleFilter{Prefix: aws.String("berth/default/")}
			r.Expiration = &types.LifecycleExpiration{Days: aws.Int32(365)}
		})}, []string{"deletes the current versions"}},
		{"deletes others' files", []types.LifecycleRule{plain, rule(func(r *types.LifecycleRule) {
			r.Filter = &types.LifecycleRuleFilter{Prefix: aws.String("logs/")}
			r.Expiration = &types.LifecycleExpiration{Days: aws.Int32(1)}
		})}, nil},
		{"expired markers are fine", []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Expiration = &types.LifecycleExpiration{ExpiredObjectDeleteMarker: aws.Bool(true)}
		})}, nil},
		{"moves files away", []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Transitions = []types.Transition{{StorageClass: types.TransitionStorageClassGlacier}}
		})}, []string{"moves files to GLACIER"}},
	} {
		got := lifecycleFaults(c.rules, prefix, 7*day)
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			ok = ok && strings.Contains(got[i].Found, c.want[i]) && got[i].Mend != ""
		}
		if !ok {
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
	}
}

func TestNotified(t *testing.T) {
	t.Parallel()
	const arn, prefix = "arn:aws:sqs:eu-central-1:111122223333:q", "berth/"
	queue := func(arn string, on []types.Event, rules ...types.FilterRule) *s3.GetBucketNotificationConfigurationOutput {
		return &s3.GetBucketNotificationConfigurationOutput{QueueConfigurations: []types.QueueConfiguration{{QueueArn: &arn, Events: on,
			Filter: &types.NotificationConfigurationFilter{Key: &types.S3KeyFilter{FilterRules: rules}}}}}
	}
	all := []types.Event{"s3:ObjectCreated:*"}
	for _, c := range []struct {
		name      string
		in        *s3.GetBucketNotificationConfigurationOutput
		by, fault string
	}{
		{"nothing", &s3.GetBucketNotificationConfigurationOutput{}, "", "the bucket notifies nobody"},
		{"the queue", queue(arn, all), "the queue", ""},
		{"each by name", queue(arn, []types.Event{"s3:ObjectCreated:Put", "s3:ObjectCreated:Post", "s3:ObjectCreated:CompleteMultipartUpload"}), "the queue", ""},
		{"the prefix", queue(arn, all, types.FilterRule{Name: "prefix", Value: aws.String("berth/")}), "the queue", ""},
		{"another queue", queue(arn+"2", all), "", "the bucket notifies another queue than events.queue_url"},
		{"no multiparts", queue(arn, []types.Event{"s3:ObjectCreated:Put", "s3:ObjectCreated:Post"}), "", "the bucket does not notify s3:ObjectCreated:CompleteMultipartUpload"},
		{"a suffix", queue(arn, all, types.FilterRule{Name: "Suffix", Value: aws.String(".jpg")}), "", `the bucket notifies only keys that end in ".jpg"; Berth's end in anything`},
		{"a narrower prefix", queue(arn, all, types.FilterRule{Name: "Prefix", Value: aws.String("berth/a/")}), "", `the bucket notifies only keys under "berth/a/", not all under "berth/"`},
		{"EventBridge", &s3.GetBucketNotificationConfigurationOutput{EventBridgeConfiguration: &types.EventBridgeConfiguration{}}, "EventBridge, whose rule must reach the queue", ""},
		{"SNS", &s3.GetBucketNotificationConfigurationOutput{TopicConfigurations: []types.TopicConfiguration{{Events: all}}}, "an SNS topic, whose subscription must reach the queue", ""},
	} {
		if by, fault := notified(c.in, arn, prefix); by != c.by || fault != c.fault {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, by, fault, c.by, c.fault)
		}
	}
}

func TestSkew(t *testing.T) {
	t.Parallel()
	for by, want := range map[time.Duration]Status{0: OK, -29 * time.Second: OK, 30 * time.Second: Warning, -299 * time.Second: Warning, 5 * time.Minute: Failure, -time.Hour: Failure} {
		d := &doctor{}
		d.skew("clock", by, "the store's")
		if got := d.report.Findings[0]; got.Status != want {
			t.Errorf("%s: %+v, want %s", by, got, want)
		}
	}
}

// A policy is anybody's text: reading it never breaks, and what it does not clearly
// allow is not allowed.
func FuzzParsePolicy(f *testing.F) {
	f.Add(`{"Statement":[{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"SQS:SendMessage","Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::b"}}}]}`)
	f.Add(`{"Statement":[{"Effect":"Allow","Principal":"*","Action":["sqs:*"]}]}`)
	f.Add(`{"Statement":{"Effect":"Deny"}}`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, text string) {
		p := parsePolicy(text)
		if len(p.s3) > 0 && (!p.given || !strings.Contains(text, "Allow") && !strings.Contains(text, `\u`)) {
			t.Errorf("%q lets %v send", text, p.s3)
		}
	})
}

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]sendPolicy{
		`not JSON`: {},
		`{"Statement":{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"sqs:SendMessage","Condition":{"ArnLike":{"aws:SourceArn":"a:b:c"}}}}`: {given: true, s3: []string{"a:b:c"}},
		`{"Statement":[{"Effect":"Deny","Principal":"*","Action":"sqs:SendMessage"}]}`:                                                                             {given: true},
		`{"Statement":[{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"sqs:ReceiveMessage"}]}`:                                              {given: true},
		`{"Statement":[{"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage"}]}`:                                             {given: true, services: []string{"events.amazonaws.com"}},
		`{"Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage"}]}`:                                                                            {given: true, s3: []string{"*"}, loose: true},
		`{"Statement":[{"Effect":"Allow","Principal":"*","Action":"SQS:*","Condition":{"StringEquals":{"AWS:SourceAccount":"1"}}}]}`:                               {given: true, s3: []string{"*"}},
		`{"Statement":[{"Effect":"Allow","Principal":"*","Action":"SQS:*","Condition":{"ArnLike":{"aws:SourceArn":["a:b:c","a:b:d"]}}}]}`:                          {given: true, s3: []string{"a:b:c", "a:b:d"}},
	} {
		got := parsePolicy(text)
		if got.given != want.given || got.loose != want.loose || !slices.Equal(got.s3, want.s3) || !slices.Equal(got.services, want.services) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
