package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

// However long a session was quiet before its bytes came: a lost event costs ten minutes
// and a round, and what nobody sends is not asked for each minute.
func TestLostEventIsMadeUpInABoundedTime(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 100)
	looks := 0
	round := func() bool {
		t.Helper()
		s.Clock.Advance(time.Minute)
		c, err := s.Service.Repair(t.Context(), time.Minute, 100)
		if err != nil {
			t.Fatal(err)
		}
		looks += c.Rechecked
		return c.Finished == 1
	}
	for range 45 {
		round()
	}
	if looks > 8 {
		t.Errorf("%d looks in 45 minutes", looks)
	}
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	rounds := 1
	for !round() {
		if rounds++; rounds > 11 {
			t.Fatalf("not taken after %d minutes", rounds)
		}
	}
	one(t, s, "active", "SELECT state FROM files")
}

// Records that fail do not keep those behind them from their reap task, also if there are
// as many of them as a pass takes.
func TestMissingReapTasksBehindOnesThatFail(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	var bad []string
	for range 4 {
		bad = append(bad, string(open(t, s, "default", 10).FileID))
	}
	good := open(t, s, "default", 10)
	exec(t, s, "DELETE FROM tasks")
	exec(t, s, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no task for this one'; END $$`)
	exec(t, s, fmt.Sprintf(`CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW WHEN (NEW.file_id IN ('%s')) EXECUTE FUNCTION refuse()`, strings.Join(bad, "', '")))
	c, err := s.Service.Repair(t.Context(), time.Minute, 2)
	if err == nil || strings.Count(err.Error(), "no task for this one") != 4 {
		t.Errorf("error %v, want one of each record", err)
	}
	if c.Ensured != 1 {
		t.Errorf("counts %+v, want one ensured", c)
	}
	one(t, s, string(good.FileID), "SELECT file_id FROM tasks")
}

// Drift is looked for a page of owners at a time, and found in each, once, whether a page
// has drift or not and however many files its owner has.
func TestDriftByPages(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	for i := range 7 {
		for n := range 1 + i%3 {
			if _, err := s.Service.Open(t.Context(), stack.Caller(fmt.Sprint("owner-", i)), controlplane.OpenRequest{Collection: "resume", Name: fmt.Sprint(i, n, ".pdf"), Size: 10}); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec(t, s, "UPDATE quotas SET files = files + 1 WHERE owner IN ('owner-0', 'owner-4')")
	exec(t, s, "DELETE FROM quotas WHERE owner = 'owner-6'")                                                                  // the last of all, of files only
	exec(t, s, "INSERT INTO quotas (tenant, owner, collection, files, bytes) VALUES ('default', 'owner-3b', 'resume', 1, 1)") // of quotas only
	exec(t, s, "UPDATE store_usage_slots SET bytes = bytes + 1 WHERE ctid = (SELECT min(ctid) FROM store_usage_slots)")
	for _, rows := range []int{1, 2, 3, 1000} {
		var got []string
		pages := 0
		var next models.Drift
		for more := true; more; pages++ {
			var found []models.Drift
			var err error
			if found, next, more, err = s.Store.Drift(t.Context(), stack.Main, nil, next, rows); err != nil {
				t.Fatal(err)
			}
			for _, d := range found {
				got = append(got, d.Counter+" "+string(d.Owner))
			}
		}
		if want := []string{"store_usage ", "quotas owner-0", "quotas owner-3b", "quotas owner-4", "quotas owner-6"}; !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q, want %q", rows, got, want)
		}
		if rows == 1 && pages != 9 { // each owner, and the end
			t.Errorf("%d pages, want 9", pages)
		}
	}
}
