package infra_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"go.yaml.in/yaml/v3"
)

// metrics are the code's: name → labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
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
			c, ok := n.(*ast.CallExpr)
			if !ok || len(c.Args) == 0 {
				return true
			}
			name, constant := optsName(c.Args[0])
			if name == "" {
				return true
			}
			labels := constant
			if len(c.Args) == 2 {
				if l, ok := c.Args[1].(*ast.CompositeLit); ok {
					for _, e := range l.Elts {
						if s, ok := e.(*ast.BasicLit); ok {
							v, _ := strconv.Unquote(s.Value)
							labels = append(labels, v)
						}
					}
				}
			}
			out[name] = labels
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 25 || !slices.Equal(out["berth_tasks"], []string{"kind", "state"}) {
		t.Fatalf("the test does not see the metrics: %v", out)
	}
	return out
}

// optsName is the Name of a prometheus options literal, and its constant labels.
func optsName(e ast.Expr) (name string, labels []string) {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return "", nil
	}
	if sel, ok := lit.Type.(*ast.SelectorExpr); !ok || !strings.HasSuffix(sel.Sel.Name, "Opts") {
		return "", nil
	}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key, _ := kv.Key.(*ast.Ident); {
		case key == nil:
		case key.Name == "Name":
			if v, ok := kv.Value.(*ast.BasicLit); ok {
				name, _ = strconv.Unquote(v.Value)
			}
		case key.Name == "ConstLabels":
			if m, ok := kv.Value.(*ast.CompositeLit); ok {
				for _, e := range m.Elts {
					if k, ok := e.(*ast.KeyValueExpr).Key.(*ast.BasicLit); ok {
						v, _ := strconv.Unquote(k.Value)
						labels = append(labels, v)
					}
				}
			}
		}
	}
	return name, labels
}

var (
	series    = regexp.MustCompile(`\b(berth_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	scraped   = []string{"job", "instance", "le"} // by the scrape, and by histograms
	histogram = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// strange lists what an expression names that no code has: metrics, and labels of them.
func strange(expr string, have map[string][]string) (out []string) {
	var labels []string
	for _, m := range series.FindAllStringSubmatch(expr, -1) {
		own, ok := have[m[1]]
		if !ok {
			if own, ok = have[histogram.ReplaceAllString(m[1], "")]; !ok {
				out = append(out, m[1])
				continue
			}
		}
		labels = append(labels, own...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(own, l[1]) && !slices.Contains(scraped, l[1]) {
				out = append(out, m[1]+"{"+l[1]+"}")
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(labels, l) && !slices.Contains(scraped, l) {
				out = append(out, "by "+l)
			}
		}
	}
	return out
}

func TestStrangeMetricsAreSeen(t *testing.T) {
	t.Parallel()
	have := metrics(t)
	for expr, want := range map[string]int{
		`sum by (kind) (berth_tasks{state="failed",job="x"})`:          0,
		`rate(berth_events_age_seconds_bucket{outcome="settled"}[5m])`: 0,
		`berth_task`:                     1,
		`berth_tasks{status="failed"}`:   1,
		`sum by (store) (berth_tasks)`:   1,
		`sum by (nothing) (berth_tasks)`: 1,
	} {
		if got := strange(expr, have); len(got) != want {
			t.Errorf("%s: %q", expr, got)
		}
	}
}

type alert struct {
	Alert, Expr         string
	Annotations, Labels map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	b, err := os.ReadFile("alarms/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal(b, &doc); err != nil || len(doc.Groups) != 1 {
		t.Fatal(err)
	}
	return doc.Groups[0].Rules
}

// playbooks are the pages, by name.
func playbooks(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("playbooks/*.md")
	if err != nil || len(paths) < 5 {
		t.Fatal(err, paths)
	}
	var out []string
	for _, p := range paths {
		if name := strings.TrimSuffix(filepath.Base(p), ".md"); name != "README" {
			out = append(out, name)
		}
	}
	return out
}

func TestAlertsNameMetricsThatExistAndPagesThatDo(t *testing.T) {
	t.Parallel()
	have, pages, rung := metrics(t), playbooks(t), set{}
	for _, a := range alerts(t) {
		for _, s := range strange(a.Expr, have) {
			t.Errorf("%s: no code has %s", a.Alert, s)
		}
		if !series.MatchString(a.Expr) {
			t.Errorf("%s names no metric", a.Alert)
		}
		if a.Annotations["playbook"] != "infra/playbooks/"+a.Alert+".md" || a.Annotations["summary"] == "" || a.Labels["severity"] == "" {
			t.Errorf("%s: %v, %v", a.Alert, a.Annotations, a.Labels)
		}
		rung.add(a.Alert)
	}
	for _, p := range pages {
		if !rung[p] {
			t.Errorf("the playbook %s has no alert", p)
		}
	}
	if len(rung) != len(pages) {
		t.Errorf("%d alerts for %d playbooks", len(rung), len(pages))
	}
}

func TestTheDashboardShowsMetricsThatExist(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("dashboards/berth.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	have, shown, ids := metrics(t), set{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: its id or place is wrong", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			for _, s := range strange(target.Expr, have) {
				t.Errorf("%s: no code has %s", p.Title, s)
			}
			for _, m := range series.FindAllStringSubmatch(target.Expr, -1) {
				shown.add(histogram.ReplaceAllString(m[1], ""))
			}
		}
	}
	// What is alarmed about can be looked at.
	for _, a := range alerts(t) {
		for _, m := range series.FindAllStringSubmatch(a.Expr, -1) {
			if !shown[m[1]] {
				t.Errorf("the alert %s is about %s, which no panel shows", a.Alert, m[1])
			}
		}
	}
}

var (
	fromSchema = regexp.MustCompile(`SELECT [A-Z]+\((berth_[a-z0-9_]+)\) FROM SCHEMA\(.*?, ([a-z, ]+)\)(?: WHERE ([a-z]+))?`)
	declared   = regexp.MustCompile(`(?m)^\s+(berth_[a-z0-9_]+)\s+= \[([^\]]*)\]`)
)

// CloudWatch's alarms look at what the agent hands on, which is what the code has.
func TestCloudWatchAlarmsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	have := metrics(t)
	service, err := os.ReadFile("terraform/modules/service/metrics.tf")
	if err != nil {
		t.Fatal(err)
	}
	handed := map[string][]string{}
	for _, m := range declared.FindAllStringSubmatch(string(service), -1) {
		var dims []string
		for _, d := range regexp.MustCompile(`"([a-z]+)"`).FindAllStringSubmatch(m[2], -1) {
			dims = append(dims, d[1])
			if !slices.Contains(have[m[1]], d[1]) && d[1] != "job" {
				t.Errorf("module service hands on %s by %s, a label that it has not", m[1], d[1])
			}
		}
		if _, ok := have[m[1]]; !ok {
			t.Errorf("module service hands on %s, which no code has", m[1])
		}
		handed[m[1]] = dims
	}
	text, err := os.ReadFile("terraform/modules/alarms/main.tf")
	if err != nil {
		t.Fatal(err)
	}
	queries := fromSchema.FindAllStringSubmatch(string(text), -1)
	if len(queries) < 10 || len(handed) < 8 || strings.Count(string(text), "SELECT") != len(queries) {
		t.Fatalf("%d of %d queries over %d metrics are seen", len(queries), strings.Count(string(text), "SELECT"), len(handed))
	}
	used := set{}
	for _, q := range queries {
		dims, ok := handed[q[1]]
		if !ok {
			t.Errorf("an alarm looks at %s, which module service does not hand on", q[1])
		}
		// SCHEMA matches only series with exactly these dimensions.
		if want := strings.Join(dims, ", "); q[2] != want {
			t.Errorf("an alarm looks at %s by %q; it is handed on by %q", q[1], q[2], want)
		}
		if q[3] != "" && !slices.Contains(dims, q[3]) {
			t.Errorf("an alarm narrows %s by %s, which it has not", q[1], q[3])
		}
		used.add(q[1])
	}
	for name := range handed {
		if !used[name] {
			t.Errorf("module service hands on %s, at which no alarm looks", name)
		}
	}
	page := regexp.MustCompile(`page\s+= "([a-z-]+)"|(dlq-not-empty|events-old) = \{`)
	rung := set{}
	for _, m := range page.FindAllStringSubmatch(string(text), -1) {
		rung.add(m[1] + m[2])
	}
	if got, want := rung.list(), playbooks(t); !slices.Equal(got, want) {
		t.Errorf("alarms for %q, playbooks %q", got, want)
	}
}

// Each alarm's beginning can be moved, by the alarm's own name.
func TestEachAlarmHasAThreshold(t *testing.T) {
	t.Parallel()
	named, taken := set{}, set{}
	for _, body := range module_(t, "alarms") {
		for _, b := range body.Blocks {
			switch {
			case b.Type == "locals":
				for _, of := range []string{"own", "queues"} {
					for _, item := range b.Body.Attributes[of].Expr.(*hclsyntax.ObjectConsExpr).Items {
						named.add(hcl.ExprAsKeyword(item.KeyExpr))
					}
				}
			case b.Type == "variable" && b.Labels[0] == "thresholds":
				r := blocks(b.Body, "validation")[0].Attributes["condition"].Expr.Range()
				text, err := os.ReadFile(r.Filename)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range regexp.MustCompile(`"([a-z-]+)"`).FindAllStringSubmatch(string(text[r.Start.Byte:r.End.Byte]), -1) {
					taken.add(m[1])
				}
			}
		}
	}
	if len(named) < 13 {
		t.Fatalf("the test sees only the alarms %q", named.list())
	}
	if !slices.Equal(named.list(), taken.list()) {
		t.Errorf("alarms %q, thresholds of %q", named.list(), taken.list())
	}
}
