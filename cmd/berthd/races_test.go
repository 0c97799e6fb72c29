package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"berth/cmd/berthd/config"

	"github.com/jackc/pgx/v5"
)

// three starts three servers on one database, with collections for races.
func three(t *testing.T) (servers []*process, db *pgx.Conn) {
	t.Helper()
	c := realConfig(t)
	c.Database.MaxConns = 8
	c.Collections = map[string]config.Collection{
		"places": {MaxFiles: 3},
		"bytes":  {MaxBytes: 30},
		"reject": {Dedupe: "reject", MaxFiles: 10},
		"reuse":  {Dedupe: "reuse"},
		"plain":  {},
	}
	for range 3 {
		servers = append(servers, start(t, c, "--role", "api"))
	}
	db, err := pgx.Connect(t.Context(), c.Database.URL.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(t.Context()) })
	return servers, db
}

type opened struct {
	Status           int `json:"-"`
	ID, Code         string
	FileID           string `json:"file_id"`
	Resumed, Instant bool
}

// race has n requests to open leave at the same moment, in turn for each server.
func race(t *testing.T, servers []*process, tok string, n int, body func(i int) map[string]any) []opened {
	t.Helper()
	transport := &http.Transport{MaxConnsPerHost: n}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	out := make([]opened, n)
	gun := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		raw, err := json.Marshal(body(i))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, servers[i%len(servers)].url+"/v1/uploads", bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tok)
		req.Header.Set("Content-Type", "application/json")
		all.Go(func() {
			<-gun
			resp, err := client.Do(req)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil {
				err = json.Unmarshal(text, &out[i])
			}
			if err != nil {
				t.Errorf("request %d: %d %s: %v", i, resp.StatusCode, text, err)
			}
			out[i].Status = resp.StatusCode
		})
	}
	close(gun)
	all.Wait()
	return out
}

// counters holds the owner's row against the files and sessions that there are.
func counters(t *testing.T, db *pgx.Conn, collection string) {
	t.Helper()
	var files, size, open, realFiles, realSize, realOpen int64
	if err := db.QueryRow(t.Context(), `SELECT q.files, q.bytes, q.open,
		(SELECT count(*) FROM files f WHERE f.collection = q.collection AND f.state NOT IN ('failed', 'deleting', 'deleted', 'delete_failed')),
		(SELECT COALESCE(sum(f.size), 0) FROM files f WHERE f.collection = q.collection AND f.state NOT IN ('failed', 'deleting', 'deleted', 'delete_failed')),
		(SELECT count(*) FROM uploads u WHERE u.collection = q.collection AND u.state IN ('init', 'uploading', 'completing', 'completed'))
		FROM quotas q WHERE q.collection = $1`, collection).Scan(&files, &size, &open, &realFiles, &realSize, &realOpen); err != nil {
		t.Fatal(err)
	}
	if files != realFiles || size != realSize || open != realOpen {
		t.Errorf("%s: the quota counts %d files, %d bytes, %d open; there are %d, %d, %d", collection, files, size, open, realFiles, realSize, realOpen)
	}
}

// F5 on real processes: two hundred requests on three servers for the one place that is
// left, counted in files and in bytes.
func TestLastPlaceOnThreeServers(t *testing.T) {
	t.Parallel()
	servers, db := three(t)
	tok := token(t)
	for _, collection := range []string{"places", "bytes"} {
		ask := func(i int) map[string]any {
			return map[string]any{"collection": collection, "name": fmt.Sprintf("%d.bin", i), "size": 10}
		}
		for _, o := range race(t, servers, tok, 2, ask) {
			if o.Status != http.StatusCreated {
				t.Fatalf("%s: the first: %+v", collection, o)
			}
		}
		won, refused := 0, 0
		for _, o := range race(t, servers, tok, 200, ask) {
			switch {
			case o.Status == http.StatusCreated:
				won++
			case o.Status == http.StatusConflict && o.Code == "QUOTA_EXCEEDED":
				refused++
			default:
				t.Errorf("%s: %+v", collection, o)
			}
		}
		if won != 1 || refused != 199 {
			t.Errorf("%s: %d won and %d were refused", collection, won, refused)
		}
		counters(t, db, collection)
	}
}

// The same bytes opened everywhere at once are one upload, and once they are there one
// file: refused where the collection rejects duplicates, handed over where it reuses them.
func TestDuplicatesOnThreeServers(t *testing.T) {
	t.Parallel()
	const racers = 60
	servers, db := three(t)
	tok := token(t)
	const content = "the same everywhere"
	sum := sha256.Sum256([]byte(content))
	for _, collection := range []string{"reject", "reuse", "plain"} {
		ask := func(i int) map[string]any {
			return map[string]any{"collection": collection, "name": fmt.Sprintf("%d.txt", i), "size": len(content), "content_type": "text/plain",
				"continue": collection == "plain", "checksum": map[string]any{"algorithm": "sha256", "value": base64.StdEncoding.EncodeToString(sum[:])}}
		}
		fresh, ids := 0, map[string]int{}
		for _, o := range race(t, servers, tok, racers, ask) {
			ids[o.ID]++
			switch {
			case o.Status == http.StatusCreated && !o.Resumed:
				fresh++
			case o.Status == http.StatusOK && o.Resumed:
			default:
				t.Errorf("%s: %+v", collection, o)
			}
		}
		if fresh != 1 || len(ids) != 1 {
			t.Fatalf("%s: %d new, uploads %v", collection, fresh, ids)
		}
		var u upload
		for id := range ids {
			call(t, http.MethodPost, servers[0].url+"/v1/uploads/"+id+"/parts", tok, map[string]any{"from": 1, "to": 1}, &u)
			u.ID = id
		}
		sendPart(t, u, content)
		if code := call(t, http.MethodPost, servers[1].url+"/v1/uploads/"+u.ID+"/complete", tok, map[string]any{}, &u); code != http.StatusOK {
			t.Fatalf("%s: complete: %d", collection, code)
		}
		if collection == "plain" {
			continue
		}
		for _, o := range race(t, servers, tok, racers, ask) {
			good := o.Status == http.StatusOK && o.Instant && o.FileID == u.FileID
			if collection == "reject" {
				good = o.Status == http.StatusConflict && o.Code == "DUPLICATE_FILE" && o.FileID == u.FileID
			}
			if !good {
				t.Errorf("%s, of a file that is there: %+v", collection, o)
			}
		}
		counters(t, db, collection)
	}
}
