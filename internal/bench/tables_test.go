package bench

import (
	"crypto/md5" // #nosec G501 -- names that PostgreSQL makes too
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

// FilesEnv is how many files the larger tables hold.
const FilesEnv = "BERTH_BENCH_FILES"

// BenchmarkFullTables compares open, claim and event look-up with many files in the tables
// with the same at 10,000, by turns: the contract wants at most 1.3 at 10 million, which
// BERTH_BENCH_FILES sets; a million is the default.
func BenchmarkFullTables(b *testing.B) {
	many := 1_000_000
	if v := os.Getenv(FilesEnv); v != "" {
		var err error
		if many, err = strconv.Atoi(v); err != nil {
			b.Fatal(err)
		}
	}
	few, full := filled(b, 10_000), filled(b, many)
	const rounds, each = 40, 10
	for _, work := range []struct {
		name string
		do   func(s *stack.Stack, size, i int) error
	}{
		{"open", func(s *stack.Stack, _, i int) error {
			_, err := s.Service.Open(b.Context(), stack.Caller(fmt.Sprint("new-", i%50)), controlplane.OpenRequest{Collection: "default", Name: "a.bin", Size: 16})
			return err
		}},
		{"claim", func(s *stack.Stack, _, _ int) error {
			now := time.Now()
			ks, err := s.Store.Claim(b.Context(), models.Claiming{Kind: models.TaskReap, Owner: "bench", Until: now.Add(time.Hour), Limit: 1, Now: now})
			if err == nil && len(ks) != 1 {
				err = fmt.Errorf("%d tasks claimed", len(ks))
			}
			return err
		}},
		{"lookup", func(s *stack.Stack, size, i int) error {
			var keys []string
			for k := range 10 {
				// Of the newest: events are about what was sent just now. The keys are random.
				keys = append(keys, fmt.Sprintf("b/default/%x", md5.Sum([]byte(strconv.Itoa(size-1-(i*7919+k*104729)%10_000)))))
			}
			us, err := s.Store.UploadsAt(b.Context(), stack.Main, keys)
			if err == nil && len(us) != 10 {
				err = fmt.Errorf("%d uploads found", len(us))
			}
			return err
		}},
	} {
		var a, z []float64
		timed := func(s *stack.Stack, size, round int) float64 {
			begun := time.Now()
			for i := range each {
				if err := work.do(s, size, round*each+i); err != nil {
					b.Fatal(work.name, err)
				}
			}
			return time.Since(begun).Seconds() * 1000 / each
		}
		for i := range rounds + 5 {
			x, y := timed(few, 10_000, i), timed(full, many, i)
			if i >= 5 { // the first warm the caches of both
				a, z = append(a, x), append(z, y)
			}
		}
		b.ReportMetric(median(a), work.name+"-10k-ms")
		b.ReportMetric(median(z), work.name+"-full-ms")
		b.ReportMetric(median(z)/median(a), work.name+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

func filled(b *testing.B, n int) *stack.Stack {
	b.Helper()
	s := stack.New(b)
	s.Fill(b, n, n/20)
	return s
}
