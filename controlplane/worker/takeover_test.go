package worker_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// A task whose worker died is counted when another takes it over; one that is only
// tried again is not.
func TestTakeOversAreCounted(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	for _, size := range []int{10, 20} {
		v := active(t, s, size)
		if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
			t.Fatal(err)
		}
	}
	now := s.Clock.Now()
	if got, err := s.Store.Claim(t.Context(), models.Claiming{Kind: models.TaskReap, Owner: "dies", Until: now.Add(time.Minute), Limit: 1, Now: now}); err != nil || len(got) != 1 || got[0].TakenOver {
		t.Fatalf("%+v, error %v", got, err)
	}
	s.Clock.Advance(2 * time.Minute)
	registry := prometheus.NewRegistry()
	r := reaper(s, "lives")
	r.Metrics = worker.NewMetrics(registry)
	if c, err := r.RunOnce(t.Context()); err != nil || c.Claimed != 2 {
		t.Fatalf("%+v, error %v", c, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "berth_lease_takeovers_total" {
			if n := f.GetMetric()[0].GetCounter().GetValue(); n != 1 {
				t.Errorf("%v take-overs are counted, want 1", n)
			}
			return
		}
	}
	t.Error("nothing is counted")
}
