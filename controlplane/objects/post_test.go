package objects

import (
	"context"
	"encoding/base64"
	"maps"
	"testing"
	"time"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"pgregory.net/rapid"
)

// The SDK's clock for forms cannot be held: its time is read from its answer.
func TestFormsAreTheSDKs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg, key := configs.Draw(t, "config"), keys.Draw(t, "key")
		life := time.Duration(rapid.Int64Range(1, maxExpiry).Draw(t, "life")) * time.Second
		spec := models.ObjectSpec{Key: key, UploadID: models.UploadID(values.Draw(t, "upload")), ContentType: values.Draw(t, "type"), Algorithm: models.SHA256}
		var digest []byte
		if rapid.Bool().Draw(t, "pinned") {
			digest = rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest")
		}
		lo := rapid.Int64Range(0, 1000).Draw(t, "min")
		hi := rapid.Int64Range(lo, models.MaxSinglePut).Draw(t, "max")

		conditions := []any{[]any{"content-length-range", lo, hi}}
		own := map[string]string{}
		add := func(name, value string) {
			if value != "" {
				own[name] = value
				conditions = append(conditions, map[string]string{name: value})
			}
		}
		add("Content-Type", spec.ContentType)
		add("x-amz-meta-berth-upload", string(spec.UploadID))
		if digest != nil {
			add("x-amz-checksum-sha256", base64.StdEncoding.EncodeToString(digest))
		}
		want, err := sdkPresigner(cfg, time.Now(), 0).PresignPostObject(context.Background(), &s3.PutObjectInput{Bucket: &cfg.Bucket, Key: &key},
			func(o *s3.PresignPostOptions) { o.Expires, o.Conditions = life, conditions })
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse("20060102T150405Z", want.Values["X-Amz-Date"])
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, until, err := s.PresignPost(context.Background(), spec, lo, hi, digest, life, now)
		if err != nil || !until.Equal(now.Add(life)) {
			t.Fatalf("%v, %v", until, err)
		}
		maps.Copy(want.Values, own)
		if got.URL != want.URL || !maps.Equal(got.Fields, want.Values) {
			t.Fatalf("\n got %s %v\nwant %s %v", got.URL, got.Fields, want.URL, want.Values)
		}
	})
}

func TestRefusesForms(t *testing.T) {
	t.Parallel()
	s := mustNew(t, plainConfig())
	for name, c := range map[string]struct {
		spec   models.ObjectSpec
		lo, hi int64
		digest []byte
	}{
		"no key":       {models.ObjectSpec{}, 0, 1, nil},
		"negative":     {models.ObjectSpec{Key: "k"}, -1, 1, nil},
		"backwards":    {models.ObjectSpec{Key: "k"}, 2, 1, nil},
		"too large":    {models.ObjectSpec{Key: "k"}, 0, models.MaxSinglePut + 1, nil},
		"short digest": {models.ObjectSpec{Key: "k", Algorithm: models.SHA256}, 0, 1, make([]byte, 8)},
	} {
		if form, _, err := s.PresignPost(t.Context(), c.spec, c.lo, c.hi, c.digest, time.Hour, time.Now()); models.ObjectKind(err) != models.ObjectInvalid || form.Fields != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
