package store

import (
	"regexp"
	"strings"
	"testing"
)

// What is read of a file beside another row is what is read of it alone: a column that only
// one of the lists had would be empty on half of the ways.
func TestFileColumnsAreTheSameTwice(t *testing.T) {
	t.Parallel()
	column := regexp.MustCompile(`f\.([a-z_]+)`)
	alone, beside := column.FindAllStringSubmatch(fileColumns, -1), column.FindAllStringSubmatch(fileColumnsToo, -1)
	if len(alone) < 20 || len(alone) != len(beside) {
		t.Fatalf("%d columns alone, %d beside", len(alone), len(beside))
	}
	for i, c := range alone {
		if beside[i][1] != c[1] || !strings.Contains(fileColumnsToo, " AS f_"+c[1]) {
			t.Errorf("%s alone, %s beside", c[1], beside[i][1])
		}
	}
}
