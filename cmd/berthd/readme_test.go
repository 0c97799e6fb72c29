package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The walk through the API in the README, run as it stands.
func TestWalkOfTheReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "<!-- walk")
	walk, _, end := strings.Cut(rest, "<!-- end of the walk -->")
	if !ok || !end {
		t.Fatal("the README has no walk between its marks")
	}
	_, walk, _ = strings.Cut(walk, "```sh\n")
	walk, _, ok = strings.Cut(walk, "```")
	if !ok || strings.TrimSpace(walk) == "" {
		t.Fatal("the walk is empty")
	}
	p := start(t, realConfig(t))
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	env := "BERTH_URL='" + p.url + "'\nBERTH_TOKEN='" + token(t) + "'\n"
	if err := os.WriteFile(filepath.Join(dir, ".dev", "env"), []byte(env), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", walk)
	cmd.Dir, cmd.Env = dir, plainEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"state":"committed"`, "hello from the quay\n", `"to":"active"`, `"state":"deleting"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the walk does not show %s:\n%s", want, out)
		}
	}
}
