package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"berth/models"
	"berth/tracing"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Defaults of the Config.
const (
	DefaultMaxBody         = 1 << 20 // bytes
	DefaultRequestTimeout  = 30 * time.Second
	DefaultCompleteTimeout = 120 * time.Second
)

// partsBody bounds the bodies that carry up to 10,000 parts, in bytes. One part of
// them is at most some 300 bytes.
const partsBody = 4 << 20

// notificationBody bounds a webhook's body, in bytes.
const notificationBody = 1 << 20

// Config is what the API is made of. Service, Auth and Log must be given.
type Config struct {
	Service  Service
	Auth     Authenticator
	Log      *slog.Logger
	Registry *prometheus.Registry        // nil: one of its own
	Ready    func(context.Context) error // nil: always ready

	Notify             Notify // nil: no store may notify
	NotificationTokens map[models.StoreName]string

	// Pages serves what is neither the API nor a probe: the upload page and the
	// console, with their assets. It sets its own content security policy. nil: 404.
	Pages http.Handler

	MaxBody         int64         // bytes; of bodies that carry no list of parts
	RequestTimeout  time.Duration // of all requests but complete
	CompleteTimeout time.Duration
	AllowedOrigins  []string // CORS; none by default, "*" is any
	PublicURL       string   // where callers reach us; "": as each says itself
	// CallerRate and AddressRate bound requests; by default nothing does. TrustedProxies are
	// the addresses or CIDRs whose X-Forwarded-For tells a client's address.
	CallerRate, AddressRate Rate
	TrustedProxies          []string
	Now                     func() time.Time
	Trace                   *tracing.Tracer // nil: off
}

// API answers requests. It is made by New.
type API struct {
	Config
	engine  *gin.Engine
	metrics *metrics
	tokens  map[models.StoreName][32]byte
	origins origins
	// nil: no limit
	callers, addresses *limiter
}

// New makes the handler of everything that berthd serves.
func New(c Config) *API {
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.MaxBody <= 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.CompleteTimeout <= 0 {
		c.CompleteTimeout = max(DefaultCompleteTimeout, c.RequestTimeout)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &API{
		Config:  c,
		metrics: newMetrics(c.Registry),
		tokens:  hashTokens(c.NotificationTokens),
		origins: newOrigins(c.AllowedOrigins),
		callers: newLimiter(c.CallerRate), addresses: newLimiter(c.AddressRate),
	}
	a.engine = a.routes()
	return a
}

// ServeHTTP serves HEAD as GET; net/http leaves the body out, since it looks at the
// request that it read.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		get := r.WithContext(context.WithValue(r.Context(), headKey{}, true))
		get.Method = http.MethodGet
		r = get
	}
	a.engine.ServeHTTP(w, r)
}

type headKey struct{}

// isHead tells whether the client asked with HEAD.
func isHead(r *http.Request) bool { return r.Context().Value(headKey{}) != nil }

// routes is the whole table. openapi.json describes each of them; a test compares.
func (a *API) routes() *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // the mode is the process's: debug prints the table
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.UseRawPath = true // some stores' multipart upload ids hold slashes
	e.HandleMethodNotAllowed = true
	_ = e.SetTrustedProxies(a.TrustedProxies) // checked by the configuration; by default none is
	e.Use(a.observe, a.recover, a.secure, a.cors, a.limitAddress)
	e.NoRoute(a.noRoute)
	e.NoMethod(a.noMethod)

	e.GET("/healthz", a.health)
	e.GET("/readyz", a.ready)
	e.GET("/metrics", gin.WrapH(promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{})))
	e.GET("/openapi.json", a.openapi)

	quick, through := a.timeout(a.RequestTimeout), a.through(a.RequestTimeout)
	e.POST("/v1/notifications/:store", quick, a.notify)

	v1 := e.Group("/v1", a.authenticate, a.limitCaller)
	upload := a.need(models.ScopeUpload)
	look := a.need(models.ScopeUpload, models.ScopeRead)
	read := a.need(models.ScopeRead)
	remove := a.need(models.ScopeDelete)
	admin := a.need(models.ScopeAdmin)
	once := a.once(a.MaxBody)

	v1.POST("/uploads", upload, quick, a.openUpload)
	v1.GET("/uploads/:id", look, quick, a.showUpload)
	v1.DELETE("/uploads/:id", upload, through, once, a.abortUpload)
	v1.POST("/uploads/:id/parts", upload, quick, a.signParts)
	v1.GET("/uploads/:id/parts", look, quick, a.listParts)
	v1.POST("/uploads/:id/complete", upload, a.timeout(a.CompleteTimeout), a.once(max(partsBody, a.MaxBody)), a.completeUpload)
	v1.POST("/uploads/:id/commit", upload, quick, once, a.commitUpload)

	v1.GET("/files", read, quick, a.listFiles)
	v1.GET("/files/:id", read, quick, a.showFile)
	v1.PATCH("/files/:id", upload, quick, once, a.patchFile)
	v1.DELETE("/files/:id", remove, through, once, a.deleteFile)
	v1.GET("/files/:id/history", read, quick, a.fileHistory)
	v1.GET("/files/:id/content", read, quick, a.fileContent)
	v1.GET("/files/:id/url", read, quick, a.fileURL)
	v1.POST("/files/:id/block", admin, quick, a.blockFile)
	v1.POST("/files/:id/unblock", admin, quick, a.unblockFile)

	v1.POST("/imports", admin, quick, once, a.importObject)
	v1.GET("/tasks", admin, quick, a.listTasks)
	v1.POST("/tasks/:id/retry", admin, quick, a.retryTask)
	e.POST("/v1/tasks/:id/result", quick, a.stepResult)
	v1.GET("/events", admin, quick, a.listEvents)
	v1.POST("/events/:id/retry", admin, quick, a.retryEvent)
	v1.POST("/events/:id/cancel", admin, quick, a.cancelEvent)

	a.uppyRoutes(e)
	return e
}
