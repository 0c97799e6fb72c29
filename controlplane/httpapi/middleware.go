package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"berth/models"

	"github.com/gin-gonic/gin"
)

// exchange is what is known of one request, for its log line and its problem.
type exchange struct {
	id     string
	route  string // overrides the template of the router
	caller models.Caller
	code   models.Code
	err    error
	// unsettled marks an answer of success that a repetition may find to be another.
	unsettled bool
}

const exchangeKey = "berth.exchange"

func exchangeOf(c *gin.Context) *exchange { return c.MustGet(exchangeKey).(*exchange) }

// observe names the request, counts it, and writes its one log line: the template
// of the route, never the path (which may carry a grant) or the query.
func (a *API) observe(c *gin.Context) {
	started := time.Now()
	x := &exchange{id: requestID(c.Request)}
	c.Set(exchangeKey, x)
	c.Writer.Header().Set("X-Request-Id", x.id)
	method := knownMethod(c.Request)
	a.metrics.inFlight.Inc()
	span := a.trace(c, method, x.id)
	defer func() {
		a.metrics.inFlight.Dec()
		took := time.Since(started)
		route := x.route
		if route == "" {
			route = c.FullPath()
		}
		if route == "" {
			route = "(none)"
		}
		status := c.Writer.Status()
		a.metrics.observe(route, method, status, took)
		span.ended(route, method, status, x)

		attrs := []slog.Attr{
			slog.String("method", method), slog.String("route", route), slog.Int("status", status),
			slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("request_id", x.id),
			slog.Int("bytes", max(c.Writer.Size(), 0)),
		}
		if x.caller.Tenant != "" {
			attrs = append(attrs, slog.String("tenant", string(x.caller.Tenant)))
		}
		if x.code != "" {
			attrs = append(attrs, slog.String("code", string(x.code)))
		}
		level := slog.LevelInfo
		if quietRoute(route) && x.err == nil {
			level = slog.LevelDebug
		}
		if x.err != nil {
			var e *models.Error
			switch {
			case errors.Is(x.err, ErrStopping): // nothing that anybody must mend
			case status >= 500:
				level = slog.LevelError
				attrs = append(attrs, slog.String("error", scrub(x.err.Error())))
			case errors.As(x.err, &e) && e.Cause != nil:
				attrs = append(attrs, slog.String("cause", scrub(e.Cause.Error())))
			}
		}
		a.Log.LogAttrs(c.Request.Context(), level, "request", attrs...)
	}()
	c.Next()
}

// recover turns a panic into INTERNAL; its value and stack go to the log only.
func (a *API) recover(c *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			panic(v)
		}
		x := exchangeOf(c)
		a.Log.LogAttrs(c.Request.Context(), slog.LevelError, "panic",
			slog.String("request_id", x.id), slog.String("route", c.FullPath()),
			slog.String("panic", scrub(fmt.Sprint(v))), slog.String("stack", string(debug.Stack())))
		fail(c, fmt.Errorf("httpapi: panic: %v", v))
	}()
	c.Next()
}

// secure sets the headers that every answer has. Pages set their own policy.
func (a *API) secure(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	if c.FullPath() != "" || apiPath(c.Request.URL.Path) || a.Pages == nil {
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
	}
	c.Next()
}

// timeout bounds the work of a request.
func (a *API) timeout(d time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), d)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
}

// through is timeout for what ends something: it is carried out also when the caller goes
// away meanwhile, as a page does that is closed after a cancel.
func (a *API) through(d time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), d)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
}

// authenticate puts the caller into the exchange, or answers 401 with a sentence
// that is always the same.
func (a *API) authenticate(c *gin.Context) {
	token, ok := bearer(c.Request)
	if !ok {
		fail(c, errUnauthenticated)
		return
	}
	if a.verified(c, token) {
		c.Next()
	}
}

// verified puts the caller that a token names into the exchange, or answers 401.
func (a *API) verified(c *gin.Context, token string) bool {
	caller, err := a.callerOf(c.Request.Context(), token)
	if err != nil {
		if models.ErrorCode(err) == models.CodeUnauthenticated {
			c.Header("WWW-Authenticate", `Bearer realm="berth", error="invalid_token"`)
			err = errUnauthenticated
		}
		fail(c, err)
		return false
	}
	exchangeOf(c).caller = caller
	return true
}

// callerOf is the caller that a token stands for: a JWT's, or the step's that was given a
// lease token.
func (a *API) callerOf(ctx context.Context, token string) (models.Caller, error) {
	id, ok := models.SplitLeaseToken(token)
	if !ok {
		return a.Auth.Verify(ctx, token)
	}
	caller, err := a.Service.LeaseCaller(ctx, id, token)
	if models.ErrorCode(err) == models.CodeNotFound {
		return models.Caller{}, errUnauthenticated
	}
	return caller, err
}

// need lets callers pass who have one of the scopes.
func (a *API) need(scopes ...models.Scope) gin.HandlerFunc {
	return func(c *gin.Context) {
		caller := exchangeOf(c).caller
		if !slices.ContainsFunc(scopes, caller.Can) {
			c.Header("WWW-Authenticate", fmt.Sprintf(`Bearer realm="berth", error="insufficient_scope", scope=%q`, string(scopes[0])))
			fail(c, caller.Require(scopes[0]))
			return
		}
		c.Next()
	}
}

// bearer takes the token out of the one Authorization header.
func bearer(r *http.Request) (string, bool) {
	all := r.Header.Values("Authorization")
	if len(all) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(all[0], " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", false
	}
	return token, true
}

var saneID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// requestID takes the client's request id if it is short and plain, or makes one. A
// token does not fit: it has dots.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); saneID.MatchString(id) {
		return id
	}
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand never fails on supported systems
	}
	return hex.EncodeToString(b[:])
}

// knownMethod keeps made-up methods out of labels and logs.
func knownMethod(r *http.Request) string {
	if isHead(r) {
		return http.MethodHead
	}
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

func apiPath(path string) bool {
	return path == "/v1" || path == "/uppy" || strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/uppy/")
}

func pageRoute(path string) string {
	if path == "/" || path == "/console" {
		return path
	}
	return "(pages)"
}

// quietRoute tells which routes a machine asks all day long.
func quietRoute(route string) bool {
	return route == "/healthz" || route == "/readyz" || route == "/metrics"
}

// scrubs take out of a text for the log what must never be in one. No error text
// should hold such a thing; this is the second fence.
var scrubs = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`(?i)(https?://[^\s"'?]+)\?[^\s"']*`), "$1?[query]"},
	{regexp.MustCompile(`(?i)x-amz-(signature|credential|security-token)=[^&\s"']*`), "[signed]"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[^\s"',]+`), "$1 [token]"},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]*(\.[A-Za-z0-9_-]*)*`), "[token]"},
	{regexp.MustCompile(`(?i)(postgres(?:ql)?://)[^\s@"']*@`), "$1[user]@"},
}

func scrub(s string) string {
	for _, x := range scrubs {
		s = x.find.ReplaceAllString(s, x.put)
	}
	return s
}
