package objects

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// What signing costs, against what it cannot cost less than and against the SDK.
// `go test -bench Sign -benchmem ./controlplane/objects` prints them beside each other;
// BenchmarkSignRatio measures them in turns in one run and reports the ratios.

const benchKey = "default/0123456789abcdef0123456789abcdef.bin"

// benchUploadID is as long as S3's are.
const benchUploadID = "2~VmVyc2l0eUdXLXVwbG9hZC1pZC1vZi1hLXJlYWwtbGVuZ3RoLTAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"

var benchNow = time.Unix(1_700_000_000, 0)

func benchParts(n int) []models.PartToSign {
	parts := make([]models.PartToSign, n)
	for i := range parts {
		d := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		parts[i] = models.PartToSign{Number: i + 1, Size: 16 << 20, Digest: d[:]}
	}
	return parts
}

// floor is the least work: SHA-256 of as many bytes as the canonical request of the one
// part has, and the HMAC of as many as its string to sign has, all state reused.
type floor struct {
	request, toSign []byte
	sha, mac        interface {
		Reset()
		Write([]byte) (int, error)
		Sum([]byte) []byte
	}
	sum []byte
}

func newFloor(b *testing.B) *floor {
	b.Helper()
	parts, _, err := mustNew(b, plainConfig()).PresignParts(b.Context(), benchKey, benchUploadID, benchParts(1), models.SHA256, time.Hour, benchNow)
	if err != nil {
		b.Fatal(err)
	}
	u, err := url.Parse(parts[0].URL)
	if err != nil {
		b.Fatal(err)
	}
	query, _, _ := strings.Cut(u.RawQuery, "&X-Amz-Signature=")
	request := "PUT\n" + u.EscapedPath() + "\n" + query + "\ncontent-length:16777216\nhost:" + u.Host + "\nx-amz-checksum-sha256:" +
		parts[0].Headers.Get("x-amz-checksum-sha256") + "\n\ncontent-length;host;x-amz-checksum-sha256\n" + unsigned
	toSign := sigAlgorithm + "\n20231114T221320Z\n20231114/us-east-1/s3/aws4_request\n" + strings.Repeat("0", 64)
	return &floor{request: []byte(request), toSign: []byte(toSign), sha: sha256.New(), mac: hmac.New(sha256.New, make([]byte, 32)), sum: make([]byte, 0, 32)}
}

func (f *floor) once() {
	f.sha.Reset()
	_, _ = f.sha.Write(f.request)
	f.sum = f.sha.Sum(f.sum[:0])
	f.mac.Reset()
	_, _ = f.mac.Write(f.toSign)
	f.sum = f.mac.Sum(f.sum[:0])
}

func BenchmarkSignFloor(b *testing.B) {
	f := newFloor(b)
	b.ReportAllocs()
	for b.Loop() {
		f.once()
	}
}

func BenchmarkSignOnePart(b *testing.B) {
	s, parts := mustNew(b, plainConfig()), benchParts(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.PresignParts(b.Context(), benchKey, benchUploadID, parts, models.SHA256, time.Hour, benchNow); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign10000Parts(b *testing.B) {
	s, parts := mustNew(b, plainConfig()), benchParts(models.MaxParts)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.PresignParts(b.Context(), benchKey, benchUploadID, parts, models.SHA256, time.Hour, benchNow); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/models.MaxParts, "ns/part")
}

func BenchmarkSignPut(b *testing.B) {
	s, d := mustNew(b, plainConfig()), sha256.Sum256(nil)
	spec := models.ObjectSpec{Key: benchKey, UploadID: models.NewUploadID(), ContentType: "application/pdf", Algorithm: models.SHA256}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.PresignPut(b.Context(), spec, 1<<20, d[:], time.Hour, benchNow); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignSDK(b *testing.B) {
	sign := sdkOnce(b)
	b.ReportAllocs()
	for b.Loop() {
		sign()
	}
}

func sdkOnce(b *testing.B) func() {
	cfg := plainConfig()
	p := sdkPresigner(cfg, benchNow, time.Hour)
	digest := base64.StdEncoding.EncodeToString(benchParts(1)[0].Digest)
	return func() {
		_, err := p.PresignUploadPart(b.Context(), &s3.UploadPartInput{Bucket: &cfg.Bucket, Key: aws.String(benchKey), UploadId: aws.String(benchUploadID),
			PartNumber: aws.Int32(1), ContentLength: aws.Int64(16 << 20), ChecksumSHA256: &digest})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSignRatio reports one part alone and one of 10,000, each over the floor
// (must be under 2), and the SDK's presign client over one part alone. They are timed
// in turns, and the medians compared, since other work shares the machine.
func BenchmarkSignRatio(b *testing.B) {
	s := mustNew(b, plainConfig())
	one, many := benchParts(1), benchParts(models.MaxParts)
	f, sdk := newFloor(b), sdkOnce(b)
	sign := func(parts []models.PartToSign) func() {
		return func() {
			if _, _, err := s.PresignParts(b.Context(), benchKey, benchUploadID, parts, models.SHA256, time.Hour, benchNow); err != nil {
				b.Fatal(err)
			}
		}
	}
	works := []struct {
		name  string
		n     int // calls of one turn
		units int // parts of one call
		do    func()
		ns    []float64
	}{
		{name: "floor", n: 1000, units: 1, do: f.once},
		{name: "one", n: 1000, units: 1, do: sign(one)},
		{name: "of10000", n: 1, units: models.MaxParts, do: sign(many)},
		{name: "sdk", n: 50, units: 1, do: sdk},
	}
	for b.Loop() {
		for i := range works {
			w := &works[i]
			start := time.Now()
			for range w.n {
				w.do()
			}
			w.ns = append(w.ns, float64(time.Since(start).Nanoseconds())/float64(w.n*w.units))
		}
	}
	median := map[string]float64{}
	for _, w := range works {
		slices.Sort(w.ns)
		median[w.name] = w.ns[len(w.ns)/2]
	}
	if one := median["one"] / median["floor"]; one > 2 {
		b.Errorf("one part alone takes %.2fx of its hashes, must be at most 2", one)
	}
	b.ReportMetric(median["one"]/median["floor"], "one/floor")
	b.ReportMetric(median["of10000"]/median["floor"], "of10000/floor")
	b.ReportMetric(median["sdk"]/median["one"], "sdk/one")
}
