package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const day = 24 * time.Hour

func (d *doctor) lifecycle(ctx context.Context, s *Store) {
	const check = "lifecycle"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := s.S3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &s.Bucket, ExpectedBucketOwner: optional(s.Owner)})
	var rules []types.LifecycleRule
	switch {
	case code(err) == "NoSuchLifecycleConfiguration":
	case err != nil:
		d.cannot(check, "lifecycle", "s3:GetLifecycleConfiguration", err)
		return
	default:
		rules = out.Rules
	}
	faults := lifecycleFaults(rules, s.Prefix, s.HardDeadline)
	for _, f := range faults {
		d.add(check, f.Status, f.Found, f.Mend, f.Terraform)
	}
	if len(faults) == 0 {
		d.ok(check, "aborts what stays incomplete and expires noncurrent versions")
	}
}

// lifecycleFaults judges the rules for the prefix.
func lifecycleFaults(rules []types.LifecycleRule, prefix string, hard time.Duration) []Finding {
	var out []Finding
	say := func(status Status, mend, terraform, format string, args ...any) {
		out = append(out, Finding{Status: status, Found: fmt.Sprintf(format, args...), Mend: mend, Terraform: terraform})
	}
	aborts, expires := false, false
	for i := range rules {
		r := &rules[i]
		if r.Status != types.ExpirationStatusEnabled {
			continue
		}
		own, narrowed := filterOf(r)
		if !strings.HasPrefix(prefix, own) && !strings.HasPrefix(own, prefix) {
			continue
		}
		whole := strings.HasPrefix(prefix, own) && !narrowed
		name := fmt.Sprintf("rule %q", aws.ToString(r.ID))
		if a := r.AbortIncompleteMultipartUpload; a != nil {
			aborts = aborts || whole
			if after := time.Duration(aws.ToInt32(a.DaysAfterInitiation)) * day; after < hard {
				say(Failure, "Let it abort later than any hard_deadline, or shorten the deadlines.", `module "bucket" { abort_incomplete_days = … }`,
					"%s aborts uploads after %d days, while uploads may live %s", name, aws.ToInt32(a.DaysAfterInitiation), hard)
			}
		}
		if r.NoncurrentVersionExpiration != nil {
			expires = expires || whole
		}
		if e := r.Expiration; e != nil && (e.Days != nil || e.Date != nil) {
			say(Failure, "Take the expiration of current versions out of the rule: files are deleted through Berth.", `module "bucket" expires noncurrent versions only`,
				"%s deletes the current versions under the prefix: files vanish that their owners see", name)
		}
		for _, t := range r.Transitions {
			if t.StorageClass == types.TransitionStorageClassGlacier || t.StorageClass == types.TransitionStorageClassDeepArchive {
				say(Warning, "Keep classes that answer at once: STANDARD_IA, GLACIER_IR, INTELLIGENT_TIERING.", "",
					"%s moves files to %s, from which a read URL is refused until they are restored", name, t.StorageClass)
			}
		}
	}
	if !aborts {
		say(Failure, "Add a rule that aborts incomplete multipart uploads some days after the longest hard_deadline: the net below Berth's own cleaning.",
			`module "bucket" { abort_incomplete_days = 8 }`, "no rule aborts incomplete uploads under the whole prefix %q: parts that Berth cannot see any more are paid for, for ever", prefix)
	}
	if !expires {
		say(Failure, "Add a rule that expires noncurrent versions after some days.", `module "bucket" { noncurrent_days = 30 }`,
			"no rule expires noncurrent versions under the whole prefix %q: what was overwritten from outside stays for ever", prefix)
	}
	return out
}

// filterOf is a rule's prefix, and whether it takes only some of the objects under it.
func filterOf(r *types.LifecycleRule) (prefix string, narrowed bool) {
	f := r.Filter
	if f == nil {
		return aws.ToString(r.Prefix), false //nolint:staticcheck // deprecated, and still what many buckets have
	}
	if a := f.And; a != nil {
		return aws.ToString(a.Prefix), len(a.Tags) > 0 || a.ObjectSizeGreaterThan != nil || a.ObjectSizeLessThan != nil
	}
	return aws.ToString(f.Prefix), f.Tag != nil || f.ObjectSizeGreaterThan != nil || f.ObjectSizeLessThan != nil
}
