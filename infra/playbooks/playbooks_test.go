// Package playbooks_test holds the pages against what they speak of: metrics, tables,
// commands.
package playbooks_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"berth/internal/testkit"
)

const root = "../.."

// registered are the names of all metrics in the code: the Name of each prometheus
// options literal.
func registered(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if sel, ok := lit.Type.(*ast.SelectorExpr); !ok || !strings.HasSuffix(sel.Sel.Name, "Opts") {
				return true
			}
			for _, e := range lit.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				key, _ := kv.Key.(*ast.Ident)
				value, _ := kv.Value.(*ast.BasicLit)
				if key != nil && value != nil && key.Name == "Name" {
					if name, err := strconv.Unquote(value.Value); err == nil {
						names[name] = true
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	paths, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(p, ".md")] = string(b)
	}
	return out
}

var alarms = []string{"tasks-failed", "tasks-old", "lease-takeovers", "uploads-past-deadline", "verification-failures",
	"orphans-found", "reconcile-missing", "counter-drift", "dlq-not-empty", "events-old"}

func TestEachAlarmHasAPage(t *testing.T) {
	t.Parallel()
	all := pages(t)
	if len(all) != len(alarms)+1 {
		t.Errorf("%d pages for %d alarms and their list", len(all), len(alarms))
	}
	for _, a := range alarms {
		page, ok := all[a]
		if !ok {
			t.Errorf("%s has no page", a)
			continue
		}
		if !strings.HasPrefix(page, "# "+a+"\n") {
			t.Errorf("%s: the heading is another", a)
		}
		at := 0
		for _, h := range []string{"## What it means\n", "## What the user notices\n", "## How to look\n", "## How to mend\n"} {
			i := strings.Index(page, h)
			if i < at {
				t.Errorf("%s: lacks %q, or has it elsewhere", a, strings.TrimSpace(h))
			}
			at = i
		}
		if !strings.Contains(all["README"], "["+a+"]("+a+".md)") {
			t.Errorf("%s is not in the list", a)
		}
	}
}

var metric = regexp.MustCompile(`\bberth_[a-z0-9_]+`)

// unknown lists the metrics in a page that nothing registers.
func unknown(page string, names map[string]bool) []string {
	var out []string
	for _, m := range metric.FindAllString(page, -1) {
		base := m
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !names[m] && !names[base] {
			out = append(out, m)
		}
	}
	return out
}

func TestMetricsExist(t *testing.T) {
	t.Parallel()
	names := registered(t)
	if len(names) < 20 || !names["berth_tasks"] {
		t.Fatalf("only %d metrics are seen: the test looks at the wrong place", len(names))
	}
	for page, text := range pages(t) {
		for _, m := range unknown(text, names) {
			t.Errorf("%s: nothing registers %s", page, m)
		}
		if page != "README" && page != "dlq-not-empty" && !metric.MatchString(text[:strings.Index(text, "## ")]) {
			t.Errorf("%s: the alarm's condition names no metric", page)
		}
	}
	if len(unknown("`berth_no_such_metric`", names)) != 1 {
		t.Error("an unknown metric is not noticed")
	}
}

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// Every query in a page is one that the schema understands.
func TestQueriesRun(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testkit.DB(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	n := 0
	for page, text := range pages(t) {
		for _, block := range sqlBlock.FindAllStringSubmatch(text, -1) {
			for q := range strings.SplitSeq(block[1], ";\n") {
				if q = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(q), ";")); q == "" {
					continue
				}
				n++
				if _, err := conn.Exec(t.Context(), q); err != nil {
					t.Errorf("%s: %s: %v", page, q, err)
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d queries are seen", n)
	}
}
