package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// origins are the web origins whose pages may call the API; none by default.
type origins struct {
	any bool
	set []string
}

func newOrigins(list []string) origins {
	var o origins
	for _, s := range list {
		s = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(s), "/"))
		switch s {
		case "":
		case "*":
			o.any = true
		default:
			o.set = append(o.set, s)
		}
	}
	return o
}

func (o origins) closed() bool { return !o.any && len(o.set) == 0 }

func (o origins) allows(origin string) bool {
	return o.any || slices.Contains(o.set, strings.ToLower(origin))
}

const (
	corsMethods = "GET, HEAD, POST, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, X-Request-Id, Traceparent, Tracestate"
	corsExpose  = "Location, Retry-After, X-Request-Id, Idempotency-Replayed"
)

// cors lets the configured origins' pages call the API. The only cookie there is is for
// pages of our own origin, so credentials are never allowed: a page elsewhere must hold a
// token to do anything.
func (a *API) cors(c *gin.Context) {
	if a.origins.closed() || !apiPath(c.Request.URL.Path) {
		c.Next()
		return
	}
	h := c.Writer.Header()
	h.Add("Vary", "Origin")
	origin := c.Request.Header.Get("Origin")
	if origin == "" || !a.origins.allows(origin) {
		c.Next()
		return
	}
	if a.origins.any {
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", corsExpose)
	if c.Request.Method == http.MethodOptions && c.Request.Header.Get("Access-Control-Request-Method") != "" {
		exchangeOf(c).route = "(preflight)"
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders)
		h.Set("Access-Control-Max-Age", "600")
		c.AbortWithStatus(http.StatusNoContent)
		return
	}
	c.Next()
}

// allow adds to the methods that the router knows those that are served for it.
func allow(known string) string {
	methods := strings.Split(known, ", ")
	if slices.Contains(methods, http.MethodGet) {
		methods = append(methods, http.MethodHead)
	}
	methods = append(methods, http.MethodOptions)
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ", ")
}
