package crash_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain bounds the random lives, unless somebody asks for more. A child is no test.
func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(child(text))
	}
	flag.Parse()
	asked := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { asked[f.Name] = true })
	set := func(name, value string) {
		if !asked[name] {
			_ = flag.Set(name, value) // rapid's, registered by its import
		}
	}
	set("rapid.checks", map[bool]string{false: "10", true: "100"}[full()])
	set("rapid.steps", "30")
	set("rapid.nofailfile", "true")
	set("rapid.shrinktime", "20s")
	os.Exit(m.Run())
}
