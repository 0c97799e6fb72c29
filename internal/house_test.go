// Package internal_test holds the tree against the import rules: a second
// opinion beside the linter's, that runs with every other test.
package internal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// roomRules says which of Berth's own packages each room may import, besides
// models. cmd/berthd and cmd/berthdev join rooms, and have no rule.
var roomRules = []struct {
	room string // the package; with /... also what is under it
	may  []string
}{
	{"models", nil},
	{"migrations", nil},
	{"client/wire", nil},
	{"client", []string{"client/wire"}},
	{"tracing", nil},
	{"controlplane", []string{"tracing"}},
	{"controlplane/store/...", []string{"controlplane/store", "tracing"}},
	{"controlplane/objects/...", []string{"controlplane/objects", "tracing"}},
	{"controlplane/worker/...", []string{"controlplane/worker", "tracing"}},
	{"controlplane/reconcile/...", []string{"controlplane/reconcile"}},
	{"controlplane/httpapi/...", []string{"controlplane", "client/wire", "controlplane/httpapi", "tracing"}},
	{"events/...", []string{"events", "tracing"}},
	{"web/...", []string{"web"}},
	{"infra/...", []string{"infra"}},
	{"internal/parts", nil},
	{"internal/testkit", []string{"internal/parts", "migrations"}},
	{"cmd/berth/...", []string{"client", "client/wire", "cmd/berth"}},
	{"cmd/berthd/config", nil},
}

// ownerRules says which rooms may use what comes from outside. Programs may, to
// join rooms, and so may the parts and the testkit.
var ownerRules = []struct {
	outside string
	rooms   []string
}{
	{"gorm.io", []string{"controlplane/store"}},
	{"database/sql", []string{"controlplane/store", "migrations"}},
	{"github.com/jackc/pgx", []string{"controlplane/store", "migrations"}},
	{"github.com/pressly/goose", []string{"migrations"}},
	{"github.com/gin-gonic", []string{"controlplane/httpapi"}},
	{"github.com/aws/aws-sdk-go-v2/service/s3", []string{"controlplane/objects"}},
	{"github.com/aws", []string{"controlplane/objects", "events"}},
	{"net/http", []string{"controlplane/objects", "controlplane/httpapi", "controlplane/worker", "events", "client", "web"}},
	{"github.com/parquet-go/parquet-go", []string{"controlplane/objects"}},
	{"github.com/sivchari/kumo", nil},
	{"go.opentelemetry.io/otel/sdk", nil},
	{"go.opentelemetry.io/otel/exporters", nil},
	{"go.opentelemetry.io", []string{"tracing"}},
}

const module = "berth/"

// crossings lists what a package's imports break. Both are import paths without
// the module's name, as far as they are ours.
func crossings(pkg string, imports []string) []string {
	var bad []string
	for _, imp := range imports {
		own, ok := strings.CutPrefix(imp, module)
		if ok {
			if !mayImport(pkg, own) {
				bad = append(bad, fmt.Sprintf("%s imports %s", pkg, own))
			}
			continue
		}
		if pkg == "models" && strings.Contains(imp, ".") {
			bad = append(bad, fmt.Sprintf("models imports %s: it takes the standard library only", imp))
		}
		for _, r := range ownerRules {
			if !within(imp, r.outside) {
				continue
			}
			if !ownerMay(pkg, r.rooms, r.outside) {
				bad = append(bad, fmt.Sprintf("%s imports %s", pkg, imp))
			}
			break
		}
	}
	return bad
}

func mayImport(pkg, own string) bool {
	for _, r := range roomRules {
		room, deep := strings.CutSuffix(r.room, "/...")
		if pkg != room && !(deep && within(pkg, room)) {
			continue
		}
		if own == "models" {
			return pkg != "models"
		}
		for _, may := range r.may {
			if own == may || deep && may == room && within(own, may) {
				return true
			}
		}
		return false
	}
	// The programs that join rooms. The parts belong to one of them.
	if within(own, "internal") {
		return within(pkg, "cmd/berthdev") || within(pkg, "internal")
	}
	return true
}

func ownerMay(pkg string, rooms []string, outside string) bool {
	if outside == "github.com/sivchari/kumo" {
		return pkg == "internal/parts"
	}
	if within(pkg, "cmd") || within(pkg, "internal") || within(pkg, "infra") {
		return true
	}
	for _, room := range rooms {
		if within(pkg, room) {
			return true
		}
	}
	return false
}

// within tells whether path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string // of the package's own files, not of its tests
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		for _, bad := range crossings(strings.TrimPrefix(p.ImportPath, module), p.Imports) {
			t.Error(bad)
		}
	}
	if seen < 8 {
		t.Errorf("only %d packages seen: the test looks at the wrong place", seen)
	}
}

// Each rule refuses what it is for, and lets pass what it must.
func TestTheRulesRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pkg, imp string
		ok       bool
	}{
		{"models", "encoding/json", true},
		{"models", "github.com/google/uuid", false},
		{"models", "net/http", false},
		{"models", "berth/controlplane", false},
		{"client/wire", "berth/models", true},
		{"client/wire", "berth/client", false},
		{"client", "berth/client/wire", true},
		{"client", "berth/controlplane", false},
		{"client", "github.com/aws/aws-sdk-go-v2/service/s3", false},
		{"controlplane", "berth/models", true},
		{"controlplane", "berth/controlplane/store", false},
		{"controlplane", "net/http", false},
		{"controlplane", "github.com/jackc/pgx/v5", false},
		{"controlplane/store", "gorm.io/gorm", true},
		{"controlplane/store", "net/http", false},
		{"controlplane/store", "berth/controlplane", false},
		{"controlplane/store", "github.com/aws/aws-sdk-go-v2/aws", false},
		{"controlplane/objects", "github.com/aws/aws-sdk-go-v2/service/s3", true},
		{"controlplane/objects", "gorm.io/gorm", false},
		{"controlplane/objects", "berth/events", false},
		{"controlplane/httpapi", "github.com/gin-gonic/gin", true},
		{"controlplane/httpapi", "berth/controlplane", true},
		{"controlplane/httpapi", "berth/client/wire", true},
		{"controlplane/httpapi", "berth/controlplane/store", false},
		{"controlplane/httpapi", "berth/client", false},
		{"controlplane/httpapi", "database/sql", false},
		{"controlplane/worker", "berth/controlplane/store", false},
		{"controlplane/worker", "github.com/gin-gonic/gin", false},
		{"controlplane/reconcile", "berth/models", true},
		{"controlplane/reconcile", "berth/controlplane/store", false},
		{"controlplane/reconcile", "berth/controlplane", false},
		{"controlplane/reconcile", "net/http", false},
		{"events", "github.com/aws/aws-sdk-go-v2/service/sqs", true},
		{"events", "github.com/aws/aws-sdk-go-v2/service/s3", false},
		{"events", "berth/controlplane", false},
		{"migrations", "github.com/pressly/goose/v3", true},
		{"migrations", "berth/controlplane/store", false},
		{"web", "berth/controlplane/httpapi", false},
		{"cmd/berth", "berth/client", true},
		{"cmd/berth", "berth/controlplane", false},
		{"cmd/berthd/config", "berth/models", true},
		{"cmd/berthd/config", "berth/controlplane", false},
		{"cmd/berthd", "berth/controlplane/store", true},
		{"cmd/berthd", "berth/internal/testkit", false},
		{"cmd/berthd", "github.com/sivchari/kumo", false},
		{"cmd/berthdev", "berth/internal/testkit", true},
		{"internal/parts", "berth/models", true},
		{"internal/parts", "berth/controlplane", false},
		{"internal/testkit", "berth/migrations", true},
		{"internal/testkit", "berth/controlplane/store", false},
	} {
		if bad := crossings(c.pkg, []string{c.imp}); (len(bad) == 0) != c.ok {
			t.Errorf("%s importing %s: refused %v, want allowed %v", c.pkg, c.imp, bad, c.ok)
		}
	}
}
