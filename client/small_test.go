package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"unicode"
	"unicode/utf8"

	"berth/models"
)

// TestWholeEqualsHashing: the checksum from the parts' digests is the one of the bytes.
func TestWholeEqualsHashing(t *testing.T) {
	t.Parallel()
	for _, a := range []models.Algorithm{models.CRC64NVME, models.CRC32C} {
		check := func(data []byte, cut uint16) bool {
			size := 1 + int(cut)%100
			var digests [][]byte
			var lengths []int64
			for rest := data; len(rest) > 0; {
				n := min(size, len(rest))
				digests, lengths = append(digests, sum(a, rest[:n])), append(lengths, int64(n))
				rest = rest[n:]
			}
			c, ok := whole(a, models.FullObject, digests, lengths)
			return ok == (len(data) > 0) && (!ok || c.Value == a.Sum(data))
		}
		if err := quick.Check(check, nil); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	if got := encode(sum(models.CRC64NVME, []byte("123456789"))); got != models.CRC64NVME.Sum([]byte("123456789")) {
		t.Errorf("the fast CRC-64 differs: %s", got)
	}
	if _, ok := whole(models.SHA256, models.Composite, [][]byte{sum(models.SHA256, nil), nil}, []int64{0, 0}); ok {
		t.Error("a missing digest is not noticed")
	}
}

// TestProblem: whatever answers, there is an error that says what is known.
func TestProblem(t *testing.T) {
	t.Parallel()
	answer := func(contentType, body string) *Error {
		return problem("op", &http.Response{StatusCode: 409, Header: http.Header{"Content-Type": {contentType}, "X-Request-Id": {"r"}},
			Body: io.NopCloser(strings.NewReader(body))})
	}
	e := answer("application/problem+json", `{"title":"Conflict","status":409,"detail":"gone","code":"MISSING_PARTS","request_id":"q","parts":[3,1,[7,9],{"number":5},0,11,3],"count":4}`)
	if e.Code != models.CodeMissingParts || e.Message != "gone" || e.RequestID != "q" || len(e.Details) != 2 {
		t.Errorf("%+v", e)
	}
	if got := e.partNumbers(10, "parts"); !slices.Equal(got, []int{1, 3, 5, 7, 8, 9}) {
		t.Errorf("parts %v", got)
	}
	for _, other := range []*Error{answer("text/html", "<html>"), answer("application/json", "[]"), answer("application/problem+json", "{")} {
		if other.Status != 409 || other.Code != "" || other.RequestID != "r" || !strings.Contains(other.Error(), "409") {
			t.Errorf("%+v", other)
		}
	}
}

func FuzzProblem(f *testing.F) {
	f.Add(`{"parts":[1,[2,3],{"number":4}],"code":"X"}`, 10)
	f.Add(`{"parts":[[1,2147483647]]}`, 10000)
	f.Fuzz(func(t *testing.T, body string, count int) {
		count %= 10001
		e := problem("op", &http.Response{StatusCode: 500, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(strings.NewReader(body))})
		for _, n := range e.partNumbers(count, "parts") {
			if n < 1 || n > count {
				t.Fatalf("part %d of %d", n, count)
			}
		}
	})
}

func TestLocalName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a.txt":                           "a.txt",
		"Lebenslauf 履歴書.pdf":              "Lebenslauf 履歴書.pdf",
		"../../etc/passwd":                "_._.._etc_passwd",
		`..\..\x`:                         "_._.._x",
		".bashrc":                         "_bashrc",
		"-rf":                             "_rf",
		"":                                "file",
		"...":                             "file",
		"/":                               "file",
		"a\x00b\nc":                       "abc",
		"gpj.\u202etxt":                   "gpj.txt",
		"CON":                             "_CON",
		"nul.txt":                         "_nul.txt",
		"trailing. . ":                    "trailing",
		"a:b|c?":                          "a_b_c_",
		"\xff\xfe":                        "file",
		strings.Repeat("ä", 300) + ".pdf": strings.Repeat("ä", (maxLocalName-4)/2) + ".pdf",
	} {
		if got := LocalName(in); got != want {
			t.Errorf("LocalName(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzLocalName(f *testing.F) {
	for _, s := range []string{"a", "../x", "\x00", "CON.txt", strings.Repeat("x", 5000), "a\u202eb", ".part.json", "\xf0\x28"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := LocalName(s)
		if n == "" || n == "." || n == ".." || len(n) > maxLocalName+1 || !utf8.ValidString(n) {
			t.Fatalf("%q", n)
		}
		if filepath.Base(n) != n || strings.ContainsAny(n, `/\`) || n[0] == '.' || n[0] == '-' {
			t.Fatalf("%q leaves its folder or hides", n)
		}
		if strings.ContainsFunc(n, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
			t.Fatalf("%q shows itself as another", n)
		}
		if again := LocalName(n); again != n && !strings.HasPrefix(again, "_") {
			t.Fatalf("%q then %q", n, again)
		}
	})
}

// FuzzGetState: whatever lies in the sidecar file, it is ours or it is not, and no index
// is out of range.
func FuzzGetState(f *testing.F) {
	f.Add([]byte(`{"version":1,"done":"AAE=","range":5}`), int64(100), int64(5))
	f.Fuzz(func(t *testing.T, raw []byte, size, part int64) {
		s := &getState{}
		if json.Unmarshal(raw, s) != nil || size < 0 || size > 1<<20 || part < 1<<10 {
			return
		}
		r := &reading{c: &Client{sizes: defaultSizes}, alg: models.SHA256, typ: models.Composite}
		r.url.Size, r.url.PartSize = size, part
		if r.plan() != nil {
			return
		}
		if s.of(r) {
			for i := range r.ranges {
				s.has(i)
			}
		}
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "x", "ftp://h", "http://", "http://u:secret@h", "http://h?q=1", "http://h#f", "http://h:port", "://"} {
		if _, err := New(bad, "t"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q): %v", bad, err)
		}
	}
	for _, o := range []Option{WithMemory(0), WithParallel(0), WithParallel(MaxParallel + 1)} {
		if _, err := New("http://h", "t", o); err == nil {
			t.Error("a bad option is taken")
		}
	}
	if c, err := New("https://h/base/", "t"); err != nil || c.BaseURL() != "https://h/base" {
		t.Errorf("%v", err)
	}
}

func TestBuffers(t *testing.T) {
	t.Parallel()
	var b buffers
	for _, n := range []int64{0, 1, 4096, 4097, 65536, 1 << 20, 1<<20 + 1, 5 << 20, 16<<20 - 1} {
		s := b.get(n)
		if int64(len(*s)) != n || int64(cap(*s)) != classOf(n) || classOf(n) < n || classOf(n) > max(4096, 2*n) {
			t.Errorf("%d: len %d, cap %d", n, len(*s), cap(*s))
		}
		b.put(s)
	}
}

// TestConnSendsFromMemory: what conn hands to the kernel is the part, in order, once.
func TestConnSendsFromMemory(t *testing.T) {
	t.Parallel()
	data := random(t, 3*piece+17)
	var moved int
	body := newPartBody(data, func(n int) { moved += n })
	var out bytes.Buffer
	c := &conn{Conn: writerConn{w: &out}}
	first := make([]byte, 100) // net/http takes the first bytes itself
	n, err := io.ReadFull(body, first)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.ReadFrom(io.LimitReader(body, int64(len(data)-n)))
	if err != nil || int(m) != len(data)-n || moved != len(data) {
		t.Errorf("%v, %d bytes, moved %d", err, m, moved)
	}
	if !bytes.Equal(append(first, out.Bytes()...), data) {
		t.Error("other bytes")
	}
}

type writerConn struct {
	net.Conn
	w io.Writer
}

func (c writerConn) Write(p []byte) (int, error) { return c.w.Write(p) }
