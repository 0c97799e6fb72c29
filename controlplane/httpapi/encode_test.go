package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/client/wire"
	"berth/controlplane"
	"berth/models"

	"github.com/gin-gonic/gin"
)

func init() { gin.SetMode(gin.ReleaseMode) } // these make contexts without New

// signedParts are like those of a real answer, some 700 bytes of URL each.
func signedParts(n int) controlplane.Signed {
	s := controlplane.Signed{ExpiresAt: time.Date(2026, 11, 30, 12, 15, 0, 500_000_000, time.UTC)}
	for i := range n {
		s.Parts = append(s.Parts, models.SignedPart{
			Number: i + 1, Size: 16 << 20, Method: http.MethodPut,
			URL: fmt.Sprintf("https://bucket.s3.eu-central-1.amazonaws.com/default/0123456789abcdef0123456789abcdef.bin?X-Amz-Algorithm=AWS4-HMAC-SHA256"+
				"&X-Amz-Credential=AKIDEXAMPLE%%2F20261130%%2Feu-central-1%%2Fs3%%2Faws4_request&X-Amz-Date=20261130T120000Z&X-Amz-Expires=900"+
				"&X-Amz-SignedHeaders=content-length%%3Bhost%%3Bx-amz-checksum-sha256&partNumber=%d&uploadId=%s&x-id=UploadPart&X-Amz-Signature=%s",
				i+1, strings.Repeat("u", 128), strings.Repeat("0123456789abcdef", 4)),
			Headers: models.Headers{{Name: "x-amz-checksum-sha256", Value: "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="}},
		})
	}
	return s
}

// What is written by hand is what encoding/json would say.
func TestSignedIsJSON(t *testing.T) {
	t.Parallel()
	odd := signedParts(1)
	odd.Parts[0].URL = "https://x/\"\\\u00e9\n<&>\u2028"
	odd.Parts[0].Headers = models.Headers{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}, {Name: "c", Value: "\t"}, {Name: "d", Value: ""}, {Name: "ü", Value: "\x7f"}}
	none := signedParts(1)
	none.Parts[0].Headers = nil
	for name, s := range map[string]controlplane.Signed{"none": {}, "one": signedParts(1), "many": signedParts(1000), "odd": odd, "no headers": none} {
		w := httptest.NewRecorder()
		c, _ := gin.CreateTestContext(w)
		writeSigned(c, s)
		var got, want wire.SignResponse
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v: %s", name, err, w.Body)
		}
		want.ExpiresAt, want.Parts = s.ExpiresAt, []wire.SignedPart{}
		for _, p := range s.Parts {
			want.Parts = append(want.Parts, wireSigned(p))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
		if name == "one" && !bytes.Contains(w.Body.Bytes(), []byte(s.Parts[0].URL)) {
			t.Errorf("the URL is escaped: %s", w.Body)
		}
	}
}

// What is allocated for a list does not grow with it, the list itself excepted.
func TestSignedIsStreamed(t *testing.T) {
	few, many := signedParts(100), signedParts(models.MaxParts)
	w := &discard{header: http.Header{}}
	write := func(s controlplane.Signed) float64 {
		return testing.AllocsPerRun(5, func() {
			c, _ := gin.CreateTestContext(w)
			writeSigned(c, s)
		})
	}
	write(many)
	if a, b := write(few), write(many); b > a+50 {
		t.Errorf("%v allocations for 100 parts, %v for 10,000", a, b)
	}
	if w.largest > 2*flushAt {
		t.Errorf("%d bytes were held back", w.largest)
	}
}

type discard struct {
	header  http.Header
	bytes   int64
	largest int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	d.largest = max(d.largest, len(p))
	return len(p), nil
}

// Reading a request for 10,000 pinned parts and writing its answer: all that HTTP
// adds to signing.
func BenchmarkSign10000(b *testing.B) {
	var req wire.SignRequest
	for n := range models.MaxParts {
		req.Parts = append(req.Parts, wire.PartToSign{Number: n + 1, Checksum: "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="})
	}
	body := mustMarshal(req)
	answer := signedParts(models.MaxParts)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			w, err := decode[wire.SignRequest](body, signShape)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := signRequest(w); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		w := &discard{header: http.Header{}}
		n := 0
		for b.Loop() {
			c, _ := gin.CreateTestContext(w)
			writeSigned(c, answer)
			n++
		}
		b.SetBytes(w.bytes / int64(n))
	})
	b.Run("write with encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		w := &discard{header: http.Header{}}
		for b.Loop() {
			out := wire.SignResponse{ExpiresAt: answer.ExpiresAt, Parts: make([]wire.SignedPart, len(answer.Parts))}
			for i, p := range answer.Parts {
				out.Parts[i] = wireSigned(p)
			}
			e := json.NewEncoder(w)
			e.SetEscapeHTML(false)
			if err := e.Encode(out); err != nil {
				b.Fatal(err)
			}
		}
	})
}
