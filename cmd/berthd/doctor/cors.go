package doctor

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// What browsers need of a bucket's CORS.
var (
	// CORSMethods are PUT for parts and objects, POST for form uploads, GET and HEAD to read.
	CORSMethods = []string{http.MethodPut, http.MethodPost, http.MethodGet, http.MethodHead}
	// CORSExposed are the headers that clients read from S3's answers.
	CORSExposed = []string{"ETag", "x-amz-version-id", "x-amz-checksum-sha256", "x-amz-checksum-crc64nvme", "x-amz-checksum-crc32c"}
	// CORSAllowed are the headers that signed requests carry.
	CORSAllowed = []string{"content-type", "if-none-match", "x-amz-meta-berth-upload",
		"x-amz-checksum-sha256", "x-amz-checksum-crc64nvme", "x-amz-checksum-crc32c"}
)

const (
	corsMend = "Let the bucket's CORS allow the pages' origins with the methods PUT, POST, GET and HEAD, the headers content-type, content-md5, x-amz-* and if-none-match, " +
		"and expose, each by its name, ETag, x-amz-version-id and the x-amz-checksum-* headers."
	corsTerraform = `module "bucket" { cors_allowed_origins = [%s] } writes all of it`
)

// corsView is what the configuration said, for the probe to try in earnest.
type corsView struct {
	origin string // to try with; "" where no browser is expected and there are no rules
	known  bool   // the configuration could be read
	good   bool
}

func (d *doctor) cors(ctx context.Context, s *Store) corsView {
	const check = "cors"
	if !s.Primary {
		d.ok(check, "is not needed: no client writes here")
		return corsView{}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	view := corsView{known: true}
	if len(s.Origins) > 0 {
		view.origin = tryOrigin(s.Origins[0])
	}
	terraform := fmt.Sprintf(corsTerraform, quoted(s.Origins))
	out, err := s.S3.GetBucketCors(ctx, &s3.GetBucketCorsInput{Bucket: &s.Bucket, ExpectedBucketOwner: optional(s.Owner)})
	switch {
	case code(err) == "NoSuchCORSConfiguration" || err == nil && len(out.CORSRules) == 0:
		if len(s.Origins) == 0 {
			d.add(check, Warning, "there is none: browsers cannot send to the bucket, and none are expected (cors.allowed_origins and public_url are empty)", corsMend, terraform)
		} else {
			d.add(check, Failure, "there is none: every upload from a browser fails before its first byte", corsMend, terraform)
		}
		return view
	case err != nil:
		view.known = false
		d.cannot(check, "CORS configuration", "s3:GetBucketCORS", err)
		return view
	}
	origins := s.Origins
	if len(origins) == 0 { // whatever the rules are for
		origins = out.CORSRules[0].AllowedOrigins[:min(1, len(out.CORSRules[0].AllowedOrigins))]
	}
	view.good = true
	for _, o := range origins {
		origin := tryOrigin(o)
		if view.origin == "" {
			view.origin = origin
		}
		for _, fault := range corsFaults(out.CORSRules, origin, s.Headers) {
			view.good = false
			d.add(check, Failure, fmt.Sprintf("for pages of %s: %s", o, fault), corsMend, terraform)
		}
	}
	if view.good {
		d.ok(check, "lets browsers send, and read what S3 attests")
	}
	return view
}

// tryOrigin is an origin that a pattern means.
func tryOrigin(pattern string) string {
	if pattern == "*" {
		return "https://berth-doctor.invalid"
	}
	return strings.ReplaceAll(pattern, "*", "berth-doctor")
}

// corsFaults tells what a browser on a page of the origin would miss. As S3 does, the
// first rule that fits origin, method and request headers is the one that counts.
func corsFaults(rules []types.CORSRule, origin string, more []string) []string {
	var faults []string
	if !slices.ContainsFunc(rules, func(r types.CORSRule) bool { return matchAny(r.AllowedOrigins, origin, false) }) {
		return []string{"no rule allows this origin"}
	}
	hidden := map[string][]string{} // header → methods whose answers hide it
	for _, method := range CORSMethods {
		var allowed *types.CORSRule
		var lacking []string
		for i, r := range rules {
			if !matchAny(r.AllowedOrigins, origin, false) || !slices.Contains(r.AllowedMethods, method) {
				continue
			}
			lacks := missing(r.AllowedHeaders, sentWith(method, more))
			if len(lacks) == 0 {
				allowed = &rules[i]
				break
			}
			if lacking == nil {
				lacking = lacks
			}
		}
		switch {
		case allowed != nil:
			for _, h := range missing(allowed.ExposeHeaders, CORSExposed) {
				hidden[h] = append(hidden[h], method)
			}
		case lacking != nil:
			faults = append(faults, fmt.Sprintf("%s may not carry the header %s", method, strings.Join(lacking, ", ")))
		default:
			faults = append(faults, "the method "+method+" is not allowed")
		}
	}
	for _, h := range CORSExposed {
		if m := hidden[h]; m != nil {
			faults = append(faults, fmt.Sprintf("the header %s is not exposed to %s", h, strings.Join(m, ", ")))
		}
	}
	return faults
}

// sentWith are the headers that a browser asks for in the preflight of a method.
func sentWith(method string, more []string) []string {
	if method != http.MethodPut {
		return nil // a form's are fields, and reads need none
	}
	return append(slices.Clone(CORSAllowed), more...)
}

func missing(patterns, want []string) []string {
	var out []string
	for _, w := range want {
		if !matchAny(patterns, w, true) {
			out = append(out, w)
		}
	}
	return out
}

// matchAny tells whether a pattern with at most one * matches; header names fold case.
func matchAny(patterns []string, s string, fold bool) bool {
	if fold {
		s = strings.ToLower(s)
	}
	return slices.ContainsFunc(patterns, func(p string) bool {
		if fold {
			p = strings.ToLower(p)
		}
		head, tail, star := strings.Cut(p, "*")
		if !star {
			return p == s
		}
		return len(s) >= len(head)+len(tail) && strings.HasPrefix(s, head) && strings.HasSuffix(s, tail)
	})
}

func quoted(list []string) string {
	if len(list) == 0 {
		return `"https://your-app.example.com"`
	}
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = `"` + s + `"`
	}
	return strings.Join(q, ", ")
}
