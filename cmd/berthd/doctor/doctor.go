// Package doctor looks at the real thing that berthd is configured for — database,
// buckets, queue, clocks, credentials — and says of each what it found and, where it is
// not as it must be, how to mend it, in words and in Terraform.
//
// It changes nothing but probe objects of its own, under <prefix>berth-doctor/, which it
// removes by version id when it is done. It may import models, controlplane/objects and
// events.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"berth/controlplane/objects"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
)

// Folder is where the probes are, under a store's prefix. No collection can be called so
// and lose a file to it: only keys of a doctor's own run are removed.
const Folder = "berth-doctor/"

// Channel is the PostgreSQL channel by which a running berthd says which probe it heard of.
const Channel = "berth_doctor"

// Status is how serious a finding is.
type Status string

const (
	OK      Status = "ok"
	Warning Status = "warning" // works, with less than there could be
	Failure Status = "failure" // files will be lost, stuck or refused
)

// Finding is one line of the report.
type Finding struct {
	Check     string           `json:"check"`
	Store     models.StoreName `json:"store,omitempty"`
	Status    Status           `json:"status"`
	Found     string           `json:"found"`
	Mend      string           `json:"mend,omitempty"`      // in words
	Terraform string           `json:"terraform,omitempty"` // in this project's modules
}

// Report is all that was found.
type Report struct {
	Findings []Finding `json:"findings"`
	Failures int       `json:"failures"`
	Warnings int       `json:"warnings"`
}

// Store is one bucket to look at, and what is expected of it.
type Store struct {
	Name    models.StoreName
	Prefix  string
	Objects *objects.Store
	S3      *s3.Client // for the bucket's configuration, which the adapter never asks for
	Bucket  string
	Owner   string // expected account; "": any
	AWS     bool   // AWS's own S3: what it cannot do without is a failure

	// Primary tells that clients write here. A store of copies needs neither CORS nor events.
	Primary       bool
	Algorithms    []models.Algorithm // that its collections use
	Unpinned      []string           // collections that take bytes whose checksum nobody told
	UnpinnedParts []string           // and those of them whose parts of declared size may come without
	Headers       []string           // that its collections sign beside the usual ones
	Stored        []Stored           // how its collections keep objects, where not as the bucket does
	Origins       []string           // pages that send and read from browsers; none: no browsers are expected
	HardDeadline  time.Duration      // the longest life of an upload
	URLExpiry     time.Duration      // the longest of its collections
	Webhook       bool               // it notifies by POST /v1/notifications/{store}
}

// Queue is one of the queues.
type Queue struct {
	Client *sqs.Client
	URL    string
}

// Config says what to look at.
type Config struct {
	Database string // its URL
	Pending  func(context.Context) (int, error)
	Stores   []Store
	Queue    *Queue        // nil: none is configured
	Reaps    *Queue        // of due deletions; nil: they are not dispatched
	Wait     time.Duration // for a probe's notification
	NoProbe  bool          // write nothing: look at configuration only
	Now      func() time.Time
	HTTP     *http.Client // sends what clients would; nil: one of its own
}

// Run looks at everything, and never stops at the first fault.
func Run(ctx context.Context, c Config) Report {
	d := &doctor{Config: c}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.HTTP == nil {
		d.HTTP = &http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	d.database(ctx)
	d.queue(ctx)
	d.reapQueue(ctx)
	for i := range c.Stores {
		d.store(ctx, &c.Stores[i])
	}
	for _, f := range d.report.Findings {
		switch f.Status {
		case Failure:
			d.report.Failures++
		case Warning:
			d.report.Warnings++
		}
	}
	return d.report
}

type doctor struct {
	Config
	report   Report
	at       models.StoreName // the store that is looked at
	queueARN string
	backlog  int // messages that the queue held before the probes
	policy   sendPolicy
}

// store looks at one bucket. What needs the bucket is left out when it cannot be reached.
func (d *doctor) store(ctx context.Context, s *Store) {
	d.at = s.Name
	defer func() { d.at = "" }()
	if !d.credentials(ctx, s) || !d.bucket(ctx, s) {
		return
	}
	d.versioning(ctx, s)
	d.lock(ctx, s)
	cors := d.cors(ctx, s)
	d.lifecycle(ctx, s)
	notes := d.notifications(ctx, s)
	if d.NoProbe {
		return
	}
	d.probe(ctx, s, cors, notes)
}

func (d *doctor) add(check string, status Status, found, mend, terraform string) {
	d.report.Findings = append(d.report.Findings,
		Finding{Check: check, Store: d.at, Status: status, Found: found, Mend: mend, Terraform: terraform})
}

func (d *doctor) ok(check, format string, args ...any) {
	d.add(check, OK, fmt.Sprintf(format, args...), "", "")
}

// cannot notes that a part of a bucket's configuration could not be read. What a store
// does not know (501) or does not let us read is a warning: it may be as it should.
func (d *doctor) cannot(check, what, action string, err error) {
	switch {
	case unknown(err):
		d.add(check, Warning, "the store knows no "+what+" ("+code(err)+")",
			"See infra/stores/ for what this store has instead.", "")
	case denied(err):
		d.add(check, Warning, what+" cannot be read: access is denied",
			"Run the doctor with credentials that may "+action+", or look yourself.",
			`module "service" gives its role "operator" these rights; module "bucket" has the policy in output role_policies_json`)
	default:
		d.add(check, Failure, what+" cannot be read: "+short(err), "Look whether the store answers; then try again.", "")
	}
}

func unknown(err error) bool {
	switch code(err) {
	case "NotImplemented", "MethodNotAllowed", "XNotImplemented":
		return true
	}
	var r interface{ HTTPStatusCode() int }
	return errors.As(err, &r) && (r.HTTPStatusCode() == http.StatusNotImplemented || r.HTTPStatusCode() == http.StatusMethodNotAllowed)
}

func denied(err error) bool {
	switch code(err) {
	case "AccessDenied", "AccessDeniedException", "Forbidden", "UnauthorizedOperation", "AWS.SimpleQueueService.AccessDenied":
		return true
	}
	return models.ObjectKind(err) == models.ObjectDenied
}

func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// short is an error without the SDK's frame around it, and without URLs, which may be signed.
func short(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return strings.TrimSuffix(api.ErrorCode()+": "+api.ErrorMessage(), ": ")
	}
	var o *models.ObjectError
	if errors.As(err, &o) {
		return o.Error()
	}
	var op interface{ Timeout() bool }
	if errors.As(err, &op) && op.Timeout() {
		return "no answer in time"
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e
	}
	text := err.Error()
	if strings.Contains(text, "://") {
		return "the call failed"
	}
	return text
}

// Render prints a report for people.
func Render(w io.Writer, r Report) error {
	mark := map[Status]string{OK: "ok  ", Warning: "WARN", Failure: "FAIL"}
	var b strings.Builder
	for _, f := range r.Findings {
		where := f.Check
		if f.Store != "" {
			where = string(f.Store) + " " + f.Check
		}
		fmt.Fprintf(&b, "%s  %s: %s\n", mark[f.Status], where, f.Found)
		if f.Mend != "" {
			fmt.Fprintf(&b, "        mend: %s\n", f.Mend)
		}
		if f.Terraform != "" {
			fmt.Fprintf(&b, "        terraform: %s\n", f.Terraform)
		}
	}
	fmt.Fprintf(&b, "%d checks, %d failures, %d warnings\n", len(r.Findings), r.Failures, r.Warnings)
	_, err := io.WriteString(w, b.String())
	return err
}
