package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func (d *doctor) credentials(ctx context.Context, s *Store) bool {
	const check = "credentials"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := d.Now()
	until, ends := s.Objects.CredentialLife(ctx, now)
	left := until.Sub(now).Round(time.Second)
	switch {
	case !ends:
		d.ok(check, "do not expire")
	case left <= 0:
		d.add(check, Failure, "there are none, or they have expired",
			"Give access_key_id and secret_access_key of the store, or a role: environment, web identity, or the container's.",
			`module "service" gives each role's task its own role; nothing is to be set`)
		return false
	case left < s.URLExpiry:
		d.add(check, Warning, fmt.Sprintf("end in %s, before URLs that may live %s: those are signed for as long as the credentials live", left, s.URLExpiry),
			"Lower url_expiry to what the credentials reach, or let the role's sessions be longer. Clients sign again when URLs end.",
			`url_expiry of the collections; max_session_duration of a role that is assumed`)
	default:
		d.ok(check, "live for %s, URLs for at most %s", left, s.URLExpiry)
	}
	return true
}

// bucket tells whether the bucket is there and ours to use, and compares clocks.
func (d *doctor) bucket(ctx context.Context, s *Store) bool {
	const check = "bucket"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := s.S3.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.Bucket, ExpectedBucketOwner: optional(s.Owner)})
	if err == nil {
		d.ok(check, "%s answers", s.Bucket)
		if at, ok := awsmiddleware.GetServerTime(out.ResultMetadata); ok {
			d.skew("clock", at.Sub(d.Now()), "the store's")
		}
		return true
	}
	var status int
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) && resp.Response != nil {
		status = resp.HTTPStatusCode()
		if at, perr := http.ParseTime(resp.Response.Header.Get("Date")); perr == nil {
			d.skew("clock", at.Sub(d.Now()), "the store's")
		}
	}
	switch status {
	case http.StatusNotFound:
		d.add(check, Failure, s.Bucket+" does not exist", "Make the bucket, or correct stores."+string(s.Name)+".bucket.", `module "bucket" { bucket = "`+s.Bucket+`" … }`)
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusBadRequest:
		d.add(check, Failure, s.Bucket+" is in another region, or the request's form is refused", "Correct stores."+string(s.Name)+".region.", "")
	case http.StatusForbidden:
		d.add(check, Failure, s.Bucket+" refuses these credentials",
			"Look at the credentials, at what they may do with the bucket (s3:ListBucket at least), at expected_bucket_owner, and at the clock.",
			`module "service" gives the roles what they need; module "bucket" has policies for roles of your own as output role_policies_json`)
	default:
		d.add(check, Failure, s.Bucket+" cannot be reached: "+short(err), "Look at stores."+string(s.Name)+".endpoint and the network between here and there.", "")
	}
	return false
}

func (d *doctor) versioning(ctx context.Context, s *Store) {
	const check, terraform = "versioning", `module "bucket" sets aws_s3_bucket_versioning to "Enabled"; apply it again`
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := s.S3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.Bucket, ExpectedBucketOwner: optional(s.Owner)})
	if err != nil {
		d.cannot(check, "versioning", "s3:GetBucketVersioning", err)
		return
	}
	mend := "Turn versioning on for the bucket. Files that were written without are safe only as long as nothing overwrites them."
	switch out.Status {
	case types.BucketVersioningStatusEnabled:
		d.ok(check, "is on")
	case types.BucketVersioningStatusSuspended:
		d.add(check, Failure, "is suspended: new objects have no version of their own, and a late PUT replaces the bytes of a verified file", mend, terraform)
	default:
		d.add(check, Failure, "is off: a late PUT replaces the bytes of a verified file", mend, terraform)
	}
	if out.MFADelete == types.MFADeleteStatusEnabled {
		d.add(check, Failure, "MFA delete is on: no version can be removed by a program, so nothing that is left over ever goes",
			"Turn MFA delete off, as the account's root user; guard the bucket by roles.", `module "bucket" leaves mfa_delete off`)
	}
}

// lock warns of a default retention, under which the reaper's deletes are refused.
func (d *doctor) lock(ctx context.Context, s *Store) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := s.S3.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &s.Bucket, ExpectedBucketOwner: optional(s.Owner)})
	if err != nil || out.ObjectLockConfiguration == nil || out.ObjectLockConfiguration.Rule == nil || out.ObjectLockConfiguration.Rule.DefaultRetention == nil {
		return // without, or not known here: nothing to say
	}
	r := out.ObjectLockConfiguration.Rule.DefaultRetention
	d.add("object lock", Warning, fmt.Sprintf("every object is held for %d days: what is abandoned or deleted stays until then, as delete_failed",
		aws.ToInt32(r.Days)+365*aws.ToInt32(r.Years)), "Mean it, or take the default retention away.", `module "bucket" sets no object lock`)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
