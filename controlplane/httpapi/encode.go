package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"berth/controlplane"
	"berth/models"

	"github.com/gin-gonic/gin"
)

const jsonType = "application/json"

// writeJSON answers with v. URLs are left as they are, not escaped for HTML.
func writeJSON(c *gin.Context, status int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		fail(c, err)
		return
	}
	writeBytes(c, status, jsonType, b.Bytes())
}

func writeBytes(c *gin.Context, status int, contentType string, b []byte) {
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(b) // the client has gone; there is nobody to tell
}

// flushAt is how much of a list of URLs is gathered before it is sent, in bytes.
const flushAt = 32 << 10

var signedBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, flushAt+8<<10)
	return &b
}}

// writeSigned answers with part URLs. Ten thousand of them are some 8 MB of JSON,
// so they are written as they are encoded, in one buffer, with no copy of the whole.
func writeSigned(c *gin.Context, s controlplane.Signed) {
	pooled := signedBuffers.Get().(*[]byte)
	b := (*pooled)[:0]
	defer func() {
		*pooled = b[:0]
		signedBuffers.Put(pooled)
	}()
	c.Writer.Header().Set("Content-Type", jsonType)
	c.Writer.WriteHeader(http.StatusOK)
	b = append(b, `{"parts":[`...)
	for i := range s.Parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendSignedPart(b, &s.Parts[i])
		if len(b) >= flushAt {
			if _, err := c.Writer.Write(b); err != nil {
				return
			}
			b = b[:0]
		}
	}
	b = append(b, `],"expires_at":"`...)
	b = s.ExpiresAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, "\"}\n"...)
	_, _ = c.Writer.Write(b)
}

func appendSignedPart(b []byte, p *models.SignedPart) []byte {
	b = append(b, `{"number":`...)
	b = strconv.AppendInt(b, int64(p.Number), 10)
	b = append(b, `,"size":`...)
	b = strconv.AppendInt(b, p.Size, 10)
	b = append(b, `,"method":`...)
	b = appendString(b, p.Method)
	b = append(b, `,"url":`...)
	b = appendString(b, p.URL)
	b = append(b, `,"headers":{`...)
	for i, h := range p.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, h.Name)
		b = append(b, ':')
		b = appendString(b, h.Value)
	}
	return append(b, "}}"...)
}

// appendString writes a JSON string; what is plain ASCII is copied.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, mustMarshal(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
