package httpapi

import (
	"bytes"
	"io"
	"net/http"

	"berth/models"

	"github.com/gin-gonic/gin"
)

// once makes a repeated request with the same Idempotency-Key get the answer of the first.
// What follows it must bear being run again: a key whose process died is run again. limit
// bounds the body, in bytes.
//
// Kept are answers of success that are final (see exchange.unsettled), in words and before
// they are given. Errors are not: those that can be mended must not be frozen, and of the
// others the row itself says the same again. No answer that goes through here may hold a
// presigned URL; those are open's and sign's.
func (a *API) once(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		key, err := idempotencyKey(c.Request.Header)
		if err != nil || key == "" {
			if err != nil {
				fail(c, err)
			}
			return
		}
		raw, err := readBody(c, limit)
		if err != nil {
			fail(c, err)
			return
		}
		c.Request.Body, c.Request.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		x := exchangeOf(c)
		ctx := c.Request.Context()
		taken, kept, err := a.Service.TakeKey(ctx, x.caller, key, requestHash(c.Request, raw))
		if err != nil {
			fail(c, err)
			return
		}
		if kept != nil {
			c.Header("Idempotency-Replayed", "true")
			if kept.Location != "" {
				c.Header("Location", kept.Location)
			}
			writeBytes(c, kept.Status, jsonType, kept.Body)
			c.Abort()
			return
		}
		held := &heldAnswer{ResponseWriter: c.Writer}
		c.Writer = held
		ended := false
		defer func() {
			c.Writer = held.ResponseWriter
			if !ended { // it panics
				a.Service.DropKey(ctx, taken)
			}
		}()
		c.Next()
		// Before the answer goes out: who repeats the request at once meets what is kept, or
		// finds the key free.
		if status := held.Status(); status/100 == 2 && !x.unsettled {
			a.Service.FinishKey(ctx, taken, models.KeptAnswer{Status: status, Location: c.Writer.Header().Get("Location"), Body: held.body.Bytes()})
		} else {
			a.Service.DropKey(ctx, taken)
		}
		ended = true
		held.release()
	}
}

// heldAnswer holds an answer back until it is kept. Headers go to the real one at once.
type heldAnswer struct {
	gin.ResponseWriter
	status int
	body   bytes.Buffer
}

func (h *heldAnswer) WriteHeader(status int)      { h.status = status }
func (h *heldAnswer) WriteHeaderNow()             { h.status = h.Status() }
func (h *heldAnswer) Write(b []byte) (int, error) { h.WriteHeaderNow(); return h.body.Write(b) }
func (h *heldAnswer) WriteString(s string) (int, error) {
	h.WriteHeaderNow()
	return h.body.WriteString(s)
}
func (h *heldAnswer) Size() int                   { return h.body.Len() }
func (h *heldAnswer) Written() bool               { return h.status != 0 }
func (h *heldAnswer) Flush()                      {}
func (h *heldAnswer) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Status is that of the answer as it stands.
func (h *heldAnswer) Status() int {
	if h.status == 0 {
		return http.StatusOK
	}
	return h.status
}

func (h *heldAnswer) release() {
	h.ResponseWriter.WriteHeader(h.Status())
	h.ResponseWriter.WriteHeaderNow()
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client has gone; there is nobody to tell
}
