package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/testkit"

	"go.yaml.in/yaml/v3"
)

func TestReloadOfCollections(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	c.Collections = map[string]config.Collection{"default": {}}
	p := start(t, c, "--role", "api")
	tok := token(t)
	open := func(collection string) int {
		return call(t, http.MethodPost, p.url+"/v1/uploads", tok, map[string]any{"collection": collection, "name": "a", "size": 1}, nil)
	}
	if code := open("new"); code != http.StatusBadRequest {
		t.Fatalf("an unknown collection: %d", code)
	}
	reload := func(text, says string) {
		t.Helper()
		if err := os.WriteFile(p.cmd.Args[3], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 30*time.Second, func() error {
			if !strings.Contains(p.output(), says) {
				return fmt.Errorf("the log does not say %q", says)
			}
			return nil
		})
	}
	c.Collections["new"] = config.Collection{}
	good, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	reload(string(good), "collections reloaded")
	if code := open("new"); code != http.StatusCreated {
		t.Errorf("a collection that was reloaded: %d", code)
	}
	// One mistake, and the whole is refused: what is in force stays.
	reload(strings.Replace(string(good), "new: {}", "newer: {}\n    broken: {algorithm: md5}", 1), "is refused")
	if code := open("new"); code != http.StatusCreated {
		t.Errorf("after a refused reload: %d", code)
	}
	if code := open("newer"); code != http.StatusBadRequest {
		t.Errorf("a refused reload was taken in part: %d", code)
	}
}
