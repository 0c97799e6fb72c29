package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// golden says which type each file under testdata is.
var golden = map[string]func() any{
	"open_request":           func() any { return new(OpenRequest) },
	"open_request_least":     func() any { return new(OpenRequest) },
	"upload_opened":          func() any { return new(Upload) },
	"upload_progress":        func() any { return new(Upload) },
	"upload_rejected":        func() any { return new(Upload) },
	"upload_instant":         func() any { return new(Upload) },
	"sign_request_list":      func() any { return new(SignRequest) },
	"sign_request_range":     func() any { return new(SignRequest) },
	"sign_response":          func() any { return new(SignResponse) },
	"parts_response":         func() any { return new(PartsResponse) },
	"complete_request":       func() any { return new(CompleteRequest) },
	"complete_request_empty": func() any { return new(CompleteRequest) },
	"commit_request":         func() any { return new(CommitRequest) },
	"file":                   func() any { return new(File) },
	"file_failed":            func() any { return new(File) },
	"file_list":              func() any { return new(FileList) },
	"file_list_empty":        func() any { return new(FileList) },
	"patch_request":          func() any { return new(PatchRequest) },
	"content_url":            func() any { return new(ContentURL) },
	"history":                func() any { return new(History) },
	"problem":                func() any { return new(Problem) },
}

func decode(t *testing.T, name string) (raw []byte, v any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	v = golden[name]()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return raw, v
}

// TestGoldenRoundTrip: what is read is written again byte for byte, so no field is
// lost, renamed, retyped or moved without a golden file saying so.
func TestGoldenRoundTrip(t *testing.T) {
	t.Parallel()
	for name := range golden {
		raw, v := decode(t, name)
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(out.Bytes(), raw) {
			t.Errorf("%s.json changed on its way:\n%s", name, out.Bytes())
		}
	}
}

// TestGoldenFilesAreAllRead: a file that no test reads proves nothing.
func TestGoldenFilesAreAllRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".json"); golden[name] == nil {
			t.Errorf("%s is in no table", f)
		}
	}
	if len(files) != len(golden) {
		t.Errorf("%d files, %d in the table", len(files), len(golden))
	}
}

// TestGoldenFilesShowEveryField: each field of each type is set in some file.
func TestGoldenFilesShowEveryField(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}  // Type.Field that some file sets
	known := map[string]bool{} // Type.Field that exists
	here := reflect.TypeFor[Problem]().PkgPath()
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			if v.Type().PkgPath() != here {
				return
			}
			for i := range v.NumField() {
				name := v.Type().Name() + "." + v.Type().Field(i).Name
				known[name] = true
				if !v.Field(i).IsZero() {
					seen[name] = true
				}
				walk(v.Field(i))
			}
		}
	}
	for name := range golden {
		_, v := decode(t, name)
		walk(reflect.ValueOf(v))
	}
	for name := range known {
		if !seen[name] {
			t.Errorf("no golden file sets %s", name)
		}
	}
}
