package models

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
	tib = int64(1) << 40
)

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		size, prefer, singleMax int64
		want                    Geometry
	}{
		{"nothing is one empty PUT", 0, 16 * mib, 16 * mib, Geometry{MethodSingle, 0, 1}},
		{"one byte", 1, 16 * mib, 16 * mib, Geometry{MethodSingle, 1, 1}},
		{"the largest single", 16 * mib, 16 * mib, 16 * mib, Geometry{MethodSingle, 16 * mib, 1}},
		{"one byte more", 16*mib + 1, 16 * mib, 16 * mib, Geometry{MethodMultipart, 16 * mib, 2}},
		{"defaults", 100 * mib, 0, 0, Geometry{MethodMultipart, 16 * mib, 7}},
		{"parts of less than 5 MiB are not to be had", 100 * mib, 1, 1, Geometry{MethodMultipart, 5 * mib, 20}},
		{"nor of more than 5 GiB", 20 * gib, 100 * gib, 1, Geometry{MethodMultipart, 5 * gib, 4}},
		{"nor a single PUT of more than 5 GiB", 5*gib + 1, 16 * mib, 100 * gib, Geometry{MethodMultipart, 16 * mib, 321}},
		{"a single PUT of 5 GiB", 5 * gib, 16 * mib, 100 * gib, Geometry{MethodSingle, 5 * gib, 1}},
		{"exactly 10,000 parts", 10_000 * 16 * mib, 16 * mib, 1, Geometry{MethodMultipart, 16 * mib, 10_000}},
		{"one byte beyond them", 10_000*16*mib + 1, 16 * mib, 1, Geometry{MethodMultipart, 17 * mib, 9412}},
		{"1 TiB", tib, 16 * mib, 0, Geometry{MethodMultipart, 105 * mib, 9987}},
		{"5 TiB, R2's limit", 5 * tib, 16 * mib, 0, Geometry{MethodMultipart, 525 * mib, 9987}},
		{"48.8 TiB", MaxObjectSize, 16 * mib, 0, Geometry{MethodMultipart, 5 * gib, 10_000}},
		{"48.8 TiB less one byte", MaxObjectSize - 1, 16 * mib, 0, Geometry{MethodMultipart, 5 * gib, 10_000}},
	} {
		got, err := Plan(c.size, c.prefer, c.singleMax)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	for size, code := range map[int64]Code{-1: CodeInvalidRequest, math.MinInt64: CodeInvalidRequest, MaxObjectSize + 1: CodeTooLarge, math.MaxInt64: CodeTooLarge} {
		if g, err := Plan(size, 16*mib, 16*mib); ErrorCode(err) != code || g != (Geometry{}) {
			t.Errorf("%d: %+v, %v", size, g, err)
		}
	}
	if MaxObjectSize != 53_687_091_200_000 {
		t.Errorf("48.8 TiB is %d bytes", MaxObjectSize)
	}
}

// Whatever is asked, the plan is one that S3 takes, and its parts are the file.
func TestPlanHoldsWithinLimits(t *testing.T) {
	t.Parallel()
	sizes := rapid.OneOf(
		rapid.Int64Range(0, 64*mib), rapid.Int64Range(0, 200*gib), rapid.Int64Range(0, MaxObjectSize),
		rapid.Custom(func(t *rapid.T) int64 { // at the edges of whole parts
			n := rapid.Int64Range(1, MaxParts).Draw(t, "parts")*rapid.Int64Range(5, 5*1024).Draw(t, "mib")*mib + rapid.Int64Range(-1, 1).Draw(t, "off")
			return min(n, MaxObjectSize)
		}),
	)
	odd := rapid.OneOf(rapid.Int64Range(0, 6*gib), rapid.Int64(), rapid.SampledFrom([]int64{0, 1, 5 * mib, 16 * mib, 5 * gib, math.MaxInt64}))
	rapid.Check(t, func(t *rapid.T) {
		size, prefer, single := sizes.Draw(t, "size"), odd.Draw(t, "prefer"), odd.Draw(t, "single")
		g, err := Plan(size, prefer, single)
		if err != nil {
			t.Fatal(err)
		}
		if g.PartCount < 1 || g.PartCount > MaxParts {
			t.Fatalf("%d parts", g.PartCount)
		}
		last := g.PartLength(size, g.PartCount)
		if sum := g.PartSize*int64(g.PartCount-1) + last; sum != size {
			t.Fatalf("%+v: the parts are %d bytes of %d", g, sum, size)
		}
		for _, n := range []int{1, g.PartCount/2 + 1, g.PartCount - 1} {
			if n >= 1 && n < g.PartCount && g.PartLength(size, n) != g.PartSize {
				t.Fatalf("part %d has another length", n)
			}
		}
		switch g.Method {
		case MethodSingle:
			if g.PartCount != 1 || size > MaxSinglePut || (single > 0 && size > single) || (single <= 0 && size > DefaultSingleMax) {
				t.Fatalf("%+v of %d, at most %d at once", g, size, single)
			}
		case MethodMultipart:
			if g.PartSize < MinPartSize || g.PartSize > MaxPartSize || last < 1 || last > g.PartSize {
				t.Fatalf("%+v, last %d", g, last)
			}
		default:
			t.Fatalf("%+v", g)
		}
	})
}
