package testkit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"berth/internal/parts"
)

// PartsEnv holds a parts.Shared as JSON.
const PartsEnv = "BERTH_TEST_PARTS"

var running = sync.OnceValues(func() (parts.Shared, error) {
	var s parts.Shared
	if text := os.Getenv(PartsEnv); text != "" {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return s, fmt.Errorf("testkit: %s: %w", PartsEnv, err)
		}
		return s, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v, err := parts.StartVolatile(ctx)
	if err != nil {
		return s, fmt.Errorf("testkit: %w", err)
	}
	return v.Shared, nil
})

// shared is what the test's parts are, started if need be.
func shared(t testing.TB) parts.Shared {
	t.Helper()
	s, err := running()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
