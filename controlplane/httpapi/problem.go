package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"berth/client/wire"
	"berth/models"

	"github.com/gin-gonic/gin"
)

const problemContent = "application/problem+json"

// fail answers with the problem that err is, and keeps err for the log line. A text
// reaches the caller only from an error that carries a public code.
func fail(c *gin.Context, err error) {
	e := public(err)
	failWith(c, statuses[e.Code].status, e, err)
}

// failWith is fail with a status that is not the code's own: 405 has no code.
func failWith(c *gin.Context, status int, e *models.Error, cause error) {
	x := exchangeOf(c)
	x.err, x.code = cause, e.Code
	if c.Writer.Written() {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	h := c.Writer.Header()
	if wait := waitFor(e); wait != "" {
		h.Set("Retry-After", wait)
	}
	if e.Code == models.CodeUnauthenticated && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", `Bearer realm="berth"`)
	}
	h.Del("Location")
	c.Abort()
	if speaksUppy(c) {
		writeUppyProblem(c, e, status, x.id)
		return
	}
	writeBytes(c, status, problemContent, problemDocument(e, status, x.id))
}

// public is the part of an error that a caller may see.
func public(err error) *models.Error {
	var e *models.Error
	if errors.As(err, &e) && e.Code != models.CodeInternal {
		if _, known := statuses[e.Code]; known {
			return e
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return models.Errorf(models.CodeStoreUnavailable, "the request took too long and was given up; it may be sent again")
	}
	return &models.Error{Code: models.CodeInternal}
}

func waitFor(e *models.Error) string {
	switch v := e.Details["retry_after"].(type) {
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return retryAfter[e.Code]
}

// problemDocument is the RFC 9457 document, the details beside its own members.
func problemDocument(e *models.Error, status int, requestID string) []byte {
	title := statuses[e.Code].title
	if status != statuses[e.Code].status {
		title = http.StatusText(status)
	}
	b := mustMarshal(wire.Problem{
		Type: problemType(e.Code), Title: title, Status: status,
		Detail: e.Message, Code: string(e.Code), RequestID: requestID,
	})
	b = b[:len(b)-1]
	for _, key := range slices.Sorted(maps.Keys(e.Details)) {
		switch key {
		case "type", "title", "status", "detail", "instance", "code", "request_id":
			continue // a detail never pretends to be a member of the document
		}
		value, err := json.Marshal(e.Details[key])
		if err != nil {
			continue
		}
		b = append(b, ',')
		b = append(b, mustMarshal(key)...)
		b = append(b, ':')
		b = append(b, value...)
	}
	return append(b, '}')
}

// mustMarshal is for values that always encode.
func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// invalid is a bad request that names its field.
func invalid(field, format string, args ...any) *models.Error {
	e := models.Errorf(models.CodeInvalidRequest, field+": "+format, args...)
	return e.With("field", field)
}

func (a *API) noRoute(c *gin.Context) {
	if a.Pages != nil && c.Request.Method == http.MethodGet && !apiPath(c.Request.URL.Path) {
		exchangeOf(c).route = pageRoute(c.Request.URL.Path)
		c.Writer.WriteHeader(http.StatusOK) // gin has set 404 beforehand
		a.Pages.ServeHTTP(c.Writer, c.Request)
		return
	}
	fail(c, models.Errorf(models.CodeNotFound, "there is nothing at this path"))
}

func (a *API) noMethod(c *gin.Context) {
	h := c.Writer.Header()
	allowed := allow(h.Get("Allow"))
	h.Set("Allow", allowed)
	if c.Request.Method == http.MethodOptions {
		c.Status(http.StatusNoContent)
		c.Writer.WriteHeaderNow()
		return
	}
	e := models.Errorf(models.CodeInvalidRequest, "this path takes %s only", allowed)
	failWith(c, http.StatusMethodNotAllowed, e, e)
}
