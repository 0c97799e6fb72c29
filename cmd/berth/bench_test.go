package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"

	"berth/internal/testkit"
)

// These hold berth against the SDK's transfer manager with its defaults, which has the
// store's own credentials, opens nothing and verifies nothing: the same bytes, the same
// S3, by turns, so that what else the machine does falls on both.

// versus runs both by turns and reports the ratio of their medians. It fails beyond limit.
// The processor time of all parts is logged for each of n.
func versus(b *testing.B, limit float64, n int, sdk, berth func()) {
	b.Helper()
	timed := func(f func()) float64 {
		begun := time.Now()
		f()
		return time.Since(begun).Seconds()
	}
	sdk() // warm: the pages of the file, the connections of both
	berth()
	for name, f := range map[string]func(){"sdk": sdk, "berth": berth} {
		before := testkit.Processor()
		f()
		b.Logf("%s: processor for each of %d: %s", name, n, testkit.ProcessorSince(before, n))
	}
	var s, t []float64
	for b.Loop() {
		s, t = append(s, timed(sdk)), append(t, timed(berth))
		for len(s) < 5 {
			s, t = append(s, timed(sdk)), append(t, timed(berth))
		}
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	ratio := median(t) / median(s)
	b.ReportMetric(median(s), "sdk-s")
	b.ReportMetric(median(t), "berth-s")
	b.ReportMetric(ratio, "x-sdk")
	b.Logf("sdk %.2f, berth %.2f", s, t)
	if ratio > limit {
		b.Errorf("%.2fx of the SDK's time, must be at most %.2fx", ratio, limit)
	}
}

func BenchmarkPut1GiB(b *testing.B) {
	h := newDirectHarbour(b)
	path := filepath.Join(b.TempDir(), "gib.bin")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	chunk := makeFile(b, filepath.Join(b.TempDir(), "chunk"), 64*mib)
	for range 16 {
		if _, err := f.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	tm := transfermanager.New(h.s3.Client())
	n := 0
	versus(b, 0.95, 1, func() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		n++
		if _, err := tm.UploadObject(b.Context(), &transfermanager.UploadObjectInput{
			Bucket: &h.s3.Bucket, Key: aws.String(fmt.Sprint("sdk/", n)), Body: io.Reader(f)}); err != nil {
			b.Fatal(err)
		}
	}, func() { h.must("put", "-q", path) })
}

func BenchmarkPut2000Files(b *testing.B) {
	h := newDirectHarbour(b)
	dir := b.TempDir()
	var paths []string
	for i := range 2000 {
		p := filepath.Join(dir, fmt.Sprintf("%04d.bin", i))
		makeFile(b, p, 64<<10)
		paths = append(paths, p)
	}
	tm := transfermanager.New(h.s3.Client())
	n := 0
	versus(b, 1.6, 2000, func() {
		n++
		out, err := tm.UploadDirectory(b.Context(), &transfermanager.UploadDirectoryInput{
			Bucket: &h.s3.Bucket, Source: &dir, KeyPrefix: aws.String(fmt.Sprint("sdk/", n))})
		if err != nil || out.ObjectsUploaded != 2000 {
			b.Fatalf("%v, %+v", err, out)
		}
	}, func() { h.must(append([]string{"put", "-q"}, paths...)...) })
}
