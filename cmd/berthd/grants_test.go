package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/client"
	"berth/client/wire"
	"berth/cmd/berthd/config"
	"berth/models"
)

// granted is a berthd and what one owner's wide token has put there.
type granted struct {
	t    *testing.T
	p    *process
	wide string
}

var everything = []models.Scope{models.ScopeUpload, models.ScopeRead, models.ScopeDelete}

func serveGrants(t *testing.T) *granted {
	t.Helper()
	c := realConfig(t)
	c.Database.MaxConns = 8
	c.Collections = map[string]config.Collection{"default": {}, "other": {}, "draft": {Commit: "deferred"}}
	return &granted{t: t, p: start(t, c, "--role", "api"), wide: token(t)}
}

// mint is a token that an application makes with the Go client and its own key.
func (g *granted) mint(gr client.Grant) string {
	g.t.Helper()
	gr.Owner, gr.Lifetime = "ann", time.Hour
	if gr.Scopes == nil {
		gr.Scopes = everything
	}
	s, err := gr.Sign([]byte(testSecret))
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// ask returns the status and the code of an answer, "" if it is a success.
func (g *granted) ask(tok, method, path string, body any) (int, string, []byte) {
	g.t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			g.t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.p.url+path, r)
	if err != nil {
		g.t.Fatal(err)
	}
	if tok != "" {
		req.Header.Set("Authorization", "Bearer "+tok)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := noFollow.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	var p struct{ Code, Error string }
	if resp.StatusCode >= 400 {
		_ = json.Unmarshal(text, &p)
	}
	return resp.StatusCode, p.Code + p.Error, text
}

var noFollow = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func (g *granted) open(tok, collection, ctype string, size int) (int, string, upload) {
	g.t.Helper()
	status, code, text := g.ask(tok, "POST", "/v1/uploads", map[string]any{"collection": collection, "name": "n.bin", "size": size, "content_type": ctype})
	var u upload
	_ = json.Unmarshal(text, &u)
	return status, code, u
}

// put is an upload of the wide token, sent if it is to be.
func (g *granted) put(collection, ctype string, size int, send bool) upload {
	g.t.Helper()
	status, code, u := g.open(g.wide, collection, ctype, size)
	if status != http.StatusCreated {
		g.t.Fatalf("open: %d %s", status, code)
	}
	if send {
		sendPart(g.t, u, strings.Repeat("x", size))
	}
	return u
}

func (g *granted) complete(u upload) {
	g.t.Helper()
	if status, code, _ := g.ask(g.wide, "POST", "/v1/uploads/"+u.ID+"/complete", map[string]any{}); status != http.StatusOK {
		g.t.Fatalf("complete: %d %s", status, code)
	}
}

// form is a multipart of the wide token as Uppy opens it, with one part sent.
func (g *granted) form(ctype string, size int) (path string, part map[string]any) {
	g.t.Helper()
	var m struct{ Key, UploadID string }
	status, _, text := g.ask(g.wide, "POST", "/uppy/s3/multipart", map[string]any{"filename": "a", "type": ctype, "metadata": map[string]any{"collection": "default"}})
	if status != http.StatusOK || json.Unmarshal(text, &m) != nil {
		g.t.Fatalf("uppy: %d %s", status, text)
	}
	path = "/s3/multipart/" + m.UploadID + "%s?key=" + strings.ReplaceAll(m.Key, "/", "%%2F")
	var signed struct{ URL string }
	if status, _, text = g.ask(g.wide, "GET", "/uppy"+fmt.Sprintf(path, "/1"), nil); status != http.StatusOK || json.Unmarshal(text, &signed) != nil {
		g.t.Fatalf("uppy: sign: %d %s", status, text)
	}
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPut, signed.URL, bytes.NewReader(make([]byte, size)))
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	resp.Body.Close()
	return path, map[string]any{"parts": []any{map[string]any{"PartNumber": 1, "ETag": resp.Header.Get("ETag")}}}
}

type deed struct {
	method, path string
	body         any
}

func onUpload(id string) map[string]deed {
	return map[string]deed{
		"show":     {"GET", "/v1/uploads/" + id, nil},
		"sign":     {"POST", "/v1/uploads/" + id + "/parts", map[string]any{"from": 1, "to": 1}},
		"parts":    {"GET", "/v1/uploads/" + id + "/parts", nil},
		"complete": {"POST", "/v1/uploads/" + id + "/complete", map[string]any{}},
		"commit":   {"POST", "/v1/uploads/" + id + "/commit", map[string]any{"name": "n.bin"}},
		"abort":    {"DELETE", "/v1/uploads/" + id, nil},
	}
}

func onFile(id string) map[string]deed {
	return map[string]deed{
		"file":    {"GET", "/v1/files/" + id, nil},
		"history": {"GET", "/v1/files/" + id + "/history", nil},
		"content": {"GET", "/v1/files/" + id + "/content", nil},
		"url":     {"GET", "/v1/files/" + id + "/url", nil},
		"patch":   {"PATCH", "/v1/files/" + id, map[string]any{"name": "m.bin"}},
		"delete":  {"DELETE", "/v1/files/" + id, nil},
	}
}

func (g *granted) refused(tok, what string, d deed, status int, code string) {
	g.t.Helper()
	if s, c, text := g.ask(tok, d.method, d.path, d.body); s != status || c != code {
		g.t.Errorf("%s: %d %s, want %d %s", what, s, text, status, code)
	}
}

// Each narrowing of a grant holds at open and wherever the upload and its file are met
// after that, whoever opened it.
func TestGrantsNarrowEverywhere(t *testing.T) {
	t.Parallel()
	g := serveGrants(t)

	t.Run("collection", func(t *testing.T) {
		g := &granted{t, g.p, g.wide}
		narrow := g.mint(client.Grant{Collection: "default"})
		if status, code, _ := g.open(narrow, "other", "text/plain", 1); status != 403 || code != "FORBIDDEN" {
			t.Errorf("open elsewhere: %d %s", status, code)
		}
		pending, done := g.put("other", "text/plain", 5, true), g.put("other", "text/plain", 5, true)
		g.complete(done)
		for what, d := range onUpload(pending.ID) {
			g.refused(narrow, what, d, 404, "NOT_FOUND")
		}
		for what, d := range onFile(done.FileID) {
			g.refused(narrow, what, d, 404, "NOT_FOUND")
		}
		path, part := g.form("text/plain", 5)
		elsewhere := g.mint(client.Grant{Collection: "other"})
		for what, d := range map[string]deed{"uppy sign": {"GET", fmt.Sprintf(path, "/2"), nil}, "uppy list": {"GET", fmt.Sprintf(path, ""), nil},
			"uppy complete": {"POST", fmt.Sprintf(path, "/complete"), part}, "uppy abort": {"DELETE", fmt.Sprintf(path, ""), nil}} {
			d.path = "/uppy/" + elsewhere + d.path
			g.refused("", what, d, 404, "NOT_FOUND")
		}
		mine := g.put("default", "text/plain", 5, true)
		g.complete(mine)
		for _, query := range []string{"", "?collection=other"} {
			_, _, text := g.ask(narrow, "GET", "/v1/files"+query, nil)
			var l wire.FileList
			if err := json.Unmarshal(text, &l); err != nil {
				t.Fatal(err)
			}
			for _, f := range l.Files {
				if f.Collection != "default" {
					t.Errorf("the list%s holds a file of %s", query, f.Collection)
				}
			}
			if (query == "") != (len(l.Files) > 0) {
				t.Errorf("the list%s holds %d files", query, len(l.Files))
			}
		}
		if status, code, _ := g.ask(narrow, "DELETE", "/v1/files/"+mine.FileID, nil); status != 202 {
			t.Errorf("its own: %d %s", status, code)
		}
		g.complete(pending) // what was refused changed nothing
	})

	t.Run("one upload", func(t *testing.T) {
		g := &granted{t, g.p, g.wide}
		one, two := g.put("default", "text/plain", 5, false), g.put("default", "text/plain", 5, true)
		narrow := g.mint(client.Grant{Upload: one.ID})
		if status, code, _ := g.open(narrow, "default", "text/plain", 1); status != 403 || code != "FORBIDDEN" {
			t.Errorf("open: %d %s", status, code)
		}
		g.refused(narrow, "list", deed{"GET", "/v1/files", nil}, 403, "FORBIDDEN")
		for what, d := range onUpload(two.ID) {
			g.refused(narrow, what, d, 404, "NOT_FOUND")
		}
		g.complete(two)
		for what, d := range onFile(two.FileID) {
			g.refused(narrow, what, d, 404, "NOT_FOUND")
		}
		// All of the one is open to it, to the end.
		var signed struct{ Parts []wire.SignedPart }
		status, code, text := g.ask(narrow, "POST", "/v1/uploads/"+one.ID+"/parts", map[string]any{"from": 1, "to": 1})
		if err := json.Unmarshal(text, &signed); err != nil || status != 200 {
			t.Fatalf("sign: %d %s", status, code)
		}
		sendPart(t, one, "hello")
		for _, d := range []deed{onUpload(one.ID)["complete"], onUpload(one.ID)["show"], onFile(one.FileID)["file"], onFile(one.FileID)["url"]} {
			if status, code, _ := g.ask(narrow, d.method, d.path, d.body); status != 200 {
				t.Errorf("%s %s: %d %s", d.method, d.path, status, code)
			}
		}
	})

	for name, c := range map[string]struct {
		grant  client.Grant
		ctype  string
		size   int
		status int
		code   string
	}{
		"max_bytes":     {client.Grant{MaxBytes: 10}, "text/plain", 11, 413, "TOO_LARGE"},
		"content_types": {client.Grant{ContentTypes: []string{"image/*", "Text/Plain"}}, "application/pdf", 5, 415, "TYPE_NOT_ALLOWED"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &granted{t, g.p, g.wide}
			narrow := g.mint(c.grant)
			if status, code, _ := g.open(narrow, "default", c.ctype, c.size); status != c.status || code != c.code {
				t.Errorf("open: %d %s", status, code)
			}
			if status, code, _ := g.open(narrow, "default", "text/plain", 10); status != 201 {
				t.Errorf("open of what it takes: %d %s", status, code)
			}
			u := g.put("draft", c.ctype, c.size, true)
			for _, what := range []string{"sign", "complete"} {
				g.refused(narrow, what, onUpload(u.ID)[what], c.status, c.code)
			}
			g.complete(u)
			g.refused(narrow, "commit", onUpload(u.ID)["commit"], c.status, c.code)
			path, part := g.form(c.ctype, c.size)
			g.refused("", "uppy", deed{"POST", "/uppy/" + narrow + fmt.Sprintf(path, "/complete"), part}, c.status, c.code)
			if name == "content_types" {
				v := g.put("draft", "text/plain", 5, true)
				g.complete(v)
				g.refused(narrow, "commit as another type", deed{"POST", "/v1/uploads/" + v.ID + "/commit",
					map[string]any{"name": "n", "content_type": c.ctype}}, c.status, c.code)
				g.refused("", "uppy sign", deed{"GET", "/uppy/" + narrow + fmt.Sprintf(path, "/2"), nil}, c.status, c.code)
			}
		})
	}

	t.Run("max_files", func(t *testing.T) {
		g := &granted{t, g.p, g.wide}
		gr := client.Grant{MaxFiles: 2, ID: "form-1"}
		for i, tok := range []string{g.mint(gr), g.mint(gr)} {
			if status, code, _ := g.open(tok, "default", "text/plain", 1); status != 201 {
				t.Errorf("open %d: %d %s", i, status, code)
			}
		}
		renewed := g.mint(gr)
		if status, code, _ := g.open(renewed, "default", "text/plain", 1); status != 403 || code != "FORBIDDEN" {
			t.Errorf("a renewed grant counts anew: %d %s", status, code)
		}
		g.refused("", "uppy", deed{"POST", "/uppy/" + renewed + "/s3/multipart", map[string]any{"filename": "a", "type": "text/plain"}}, 403, "FORBIDDEN")
		if status, code, _ := g.open(g.mint(client.Grant{MaxFiles: 2}), "default", "text/plain", 1); status != 201 {
			t.Errorf("a grant of its own: %d %s", status, code)
		}
	})

	t.Run("scope and life", func(t *testing.T) {
		g := &granted{t, g.p, g.wide}
		gr := client.Grant{Owner: "ann", Lifetime: 25 * time.Hour}
		long, err := gr.Sign([]byte(testSecret))
		if err != nil {
			t.Fatal(err)
		}
		g.refused(long, "list", deed{"GET", "/v1/files", nil}, 403, "FORBIDDEN")
		g.refused("", "a long life in a path", deed{"POST", "/uppy/" + long + "/s3/multipart", map[string]any{"filename": "a", "type": "text/plain"}}, 403, "FORBIDDEN")
		g.refused(g.mint(client.Grant{Scopes: append([]models.Scope{models.ScopeAdmin}, everything...)}), "admin", deed{"GET", "/v1/tasks", nil}, 403, "FORBIDDEN")
		if other, err := gr.Sign([]byte("another secret of at least 32 bytes")); err != nil {
			t.Error(err)
		} else {
			g.refused(other, "another key", deed{"GET", "/v1/files", nil}, 401, "UNAUTHENTICATED")
		}
	})
}

// The Go client sends with a grant as with any token, and with one that is renewed.
func TestClientSendsWithAGrant(t *testing.T) {
	t.Parallel()
	g := serveGrants(t)
	gr := client.Grant{Owner: "ann", Lifetime: time.Hour, Scopes: everything, Collection: "default", MaxBytes: 10, MaxFiles: 1}
	c, err := client.New(g.p.url, "", client.WithTokenSource(gr.Tokens([]byte(testSecret))))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	req := wire.OpenRequest{Collection: "default", Name: "n", Size: 5, ContentType: "text/plain"}
	var refusal *client.Error
	over := req
	over.Size = 11
	if _, err := c.Open(t.Context(), over); !errors.As(err, &refusal) || refusal.Code != models.CodeTooLarge {
		t.Errorf("over the limit: %v", err)
	}
	u, err := c.Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	sendPart(t, upload{Parts: []struct {
		Method, URL string
		Headers     map[string]string
	}{{u.Parts[0].Method, u.Parts[0].URL, u.Parts[0].Headers}}}, "hello")
	if done, err := c.Complete(t.Context(), u.ID, wire.CompleteRequest{}); err != nil || done.State != "committed" {
		t.Errorf("complete: %+v, %v", done, err)
	}
	if _, err := c.Open(t.Context(), req); !errors.As(err, &refusal) || refusal.Code != models.CodeForbidden {
		t.Errorf("the second file: %v", err)
	}
}
