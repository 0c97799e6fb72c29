package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/client/wire"
	"berth/controlplane/httpapi"
	"berth/models"

	"github.com/golang-jwt/jwt/v5"
)

const secret = "0123456789abcdef0123456789abcdef"

// logs collects what is logged. It is safe for concurrent use.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func logger(l *logs) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines are the log's lines, decoded.
func (l *logs) lines(t testing.TB) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// server is the API on a real socket, with a client whose every exchange is held
// against the document.
type server struct {
	t    testing.TB
	url  string
	http *http.Client
	log  *logs
}

func serve(t testing.TB, change func(*httpapi.Config)) *server {
	t.Helper()
	l := &logs{}
	auth, err := httpapi.NewVerifier(t.Context(), httpapi.TokenConfig{Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	c := httpapi.Config{Auth: auth, Log: logger(l)}
	change(&c)
	s := httptest.NewServer(httpapi.New(c))
	t.Cleanup(s.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &server{t: t, url: s.URL, log: l, http: &http.Client{
		Transport:     conforming{t, transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// undocumented lets the server be asked for what no document describes: pages, and
// errors that a use case never has.
func (s *server) undocumented() {
	s.http.Transport = s.http.Transport.(conforming).next
}

// mint makes a token with the claims, good for an hour unless they say otherwise.
func mint(t testing.TB, claims jwt.MapClaims) string {
	t.Helper()
	all := jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range claims {
		all[k] = v
		if v == nil {
			delete(all, k)
		}
	}
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, all).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tokenFor(t testing.TB, owner string, scope string) string {
	t.Helper()
	return mint(t, jwt.MapClaims{"sub": owner, "scope": scope})
}

const allScopes = "upload read delete admin"

// answer is what came back, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends a request. A body that is a string or bytes goes as it is, anything else
// as JSON. header pairs come last; "Content-Type" is application/json by default.
func (s *server) call(method, path, token string, body any, header ...string) answer {
	s.t.Helper()
	a, err := s.try(s.t.Context(), method, path, token, body, header...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (s *server) try(ctx context.Context, method, path, token string, body any, header ...string) (answer, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, r)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b}, err
}

func into[T any](t testing.TB, a answer) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return v
}

// problem is the document of a refusal, which must be one.
func (a answer) problem(t testing.TB) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%d %s is no problem document: %s", a.status, a.header.Get("Content-Type"), a.body)
	}
	if p.Status != a.status || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") || p.Title == "" {
		t.Fatalf("the problem does not fit its answer (%d, %s): %s", a.status, a.header.Get("X-Request-Id"), a.body)
	}
	return p
}

// wants fails unless the answer is a refusal with the code.
func (a answer) wants(t testing.TB, status int, code models.Code) {
	t.Helper()
	if a.status != status {
		t.Fatalf("answered %d %s, want %d %s", a.status, a.body, status, code)
	}
	if p := a.problem(t); p.Code != string(code) {
		t.Fatalf("code %s (%s), want %s", p.Code, p.Detail, code)
	}
}

func (a answer) member(t testing.TB, name string) any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return m[name]
}
