// Package web serves the upload page and the console, with the browser client that it runs, from
// files that are embedded. It owns their headers: a policy that lets the pages load
// nothing from elsewhere and talk to nobody but us and the stores.
//
// It imports the standard library only.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed page/*.html page/*.css page/*.js page/*.svg client/*.js
var files embed.FS

// Config says what the pages may do.
type Config struct {
	// Connect are the origins that parts are sent to: those of the stores' presigned
	// URLs. Our own origin is always allowed.
	Connect []string
}

// asset is a file as it is sent.
type asset struct {
	body []byte
	kind string
	etag string
}

type handler struct {
	policy string
	assets map[string]asset // by path
}

// Handler serves `/`, `/console` and `/assets/…`. Everything else is 404.
func Handler(c Config) http.Handler {
	h := &handler{policy: policy(c.Connect), assets: map[string]asset{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		h.assets["/assets/"+name] = asset{body: body, kind: kinds[path.Ext(name)], etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // what is embedded can be read
	}
	for path, name := range map[string]string{"/": "index", "/console": "console"} {
		file := "/assets/page/" + name + ".html"
		h.assets[path] = h.assets[file]
		delete(h.assets, file)
	}
	return h
}

// kinds are the types of what is embedded: the machine's own table is not asked.
var kinds = map[string]string{
	".html": mime.FormatMediaType("text/html", map[string]string{"charset": "utf-8"}),
	".css":  mime.FormatMediaType("text/css", map[string]string{"charset": "utf-8"}),
	".js":   mime.FormatMediaType("text/javascript", map[string]string{"charset": "utf-8"}),
	".svg":  "image/svg+xml",
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", h.policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Permissions-Policy", permissions)
	a, ok := h.assets[r.URL.Path]
	switch {
	case !ok:
		http.Error(w, "There is nothing here.", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "This can only be read.", http.StatusMethodNotAllowed)
		return
	}
	head.Set("Content-Type", a.kind)
	head.Set("ETag", a.etag)
	// Kept, and asked for again each time: a new release is seen at once, and costs a 304.
	head.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
}

// policy is the content security policy: no inline script or style, nothing from
// elsewhere, no frame around us.
func policy(connect []string) string {
	connect = slices.Clone(connect)
	slices.Sort(connect)
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'self'",
		strings.Join(append([]string{"connect-src 'self'"}, slices.Compact(connect)...), " "),
		"worker-src 'self'",
		"img-src 'self' data:",
		"form-action 'none'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}

// permissions denies what an upload page has no use for.
const permissions = "accelerometer=(), bluetooth=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), hid=(), " +
	"magnetometer=(), microphone=(), midi=(), payment=(), publickey-credentials-get=(), serial=(), usb=(), xr-spatial-tracking=()"
