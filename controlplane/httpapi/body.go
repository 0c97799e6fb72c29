package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/models"

	"github.com/gin-gonic/gin"
)

// readTime bounds how long a body may take to come.
const readTime = 30 * time.Second

// readBody reads at most limit bytes.
func readBody(c *gin.Context, limit int64) ([]byte, error) {
	tooLarge := models.Errorf(models.CodeTooLarge, "the body is larger than %d bytes", limit).With("max_bytes", limit)
	if c.Request.ContentLength > limit {
		c.Header("Connection", "close") // rather than read it all
		return nil, tooLarge
	}
	// A body that trickles in must not hold a request for ever. Servers without
	// deadlines (tests) have no such worry. The deadline is lifted afterwards, since
	// net/http goes on reading to hear the client leave.
	rc := http.NewResponseController(c.Writer)
	if rc.SetReadDeadline(time.Now().Add(readTime)) == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	b, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, models.Errorf(models.CodeInvalidRequest, "the body could not be read to its end").Because(err)
	}
	return b, nil
}

// body reads a JSON body of T strictly. An empty body is an empty T if nothing is
// required. raw is the body as it came.
func body[T any](c *gin.Context, limit int64, s *shape, required ...string) (out T, raw []byte, err error) {
	raw, err = readBody(c, limit)
	if err != nil {
		return out, nil, err
	}
	if len(raw) == 0 {
		if len(required) > 0 {
			return out, nil, models.Errorf(models.CodeInvalidRequest, "the request needs a JSON body")
		}
		return out, nil, nil
	}
	if err := jsonContent(c.Request.Header); err != nil {
		return out, nil, err
	}
	out, err = decode[T](raw, s, required...)
	return out, raw, err
}

// decode is body without HTTP.
func decode[T any](raw []byte, s *shape, required ...string) (out T, err error) {
	present, err := checkFields(raw, s)
	if err != nil {
		return out, err
	}
	for _, name := range required {
		if !slices.Contains(present, name) {
			return out, invalid(name, "is required")
		}
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, models.Errorf(models.CodeInvalidRequest, "the body could not be understood").Because(err)
	}
	return out, nil
}

func jsonContent(h http.Header) error {
	t, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || t != "application/json" || (charset != "" && !strings.EqualFold(charset, "utf-8")) {
		return invalid("Content-Type", "must be application/json")
	}
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return invalid("Content-Encoding", "bodies are taken as they are, not compressed")
	}
	return nil
}

// idempotencyKey is the header's value, "" if there is none.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(values) > 1 || key == "" || len(key) > 255 {
		return "", invalid("Idempotency-Key", "must be given once, 1 to 255 characters long")
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return "", invalid("Idempotency-Key", "must be of visible ASCII characters")
		}
	}
	return key, nil
}

// requestHash is the same for two requests that ask for the same: white space and
// the order of members do not matter.
func requestHash(r *http.Request, raw []byte) []byte {
	h := sha256.New()
	io.WriteString(h, r.Method+"\n"+r.URL.Path+"\n")
	h.Write(canonical(raw))
	return h.Sum(nil)
}

// canonical writes valid JSON again with sorted members and no white space.
// Numbers keep their digits.
func canonical(raw []byte) []byte {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return raw
	}
	return mustMarshal(v)
}

// query reads the parameters of a request that takes only these, each at most once.
func query(r *http.Request, allowed ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, models.Errorf(models.CodeInvalidRequest, "the query is not form-encoded")
	}
	out := make(map[string]string, len(values))
	for name, vs := range values {
		switch {
		case !slices.Contains(allowed, name):
			return nil, models.Errorf(models.CodeInvalidRequest, "there is no query parameter %.40q", name).With("field", strings.ToValidUTF8(name[:min(len(name), 40)], ""))
		case len(vs) > 1:
			return nil, invalid(name, "is given twice")
		case !utf8.ValidString(vs[0]) || strings.ContainsRune(vs[0], 0):
			return nil, invalid(name, "is not UTF-8 text without NUL")
		}
		out[name] = vs[0]
	}
	return out, nil
}

const (
	maxPage   = 1000
	maxCursor = 512
)

// page reads limit and cursor. The cursor's meaning is the use case's.
func page(q map[string]string) (cursor string, limit int, err error) {
	if text, there := q["limit"]; there {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxPage {
			return "", 0, invalid("limit", "must be a whole number from 1 to %d", maxPage)
		}
	}
	cursor = q["cursor"]
	if len(cursor) > maxCursor || strings.ContainsFunc(cursor, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", 0, invalid("cursor", "is not one that a page before gave")
	}
	return cursor, limit, nil
}
