package models

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Each id is greater than those made before it, in one millisecond and in many goroutines;
// what lists newest first, and takes the newest of two, relies on it.
func TestIDsAscend(t *testing.T) {
	t.Parallel()
	const lanes, each = 8, 5000
	before := time.Now().UnixMilli()
	made := make([][]UploadID, lanes)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			for range each {
				made[i] = append(made[i], NewUploadID())
			}
		})
	}
	wg.Wait()
	ticks := map[string]bool{}
	for _, ids := range made {
		if !slices.IsSorted(ids) {
			t.Error("not ascending")
		}
		for _, id := range ids {
			if _, err := ParseUploadID(string(id)); err != nil || id[18] != '7' || !strings.ContainsRune("89ab", rune(id[23])) {
				t.Fatalf("%s is no UUIDv7", id)
			}
			ticks[string(id[:22])] = true
		}
	}
	if len(ticks) != lanes*each {
		t.Errorf("%d ids, %d times", lanes*each, len(ticks))
	}
	last := strings.ReplaceAll(string(NewUploadID())[4:17], "-", "")
	if ms, err := strconv.ParseInt(last, 16, 64); err != nil || ms < before || ms > time.Now().UnixMilli()+lanes*each/4096+1 {
		t.Errorf("its time is %d, begun at %d: %v", ms, before, err)
	}
}
