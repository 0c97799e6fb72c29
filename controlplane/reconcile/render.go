package reconcile

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"berth/models"
)

// words say what a kind means.
var words = map[models.FindingKind]string{
	models.FindMissingObject:   "files whose object the store does not have",
	models.FindCorrupt:         "recorded versions with another size or ETag",
	models.FindOrphanObject:    "object versions that no row has",
	models.FindOrphanMultipart: "multipart uploads that nobody will complete",
	models.FindForeignVersion:  "versions under a living key that are not the file's",
	models.FindLeftover:        "versions and multiparts of replicas that should be gone",
	models.FindCounterDrift:    "counters that are not what the rows say",
	models.FindUnknown:         "objects under the prefix that are not of our shape, never touched",
}

// Render writes a report for people.
func Render(w io.Writer, r models.ReconcileReport) error {
	var b strings.Builder
	fmt.Fprintf(&b, "store %s, run %s, from a %s", r.Store, r.Run, r.Source)
	if !r.InventoryAt.IsZero() {
		fmt.Fprintf(&b, " of %s", r.InventoryAt.Format(time.RFC3339))
	}
	fmt.Fprintf(&b, ", in %.1f s\n", r.Seconds)
	fmt.Fprintf(&b, "looked at %d rows, %d versions (%s), %d open multiparts; left behind is what is older than %s\n",
		r.Rows, r.Versions, bytes(r.Bytes), r.Multiparts, r.Cutoff.Format(time.RFC3339))
	if r.Clean() {
		b.WriteString("nothing is wrong\n")
	}
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, k := range models.FindingKinds {
		c := r.Findings[k]
		if c == nil || c.Found == 0 {
			continue
		}
		fmt.Fprintf(t, "\n%s\t%d found", k, c.Found)
		if c.Bytes > 0 {
			fmt.Fprintf(t, " (%s)", bytes(c.Bytes))
		}
		if r.Repair && k != models.FindUnknown {
			fmt.Fprintf(t, ", %d mended", c.Mended)
		}
		if c.Failed > 0 {
			fmt.Fprintf(t, ", %d REFUSED", c.Failed)
		}
		fmt.Fprintf(t, "\t%s\n", words[k])
		for _, f := range c.Examples {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", f.Key, what(f), why(f))
		}
		if more := c.Found - int64(len(c.Examples)); more > 0 && len(c.Examples) > 0 {
			fmt.Fprintf(t, "  … and %d more\n", more)
		}
		if k == models.FindCounterDrift {
			for _, d := range r.Drift {
				of := fmt.Sprintf("tenant %s, owner %s, collection %s", d.Tenant, d.Owner, d.Collection)
				if d.Counter != "quotas" {
					of = "store " + string(d.Store)
				}
				fmt.Fprintf(t, "  %s of %s\t%d, %d bytes\tthe rows say %d, %d bytes\n", d.Counter, of, d.Count, d.Bytes, d.RealCount, d.RealBytes)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Held > 0 {
		fmt.Fprintf(&b, "\n%d were left alone: this run has removed its most; look at the examples, then run it again\n", r.Held)
	}
	if !r.Repair && !r.Clean() {
		b.WriteString("\nnothing was changed; --repair mends\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func what(f models.Finding) string {
	switch {
	case f.S3UploadID != "":
		return "multipart " + f.S3UploadID
	case f.Marker:
		return "delete marker " + f.VersionID
	}
	return "version " + f.VersionID + ", " + bytes(f.Size)
}

func why(f models.Finding) string {
	out := f.Why
	if f.FileID != "" {
		out += fmt.Sprintf(" (%s, %s)", f.FileID, f.FileState)
	}
	if f.Failure != "" {
		out += "; not mended: " + f.Failure
	}
	return out
}

func bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v, i = v/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}
