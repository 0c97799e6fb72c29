package infra_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Each page has the same parts, is in the list, and shows a configuration that berthd takes.
func TestStorePages(t *testing.T) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "BERTH_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("BERTH_DATABASE_URL", "postgres://berth@db/berth")
	list, err := os.ReadFile("stores/README.md")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("stores/*.md")
	if err != nil || len(paths) != 8 {
		t.Fatalf("%d pages (%v)", len(paths), err)
	}
	for _, p := range paths {
		if filepath.Base(p) == "README.md" {
			continue
		}
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		text, at := string(b), 0
		for _, h := range []string{"# ", "\n## Settings\n", "\n## What is not enforced\n", "\n## Events\n", "\n## What doctor says\n"} {
			i := strings.Index(text, h)
			if i < at {
				t.Errorf("%s: lacks %q, or has it elsewhere", p, strings.TrimSpace(h))
			}
			at = i
		}
		if !strings.Contains(string(list), "("+filepath.Base(p)+")") {
			t.Errorf("%s is not in the list", p)
		}
		blocks := yamlBlock.FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("%s shows no configuration", p)
		}
		for _, m := range blocks {
			c := load(t, m[1]+"\nauth: {jwks_url: https://id.example.com/keys}\n")
			if c.Stores["main"].Prefix != "berth/" {
				t.Errorf("%s: %s", p, c)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)[^):]*\)`)

// A link inside the project leads somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, pattern := range []string{"*.md", "stores/*.md", "playbooks/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	n := 0
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			n++
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), m[1])); err != nil {
				t.Errorf("%s: %s leads nowhere", p, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d links are seen", n)
	}
}
