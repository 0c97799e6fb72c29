package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"berth/cmd/berthd/config"
	"berth/cmd/berthd/doctor"
	"berth/migrations"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// doctorCmd looks at the real thing.
type doctorCmd struct {
	configFlag
	Store   string          `help:"Only this store; without it all." placeholder:"NAME"`
	Wait    config.Duration `default:"90s" help:"How long a probe's notification may take." placeholder:"TIME"`
	NoProbe bool            `help:"Write no probe objects: look at configuration only."`
	JSON    bool            `name:"json" help:"The report as one JSON object."`
}

// Run looks, prints, and fails if anything must be mended.
func (d doctorCmd) Run(ctx context.Context, s streams) error {
	if d.Wait.Std() < time.Second || d.Wait.Std() > time.Hour {
		return usageError("--wait must be from 1s to 1h")
	}
	c, err := d.load()
	if err != nil {
		return err
	}
	if _, ok := c.Stores[d.Store]; d.Store != "" && !ok {
		return usageError(fmt.Sprintf("--store: there is no store %q; there are %v", d.Store, slices.Sorted(maps.Keys(c.Stores))))
	}
	conf, err := doctorConfig(ctx, c, d.Store)
	if err != nil {
		return err
	}
	conf.Wait, conf.NoProbe = d.Wait.Std(), d.NoProbe
	report := doctor.Run(ctx, conf)
	if d.JSON {
		e := json.NewEncoder(s.out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		err = doctor.Render(s.out, report)
	}
	if err == nil && report.Failures > 0 {
		err = fmt.Errorf("doctor: %d things must be mended", report.Failures)
	}
	return err
}

// doctorConfig is what the configuration expects of the world.
func doctorConfig(ctx context.Context, c *config.Config, only string) (doctor.Config, error) {
	out := doctor.Config{
		Database: c.Database.URL.Reveal(),
		Pending:  func(ctx context.Context) (int, error) { return migrations.Pending(ctx, c.Database.URL.Reveal()) },
	}
	if c.Events.QueueURL != "" {
		client, err := sqsClient(ctx, c)
		if err != nil {
			return out, err
		}
		out.Queue = &doctor.Queue{Client: client, URL: c.Events.QueueURL}
	}
	if c.Reap.Dispatch == config.DispatchSQS {
		client, err := sqsClient(ctx, c)
		if err != nil {
			return out, err
		}
		out.Reaps = &doctor.Queue{Client: client, URL: c.Reap.QueueURL}
	}
	stores, err := openStores(ctx, c, nil)
	if err != nil {
		return out, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Stores)) {
		if only != "" && name != only {
			continue
		}
		s := c.Stores[name]
		conf, err := awsConfig(ctx, s.Region, s.AccessKeyID, s.SecretAccessKey)
		if err != nil {
			return out, fmt.Errorf("store %s: %w", name, err)
		}
		o := stores[models.StoreName(name)]
		st := doctor.Store{
			Name: models.StoreName(name), Prefix: s.Prefix, Objects: o, Bucket: s.Bucket, Owner: s.ExpectedBucketOwner,
			AWS: ofAWS(s.Endpoint), Webhook: s.NotificationToken != "",
			S3: s3.NewFromConfig(conf, func(so *s3.Options) {
				so.UsePathStyle = *s.PathStyle
				so.RetryMaxAttempts = 2
				if s.Endpoint != "" {
					so.BaseEndpoint = &s.Endpoint
				}
				if s.ChecksumWhenRequired {
					so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
					so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
				}
			}),
		}
		expect(&st, c)
		out.Stores = append(out.Stores, st)
	}
	return out, nil
}

// expect fills in what the collections need of a store.
func expect(st *doctor.Store, c *config.Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Collections)) {
		p := c.Policies()[name]
		if p.Store != st.Name {
			continue
		}
		st.Primary = true
		if !slices.Contains(st.Algorithms, p.Algorithm) {
			st.Algorithms = append(st.Algorithms, p.Algorithm)
		}
		if !p.ChecksumRequired {
			st.Unpinned = append(st.Unpinned, name)
			if p.Algorithm.TypeFor(models.MethodMultipart) != models.Composite {
				st.UnpinnedParts = append(st.UnpinnedParts, name)
			}
		}
		if p.StorageClass != "" || p.SSEKMSKeyID != "" {
			n := slices.IndexFunc(st.Stored, func(o doctor.Stored) bool { return o.StorageClass == p.StorageClass && o.SSEKMSKeyID == p.SSEKMSKeyID })
			if n < 0 {
				n = len(st.Stored)
				st.Stored = append(st.Stored, doctor.Stored{StorageClass: p.StorageClass, SSEKMSKeyID: p.SSEKMSKeyID})
			}
			st.Stored[n].Collections = append(st.Stored[n].Collections, name)
		}
		if p.StorageClass != "" {
			st.Headers = append(st.Headers, "x-amz-storage-class")
		}
		if p.SSEKMSKeyID != "" {
			st.Headers = append(st.Headers, "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id")
		}
		st.HardDeadline, st.URLExpiry = max(st.HardDeadline, p.HardDeadline), max(st.URLExpiry, p.URLExpiry)
	}
	slices.Sort(st.Headers)
	st.Headers = slices.Compact(st.Headers)
	st.Origins = slices.Clone(c.CORS.AllowedOrigins)
	if u, err := url.Parse(c.PublicURL); err == nil && u.Host != "" { // the upload page
		if origin := u.Scheme + "://" + u.Host; !slices.Contains(st.Origins, origin) {
			st.Origins = append(st.Origins, origin)
		}
	}
}

func ofAWS(endpoint string) bool {
	if endpoint == "" {
		return true
	}
	u, err := url.Parse(endpoint)
	return err == nil && (strings.HasSuffix(u.Hostname(), ".amazonaws.com") || strings.HasSuffix(u.Hostname(), ".amazonaws.com.cn"))
}
