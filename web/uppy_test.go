package web_test

import (
	"fmt"
	"testing"
	"time"

	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Uppy 5 and 6 from npm, unmodified, in Chromium. What the script leaves open or aborts
// is gone from S3 in the end.
func TestUppyInChromium(t *testing.T) {
	t.Parallel()
	b := start(t, func(c map[string]any) {
		c["collections"] = map[string]any{"default": map[string]any{}, "small": map[string]any{"max_size": "1MiB", "max_open": 3}}
	})
	grant := []string{"--scope", "upload", "--ttl", "1h", "--grant", "{}"}
	b.script(t, "uppy/uppy.test.js", 8*time.Minute,
		"ANN_GRANT="+b.token(t, "ann", grant...), "EVE_GRANT="+b.token(t, "eve", grant...),
		"ANN_TOKEN="+b.token(t, "ann"), "ANN_SMALL="+b.token(t, "ann", "--scope", "upload", "--ttl", "1h", "--grant", `{"collection":"small","max_bytes":2000}`))

	testkit.Eventually(t, time.Minute, func() error {
		out, err := b.S3.Client().ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &b.S3.Bucket})
		if err != nil {
			return err
		}
		var open int
		if err := b.DB.QueryRow(t.Context(), "SELECT count(*) FROM uploads WHERE method = 'multipart' AND state IN ('init', 'uploading', 'completing')").Scan(&open); err != nil {
			return err
		}
		if len(out.Uploads) != open {
			return fmt.Errorf("S3 has %d multiparts, of %d that are open", len(out.Uploads), open)
		}
		return nil
	})
}
