package web_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/web"
)

func get(t *testing.T, h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	t.Parallel()
	h := web.Handler(web.Config{Connect: []string{"https://b.example.com", "https://a.example.com", "https://b.example.com"}})
	for _, path := range []string{"/", "/assets/page/page.css", "/assets/nothing", "/console"} {
		got := get(t, h, http.MethodGet, path).Header()
		const want = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' https://a.example.com https://b.example.com; " +
			"worker-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
		if p := got.Get("Content-Security-Policy"); p != want {
			t.Errorf("%s: policy %s", path, p)
		}
		for k, v := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got.Get(k) != v {
				t.Errorf("%s: %s is %q, want %q", path, k, got.Get(k), v)
			}
		}
		if !strings.Contains(got.Get("Permissions-Policy"), "camera=()") {
			t.Errorf("%s: permissions %s", path, got.Get("Permissions-Policy"))
		}
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	h := web.Handler(web.Config{})
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/console": "text/html; charset=utf-8", "/assets/page/main.js": "text/javascript; charset=utf-8", "/assets/client/hashworker.js": "text/javascript; charset=utf-8",
		"/assets/page/page.css": "text/css; charset=utf-8", "/assets/page/icon.svg": "image/svg+xml",
	} {
		w := get(t, h, http.MethodGet, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %s, %d bytes", path, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		if w := get(t, h, http.MethodGet, path, "If-None-Match", w.Header().Get("ETag")); w.Code != http.StatusNotModified {
			t.Errorf("%s again: %d, want 304", path, w.Code)
		}
		if w := get(t, h, http.MethodGet, path, "If-None-Match", `"other"`); w.Code != http.StatusOK {
			t.Errorf("%s with another ETag: %d", path, w.Code)
		}
		if w := get(t, h, http.MethodPost, path); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/assets/", "/assets/client/", "/assets/client/test/fake.js", "/assets/web.go", "/assets/page/../web.go", "/assets/page/index.html", "/assets/page/console.html", "/console/", "/package.json"} {
		if w := get(t, h, http.MethodGet, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, w.Code)
		}
	}
}

// What is served names nobody else's host, and nothing that the policy would refuse.
func TestNothingComesFromElsewhere(t *testing.T) {
	t.Parallel()
	bad := regexp.MustCompile(`(?i)https?://|\sstyle=|\son[a-z]+=|innerHTML|<script>|@import|\beval\(`)
	allowed := regexp.MustCompile(`http://www\.w3\.org/2000/svg|https://uploads\.example\.com`)
	seen := 0
	for _, dir := range []string{"page", "client"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if d.Name() == "test" {
					return fs.SkipDir
				}
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			seen++
			if m := bad.Find(allowed.ReplaceAll(text, nil)); m != nil {
				t.Errorf("%s has %q", path, m)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 15 {
		t.Errorf("only %d files were looked at", seen)
	}
}
