package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"berth/client/wire"
	"berth/models"
)

func TestDecodeOpen(t *testing.T) {
	t.Parallel()
	const least = `"collection":"c","name":"n","size":1`
	deep := func(n int) string {
		return `{` + least + `,"metadata":` + strings.Repeat(`{"a":`, n) + `1` + strings.Repeat(`}`, n) + `}`
	}
	for name, c := range map[string]struct {
		body  string
		field string // "" where any will do
		ok    bool
	}{
		"least":               {`{` + least + `}`, "", true},
		"all":                 {`{` + least + `,"content_type":"a/b","checksum":{"algorithm":"sha256","type":"full_object","value":"x"},"metadata":{"a":[1,2.5,null]},"commit":"auto","continue":true}`, "", true},
		"null optionals":      {`{` + least + `,"checksum":null,"metadata":null}`, "", true},
		"space":               {" \n{" + least + "}\t ", "", true},
		"surrogate pair":      {`{"collection":"c","name":"\ud83d\ude00","size":1}`, "", true},
		"largest size":        {`{"collection":"c","name":"n","size":9223372036854775807}`, "", true},
		"depth 32":            {deep(31), "", true},
		"depth 33":            {deep(32), "", false},
		"depth 100,000":       {strings.Repeat("[", 100_000), "", false},
		"not JSON":            {`size=1`, "", false},
		"half":                {`{` + least, "", false},
		"trailing":            {`{` + least + `}{}`, "", false},
		"trailing text":       {`{` + least + `} x`, "", false},
		"a list":              {`[]`, "", false},
		"null":                {`null`, "", false},
		"a string":            {`"x"`, "", false},
		"empty":               {`{}`, "collection", false},
		"no name":             {`{"collection":"c","size":1}`, "name", false},
		"no size":             {`{"collection":"c","name":"n"}`, "size", false},
		"null size":           {`{"collection":"c","name":"n","size":null}`, "size", false},
		"fraction":            {`{"collection":"c","name":"n","size":1.5}`, "size", false},
		"whole fraction":      {`{"collection":"c","name":"n","size":1.0}`, "size", false},
		"exponent":            {`{"collection":"c","name":"n","size":1e3}`, "size", false},
		"size text":           {`{"collection":"c","name":"n","size":"12"}`, "size", false},
		"size true":           {`{"collection":"c","name":"n","size":true}`, "size", false},
		"size beyond int64":   {`{"collection":"c","name":"n","size":9223372036854775808}`, "size", false},
		"size 1e400 digits":   {`{"collection":"c","name":"n","size":` + strings.Repeat("9", 400) + `}`, "size", false},
		"name number":         {`{"collection":"c","name":1,"size":1}`, "name", false},
		"name null":           {`{"collection":"c","name":null,"size":1}`, "name", false},
		"name list":           {`{"collection":"c","name":["n"],"size":1}`, "name", false},
		"continue text":       {`{` + least + `,"continue":"yes"}`, "continue", false},
		"checksum text":       {`{` + least + `,"checksum":"abc"}`, "checksum", false},
		"checksum inner":      {`{` + least + `,"checksum":{"algorithm":1}}`, "checksum.algorithm", false},
		"unknown field":       {`{` + least + `,"key":"k"}`, "key", false},
		"unknown inner field": {`{` + least + `,"checksum":{"algo":"x"}}`, "checksum.algo", false},
		"another case":        {`{"collection":"c","Name":"n","size":1}`, "Name", false},
		"twice":               {`{` + least + `,"size":2}`, "size", false},
		"twice, escaped":      {`{` + least + `,"s\u0069ze":2}`, "size", false},
		"twice in metadata":   {`{` + least + `,"metadata":{"a":1,"a":2}}`, "metadata.a", false},
		"twice beyond few":    {`{` + least + `,"metadata":{` + manyNames(40) + `,"k17":1}}`, "metadata.k17", false},
		"many names":          {`{` + least + `,"metadata":{` + manyNames(40) + `}}`, "", true},
		"NUL in name":         {`{"collection":"c","name":"a\u0000b","size":1}`, "name", false},
		"NUL in collection":   {`{"collection":"c\u0000","name":"a","size":1}`, "collection", false},
		"NUL in metadata":     {`{` + least + `,"metadata":{"a":["x\u0000"]}}`, "metadata.a[0]", false},
		"NUL in a name":       {`{` + least + `,"metadata":{"a\u0000":1}}`, "metadata", false},
		"backslash, not NUL":  {`{` + least + `,"metadata":{"a":"\\u0000"}}`, "", true},
		"raw NUL":             {"{\"collection\":\"c\",\"name\":\"a\x00b\",\"size\":1}", "", false},
		"half pair":           {`{"collection":"c","name":"\ud83d","size":1}`, "name", false},
		"half pair, then u":   {`{"collection":"c","name":"\ud83d\u0041","size":1}`, "name", false},
		"low half":            {`{"collection":"c","name":"\ude00","size":1}`, "name", false},
		"bad UTF-8":           {"{\"collection\":\"c\",\"name\":\"a\xff\",\"size\":1}", "", false},
		"number out of range": {`{` + least + `,"metadata":{"a":1e999999}}`, "metadata.a", false},
		"number underflow":    {`{` + least + `,"metadata":{"a":1e-999999}}`, "metadata.a", false},
		"long number":         {`{` + least + `,"metadata":{"a":` + strings.Repeat("1", 100) + `}}`, "metadata.a", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decode[wire.OpenRequest]([]byte(c.body), openShape, openRequired...)
			if c.ok {
				if err != nil || got.Collection != "c" {
					t.Fatalf("got %+v, %v", got, err)
				}
				return
			}
			if models.ErrorCode(err) != models.CodeInvalidRequest {
				t.Fatalf("got %+v, %v", got, err)
			}
			if field := public(err).Details["field"]; c.field != "" && field != c.field {
				t.Fatalf("names the field %v: %v", field, err)
			}
			if c.field != "" && !strings.HasPrefix(public(err).Message, c.field+": ") {
				t.Fatalf("the sentence does not name the field: %v", err)
			}
		})
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"k` + string(rune('0'+i/10)) + string(rune('0'+i%10)) + `":1`)
	}
	return b.String()
}

func TestRequestHash(t *testing.T) {
	t.Parallel()
	hash := func(method, path, body string) string {
		return string(requestHash(httptest.NewRequest(method, path, nil), []byte(body)))
	}
	one := hash("POST", "/v1/uploads", `{"a":1,"b":{"c":[1,2]}}`)
	for body, same := range map[string]bool{
		` { "b" : {"c":[1, 2]}, "a":1 } `: true,
		`{"\u0061":1,"b":{"c":[1,2]}}`:    true,
		`{"a":1,"b":{"c":[2,1]}}`:         false,
		`{"a":1.0,"b":{"c":[1,2]}}`:       false,
		`{"a":"1","b":{"c":[1,2]}}`:       false,
		`{"a":1}`:                         false,
	} {
		if (hash("POST", "/v1/uploads", body) == one) != same {
			t.Errorf("%s: same should be %v", body, same)
		}
	}
	if hash("POST", "/v1/files", `{"a":1,"b":{"c":[1,2]}}`) == one {
		t.Error("another path has the same hash")
	}
}

func TestScrub(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
	for _, s := range []string{
		"Put \"https://s3.example.com/b/k?X-Amz-Signature=abc&X-Amz-Credential=AKID\": timeout",
		"authorization: Bearer " + token, token, "x=" + token + ",", "x-amz-signature=abc",
		"postgres://berth:abc@db/x: refused",
	} {
		got := scrub(s)
		for _, bad := range []string{"abc", "AKID", "eyJ", "c2lnbmF0dXJl", "X-Amz-Signature", "x-amz-signature"} {
			if strings.Contains(got, bad) {
				t.Errorf("%q keeps %q", got, bad)
			}
		}
	}
	if s := "open: GET https://s3.example.com/b/k: timeout"; scrub(s) != s {
		t.Errorf("%q became %q", s, scrub(s))
	}
}

// What the strict decoder takes is what it says: valid UTF-8 JSON, no name twice, no
// NUL, and the same value that encoding/json reads.
func FuzzDecodeOpen(f *testing.F) {
	for _, s := range []string{
		`{"collection":"c","name":"n","size":1}`, `{"collection":"c","name":"\ud83d\ude00","size":1,"metadata":{"a":[1,{"b":null}]}}`,
		`{"size":1e3}`, `{"name":"\u0000"}`, `[[[[`, `{"a":1,"a":2}`, "\"\\ud800\"", `{"checksum":{"algorithm":"x"}}`, `null`, ``, `{"":{"":0}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decode[wire.OpenRequest](b, openShape, openRequired...)
		if err != nil {
			if models.ErrorCode(err) != models.CodeInvalidRequest {
				t.Fatalf("%v", err)
			}
			if doc := problemDocument(public(err), 400, "x"); !json.Valid(doc) || !utf8.Valid(doc) {
				t.Fatalf("the problem is not JSON: %s", doc)
			}
			return
		}
		var again wire.OpenRequest
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&again); err != nil {
			t.Fatalf("taken, but %v", err)
		}
		for _, s := range []string{got.Name, got.Collection, got.ContentType, string(got.Metadata)} {
			if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
				t.Fatalf("took %q", s)
			}
		}
		if got.Metadata != nil && hasNUL(got.Metadata) {
			t.Fatalf("took a NUL: %s", got.Metadata)
		}
		if c := canonical(b); !bytes.Equal(c, canonical(c)) {
			t.Fatalf("canonical is not: %s", c)
		}
	})
}

func hasNUL(raw []byte) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return true
	}
	var walk func(any) bool
	walk = func(v any) bool {
		switch v := v.(type) {
		case string:
			return strings.ContainsRune(v, 0)
		case []any:
			return slices.ContainsFunc(v, walk)
		case map[string]any:
			for k, x := range v {
				if strings.ContainsRune(k, 0) || walk(x) {
					return true
				}
			}
		}
		return false
	}
	return walk(v)
}

// Any query ends in a page to ask for or in INVALID_REQUEST, never in anything else.
func FuzzFileQuery(f *testing.F) {
	for _, s := range []string{"", "limit=10&cursor=abc", "limit=0", "limit=1001", "limit=%00", "state=active", "state=x", "cursor=%00", "a=b", "limit=1&limit=2", "%zz", "cursor=" + strings.Repeat("a", 600)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/files", nil)
		r.URL.RawQuery = raw
		q, err := fileQuery(r)
		if err != nil {
			if models.ErrorCode(err) != models.CodeInvalidRequest {
				t.Fatalf("%v", err)
			}
			if doc := problemDocument(public(err), 400, "x"); !json.Valid(doc) || !utf8.Valid(doc) {
				t.Fatalf("the problem is not JSON: %s", doc)
			}
			return
		}
		if q.Limit < 0 || q.Limit > maxPage || len(q.Cursor) > maxCursor || strings.ContainsRune(q.Cursor+q.Collection, 0) || !utf8.ValidString(q.Collection) {
			t.Fatalf("took %+v", q)
		}
	})
}

// An id is one that was made here, or NOT_FOUND.
func FuzzIDs(f *testing.F) {
	f.Add(string(models.NewUploadID()))
	f.Add(string(models.NewFileID()))
	for _, s := range []string{"", "upl_", "upl_\x00", "upl_019AD1F1-0c11-7a22-9b33-4455667788aa", "upl_019ad1f1-0c11-7a22-9b33-4455667788aa/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := models.ParseUploadID(s)
		if err != nil {
			if models.ErrorCode(err) != models.CodeNotFound || id != "" || strings.Contains(err.Error(), s) && s != "" && len(s) > 20 {
				t.Fatalf("%q: %q, %v", s, id, err)
			}
			return
		}
		if string(id) != s || len(s) != 40 || strings.Trim(s[4:], "0123456789abcdef-") != "" {
			t.Fatalf("took %q", s)
		}
	})
}

// A key is taken as it stands, or the request is refused: never cut, never changed, never
// passed over where it is there.
func FuzzIdempotencyKey(f *testing.F) {
	for _, s := range []string{"k", "", " ", "a b", " a", "a\t", "\x00", "\x7f", "\xff", "ä", "!~", "'; DROP TABLE idempotency; --", "@name", "?", "$1",
		strings.Repeat("k", 255), strings.Repeat("k", 256), "a\r\nX: y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {s}})
		if err != nil {
			if models.ErrorCode(err) != models.CodeInvalidRequest || key != "" {
				t.Fatalf("%q: %q, %v", s, key, err)
			}
			if doc := problemDocument(public(err), 400, "x"); !json.Valid(doc) || !utf8.Valid(doc) {
				t.Fatalf("%q: %s", s, doc)
			}
			return
		}
		if key != s || s == "" || len(s) > 255 || strings.Trim(s, "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~") != "" {
			t.Fatalf("took %q as %q", s, key)
		}
		if _, err := idempotencyKey(http.Header{"Idempotency-Key": {s, s}}); err == nil {
			t.Fatalf("took %q twice", s)
		}
	})
}
