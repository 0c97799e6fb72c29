package models

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"hash/crc32"
	"hash/crc64"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var all = []Algorithm{SHA256, CRC64NVME, CRC32C, CRC32}

// Source: the check values of the CRC catalogue, and FIPS 180-4's of SHA-256.
func TestCheckValues(t *testing.T) {
	t.Parallel()
	for alg, want := range map[Algorithm]string{CRC32: "cbf43926", CRC32C: "e3069283", CRC64NVME: "ae8b14860a799888"} {
		raw, err := base64.StdEncoding.DecodeString(alg.Sum([]byte("123456789")))
		if err != nil || hex.EncodeToString(raw) != want {
			t.Errorf("%s: %x, want %s", alg, raw, want)
		}
	}
	if got := SHA256.Sum([]byte("abc")); got != "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=" {
		t.Errorf("sha256: %s", got)
	}
}

func TestAlgorithmFacts(t *testing.T) {
	t.Parallel()
	for _, a := range all {
		if got := a.New().Size(); got != a.Size() {
			t.Errorf("%s: the hash is %d bytes, Size says %d", a, got, a.Size())
		}
		if len(a.New().Sum(nil)) != a.Size() || a.Header() != "x-amz-checksum-"+string(a) {
			t.Errorf("%s: %s", a, a.Header())
		}
		if a.TypeFor(MethodSingle) != FullObject {
			t.Errorf("%s: a single PUT is always whole", a)
		}
		if want := map[bool]ChecksumType{true: FullObject, false: Composite}[a.Linear()]; a.TypeFor(MethodMultipart) != want {
			t.Errorf("%s: multipart is %s", a, a.TypeFor(MethodMultipart))
		}
	}
	if SHA256.Linear() {
		t.Error("SHA-256 does not combine")
	}
	if Algorithm("md5").Size() != 0 {
		t.Error("an unknown algorithm has a size")
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown algorithm made a hash")
		}
	}()
	Algorithm("md5").New()
}

func raw(a Algorithm, b []byte) []byte {
	h := a.New()
	h.Write(b)
	return h.Sum(nil)
}

// The CRC of the whole follows from those of any pieces, empty ones too.
func TestFullObjectOfEqualsTheDirectSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom([]Algorithm{CRC64NVME, CRC32C, CRC32}).Draw(t, "alg")
		pieces := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 8).Draw(t, "pieces")
		var digests [][]byte
		var lengths []int64
		for _, p := range pieces {
			digests = append(digests, raw(a, p))
			lengths = append(lengths, int64(len(p)))
		}
		got, ok := FullObjectOf(a, digests, lengths)
		want := Checksum{Algorithm: a, Type: FullObject, Value: a.Sum(bytes.Join(pieces, nil))}
		if !ok || got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// Large and equal parts with a short last one, as uploads are: against one pass.
func TestFullObjectOfParts(t *testing.T) {
	t.Parallel()
	data := make([]byte, 3<<20+12345)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for _, a := range []Algorithm{CRC64NVME, CRC32C, CRC32} {
		var digests [][]byte
		var lengths []int64
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1<<20)
			digests, lengths, rest = append(digests, raw(a, rest[:n])), append(lengths, int64(n)), rest[n:]
		}
		if got, ok := FullObjectOf(a, digests, lengths); !ok || got.Value != a.Sum(data) {
			t.Errorf("%s: %v, want %s", a, got, a.Sum(data))
		}
	}
}

// Lengths that nobody can hash in a test: zeros of 48.8 TiB by doubling, which is the
// combination with itself.
func TestFullObjectOfHugeLengths(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{CRC64NVME, CRC32C, CRC32} {
		part, n := raw(a, make([]byte, 1024)), int64(1024)
		for n < MaxPartSize {
			c, ok := FullObjectOf(a, [][]byte{part, part}, []int64{n, n})
			if !ok {
				t.Fatal(c)
			}
			part, _ = a.ParseDigest(c.Value)
			n *= 2
		}
		// In one go: 10,000 parts of 5 GiB, in two groupings.
		part5, _ := FullObjectOf(a, [][]byte{crcOfZeros(a, MaxPartSize)}, []int64{MaxPartSize})
		one, _ := a.ParseDigest(part5.Value)
		digests, lengths := make([][]byte, MaxParts), make([]int64, MaxParts)
		for i := range digests {
			digests[i], lengths[i] = one, MaxPartSize
		}
		whole, _ := FullObjectOf(a, digests, lengths)
		half, _ := FullObjectOf(a, digests[:MaxParts/2], lengths[:MaxParts/2])
		h, _ := a.ParseDigest(half.Value)
		twice, _ := FullObjectOf(a, [][]byte{h, h}, []int64{MaxObjectSize / 2, MaxObjectSize / 2})
		if whole != twice {
			t.Errorf("%s: %v, %v", a, whole, twice)
		}
	}
}

// crcOfZeros is the CRC of n zero bytes, n a multiple of 1 KiB, by binary composition.
func crcOfZeros(a Algorithm, n int64) []byte {
	var acc []byte
	var accLen int64
	unit, unitLen := raw(a, make([]byte, 1024)), int64(1024)
	for k := n / 1024; k > 0; k >>= 1 {
		if k&1 != 0 {
			if acc == nil {
				acc = unit
			} else {
				c, _ := FullObjectOf(a, [][]byte{acc, unit}, []int64{accLen, unitLen})
				acc, _ = a.ParseDigest(c.Value)
			}
			accLen += unitLen
		}
		c, _ := FullObjectOf(a, [][]byte{unit, unit}, []int64{unitLen, unitLen})
		unit, _ = a.ParseDigest(c.Value)
		unitLen *= 2
	}
	return acc
}

func TestFullObjectOfRefuses(t *testing.T) {
	t.Parallel()
	d := [][]byte{make([]byte, 4)}
	for name, f := range map[string]func() (Checksum, bool){
		"sha256":   func() (Checksum, bool) { return FullObjectOf(SHA256, [][]byte{make([]byte, 32)}, []int64{1}) },
		"nothing":  func() (Checksum, bool) { return FullObjectOf(CRC32C, nil, nil) },
		"mismatch": func() (Checksum, bool) { return FullObjectOf(CRC32C, d, []int64{1, 2}) },
		"unknown":  func() (Checksum, bool) { return FullObjectOf("md5", d, []int64{1}) },
	} {
		if c, ok := f(); ok || !c.IsZero() {
			t.Errorf("%s: %v", name, c)
		}
	}
}

// The tables are those of the polynomials that are combined with.
func TestTablesAndPolynomialsAgree(t *testing.T) {
	t.Parallel()
	if crc64.Checksum([]byte("x"), crc64.MakeTable(CRC64NVME.poly())) != crc64.Checksum([]byte("x"), crc64NVMETable) {
		t.Error("crc64nvme")
	}
	if crc32.Checksum([]byte("x"), crc32.MakeTable(uint32(CRC32C.poly()))) != crc32.Checksum([]byte("x"), crc32cTable) {
		t.Error("crc32c")
	}
}

// A composite of known digests: SHA-256 of the two digests of "a" and "b".
func TestCompositeOf(t *testing.T) {
	t.Parallel()
	a, b := raw(SHA256, []byte("a")), raw(SHA256, []byte("b"))
	got := CompositeOf(SHA256, [][]byte{a, b})
	if want := SHA256.Sum(append(append([]byte{}, a...), b...)) + "-2"; got != (Checksum{SHA256, Composite, want}) {
		t.Errorf("%v, want %s", got, want)
	}
	if CompositeOf(SHA256, [][]byte{b, a}) == got {
		t.Error("the order of the parts does not matter")
	}
	if d, n := SplitComposite(got.Value); n != 2 || d+"-2" != got.Value {
		t.Errorf("%q %d", d, n)
	}
}

func TestSplitComposite(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		digest string
		n      int
	}{
		"": {"", 0}, "abc=": {"abc=", 0}, "abc=-1": {"abc=", 1}, "abc=-10000": {"abc=", 10000}, "abc=-0": {"abc=-0", 0}, "abc=--1": {"abc=-", 1},
		"abc=-01": {"abc=-01", 0}, "abc=-+1": {"abc=-+1", 0}, "abc=-": {"abc=-", 0}, "abc=-x": {"abc=-x", 0}, "-5": {"", 5}, "abc=-99999999999999999999": {"abc=-99999999999999999999", 0},
	} {
		if d, n := SplitComposite(in); d != want.digest || n != want.n {
			t.Errorf("%q: %q, %d", in, d, n)
		}
	}
}

func FuzzSplitComposite(f *testing.F) {
	for _, s := range []string{"", "a-1", "a-01", "-", "--2", "a-9223372036854775808"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, n := SplitComposite(s)
		switch {
		case n == 0 && d != s, n < 0:
			t.Errorf("%q: %q, %d", s, d, n)
		case n > 0 && d+"-"+strconv.Itoa(n) != s:
			t.Errorf("%q is not %q and %d", s, d, n)
		}
	})
}

// What is taken as a digest has one spelling only, so that texts may be compared.
func FuzzParseDigest(f *testing.F) {
	for _, a := range all {
		f.Add(string(a), a.Sum([]byte("x")))
	}
	f.Add("crc32c", "AAAAAB==") // bits beyond the digest
	f.Add("crc32c", "AAA\nAAA==")
	f.Add("sha256", strings.Repeat("A", 44))
	f.Add("md5", "1B2M2Y8AsgTpgAmY7PhCfg==")
	f.Fuzz(func(t *testing.T, alg, s string) {
		a := Algorithm(alg)
		raw, ok := a.ParseDigest(s)
		if !ok {
			if raw != nil {
				t.Errorf("%s %q: refused, yet %x", alg, s, raw)
			}
			return
		}
		if a.Size() == 0 || len(raw) != a.Size() || base64.StdEncoding.EncodeToString(raw) != s {
			t.Errorf("%s %q: %x", alg, s, raw)
		}
	})
}

func TestParseDigest(t *testing.T) {
	t.Parallel()
	for _, a := range all {
		if d, ok := a.ParseDigest(a.Sum([]byte("x"))); !ok || !bytes.Equal(d, raw(a, []byte("x"))) {
			t.Errorf("%s: %x, %v", a, d, ok)
		}
	}
	for _, c := range []struct {
		a Algorithm
		s string
	}{
		{CRC32C, ""}, {CRC32C, "AAAAAB=="}, {CRC32C, "AAAAAA"}, {CRC32C, "AAAA-A=="}, {CRC32C, "\nAAAAA=="}, {CRC32C, "AAAAAAAAAAA="},
		{CRC64NVME, "AAAAAA=="}, {SHA256, "AAAAAA=="}, {SHA256, CompositeOf(SHA256, [][]byte{make([]byte, 32)}).Value}, {"md5", "1B2M2Y8AsgTpgAmY7PhCfg=="}, {"", ""},
	} {
		if d, ok := c.a.ParseDigest(c.s); ok || d != nil {
			t.Errorf("%s %q: taken", c.a, c.s)
		}
	}
}

func BenchmarkFullObjectOf10000(b *testing.B) {
	digests, lengths := make([][]byte, MaxParts), make([]int64, MaxParts)
	for i := range digests {
		digests[i], lengths[i] = raw(CRC64NVME, []byte{byte(i), byte(i >> 8)}), DefaultPartSize
	}
	for b.Loop() {
		if _, ok := FullObjectOf(CRC64NVME, digests, lengths); !ok {
			b.Fatal("refused")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxParts, "ns/part")
}
