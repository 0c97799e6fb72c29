package web_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// module runs one of the package's own tools in web/ and returns what it says.
func module(t *testing.T, args ...string) (string, error) {
	t.Helper()
	need(t)
	if _, err := os.Stat("node_modules/typescript/package.json"); err != nil {
		t.Fatalf("%v (make browser installs it)", err)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...) // #nosec G204 -- the test's own
	cmd.Env = plainEnv()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The client's own tests, which read the golden files of client/wire.
func TestBrowserClient(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("client/test/*.test.js")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	if out, err := module(t, append([]string{"--test", "--test-reporter=spec"}, files...)...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const tsc = "node_modules/typescript/bin/tsc"

// The modules are plain, and their types hold all the same.
func TestTypes(t *testing.T) {
	t.Parallel()
	for _, project := range []string{".", "page"} {
		if out, err := module(t, tsc, "-p", project, "--noEmit"); err != nil {
			t.Errorf("%s: %v\n%s", project, err, out)
		}
	}
}

// What tsc is told refuses something.
func TestTypesAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wrong := filepath.Join(dir, "wrong.js")
	index, err := filepath.Abs("client/index.js")
	if err != nil {
		t.Fatal(err)
	}
	text := "import { Client } from '" + filepath.ToSlash(index) + "';\nnew Client({ token: 1 });\n"
	if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config := `{"extends": "` + filepath.ToSlash(filepath.Dir(filepath.Dir(index))) + `/tsconfig.json", "include": ["wrong.js"]}`
	if err := os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := module(t, tsc, "-p", dir, "--noEmit"); err == nil {
		t.Errorf("a token that is a number passes: %s", out)
	}
}

// The types that are published are those of the code: npm run types makes them.
func TestTypesAreFresh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := module(t, tsc, "-p", ".", "--rootDir", "client", "--declaration", "--emitDeclarationOnly", "--outDir", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*.d.ts"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob("types/*.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	if len(made) == 0 || len(made) != len(kept) {
		t.Errorf("%d files of types, %d are kept: run npm run types in web/", len(made), len(kept))
	}
	for _, m := range made {
		want, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("types", filepath.Base(m)))
		if err != nil || string(got) != string(want) {
			t.Errorf("types/%s is not of the code (%v): run npm run types in web/", filepath.Base(m), err)
		}
	}
}
