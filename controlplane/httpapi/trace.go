package httpapi

import (
	"strings"

	"berth/tracing"

	"github.com/gin-gonic/gin"
)

// served is the span of one request.
//
// It is ours and not otelgin's: that one records url.path, which here may hold a grant.
type served struct{ tracing.Span }

// trace begins the span of a request, in the trace that its traceparent names. Routes that
// a machine asks all day long have none.
func (a *API) trace(c *gin.Context, method, requestID string) served {
	if !a.Trace.On() || quietRoute(c.FullPath()) {
		return served{}
	}
	ctx := a.Trace.Receive(c.Request.Context(), c.GetHeader("Traceparent"))
	ctx, span := a.Trace.Start(ctx, tracing.Server, strings.TrimSpace(method+" "+c.FullPath()), tracing.String("http.request.method", method),
		tracing.String("berth.request_id", requestID))
	c.Request = c.Request.WithContext(ctx)
	return served{span}
}

// ended says what the request was and how it was answered: the template of the route, never
// the path or the query.
func (s served) ended(route, method string, status int, x *exchange) {
	if s == (served{}) {
		return
	}
	s.Name(method + " " + route)
	s.Set(tracing.String("http.route", route), tracing.Int("http.response.status_code", status))
	if x.caller.Tenant != "" {
		s.Set(tracing.String("berth.tenant", string(x.caller.Tenant)))
	}
	if x.code != "" {
		s.Set(tracing.String("berth.code", string(x.code)))
	}
	if status >= 500 {
		s.Fail(string(x.code))
	}
	s.End(nil)
}
