package store

import (
	"strings"
	"testing"

	"berth/internal/testkit"
)

// Nothing is compiled: a statement that finds no index to take is dear in the planner's
// eyes, and its compiling would cost more than all the rest of it.
func TestNothingIsCompiled(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), testkit.DB(t), Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // read only
	const dear = "EXPLAIN ANALYZE SELECT count(*) FROM goose_db_version WHERE is_applied"
	plan := func() string {
		t.Helper()
		var lines []string
		if _, err := s.alone(t.Context()).read(&lines, dear, nil); err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	var setting string
	if _, err := s.alone(t.Context()).read(&setting, "SHOW jit", nil); err != nil || setting != "off" {
		t.Errorf("jit is %q, %v", setting, err)
	}
	if p := plan(); strings.Contains(p, "JIT:") {
		t.Errorf("compiled:\n%s", p)
	}
	if _, err := s.sql.ExecContext(t.Context(), "SET jit = on"); err != nil {
		t.Fatal(err)
	}
	// The other way round, where PostgreSQL has a compiler: else the plan above says nothing.
	var able bool
	if _, err := s.alone(t.Context()).read(&able, "SELECT pg_jit_available()", nil); err != nil {
		t.Fatal(err)
	}
	if p := plan(); strings.Contains(p, "JIT:") != able {
		t.Errorf("jit is on, a compiler is there: %t, and yet:\n%s", able, p)
	}
}
