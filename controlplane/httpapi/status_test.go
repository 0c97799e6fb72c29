package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/models"
)

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for _, code := range models.Codes {
		s, there := statuses[code]
		if !there || http.StatusText(s.status) == "" || s.status < 400 || s.title == "" {
			t.Errorf("%s has no status and title: %+v", code, s)
		}
	}
	if len(statuses) != len(models.Codes) {
		t.Errorf("%d codes have statuses, there are %d", len(statuses), len(models.Codes))
	}
}

type document struct {
	Paths map[string]map[string]struct {
		OperationID string                     `json:"operationId"`
		Security    *[]map[string][]string     `json:"security"`
		Responses   map[string]json.RawMessage `json:"responses"`
	} `json:"paths"`
	Components struct {
		Responses map[string]json.RawMessage `json:"responses"`
		Schemas   struct {
			Code struct {
				Enum []models.Code `json:"enum"`
			} `json:"Code"`
		} `json:"schemas"`
	} `json:"components"`
}

func readDocument(t *testing.T) document {
	t.Helper()
	var raw struct {
		document
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(OpenAPI(), &raw); err != nil {
		t.Fatal(err)
	}
	for _, item := range raw.Paths {
		delete(item, "parameters")
	}
	doc := raw.document
	b, err := json.Marshal(raw.Paths)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &doc.Paths); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	var served, described []string
	for _, r := range New(Config{}).engine.Routes() {
		var path []string
		for _, s := range strings.Split(r.Path, "/") {
			if name, ok := strings.CutPrefix(s, ":"); ok {
				s = "{" + name + "}"
			}
			path = append(path, s)
		}
		served = append(served, r.Method+" "+strings.Join(path, "/"))
	}
	for path, item := range readDocument(t).Paths {
		for method := range item {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served and described differ:\n%s\n\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
}

// The codes that the document lists under a status are those that have it.
func TestDocumentGivesCodesTheirStatus(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	if !slices.Equal(sorted(doc.Components.Schemas.Code.Enum), sorted(models.Codes)) {
		t.Errorf("the document has the codes %v", doc.Components.Schemas.Code.Enum)
	}
	seen := 0
	for path, item := range doc.Paths {
		for method, op := range item {
			for status, raw := range op.Responses {
				var ref struct {
					Ref string `json:"$ref"`
				}
				if json.Unmarshal(raw, &ref); ref.Ref != "" {
					raw = doc.Components.Responses[strings.TrimPrefix(ref.Ref, "#/components/responses/")]
				}
				var r struct {
					Content map[string]struct {
						Schema struct {
							AllOf []struct {
								Properties struct {
									Code, Error struct{ Enum []models.Code }
								}
							}
						}
					}
				}
				if err := json.Unmarshal(raw, &r); err != nil {
					t.Fatal(err)
				}
				n, _ := strconv.Atoi(status)
				if n < 400 {
					continue
				}
				content, uppy := problemContent, strings.HasPrefix(path, "/uppy/")
				if uppy {
					content = jsonType
				}
				all := r.Content[content].Schema.AllOf
				if len(all) != 2 || len(all[1].Properties.Code.Enum)+len(all[1].Properties.Error.Enum) == 0 {
					t.Errorf("%s %s %s lists no codes", method, path, status)
					continue
				}
				for _, code := range append(all[1].Properties.Code.Enum, all[1].Properties.Error.Enum...) {
					seen++
					want := statuses[code].status
					if uppy {
						want = uppyStatus(code, want)
					}
					if want != n {
						t.Errorf("%s %s: %s is under %d, it is %d", method, path, code, n, want)
					}
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d codes seen", seen)
	}
}

func sorted(codes []models.Code) []models.Code {
	codes = slices.Clone(codes)
	slices.Sort(codes)
	return codes
}
