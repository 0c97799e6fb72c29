package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"berth/client/wire"
	"berth/controlplane/httpapi"
	"berth/controlplane/worker"
	"berth/models"
)

// A step answers later over HTTP, by its lease token and nothing else.
func TestStepResultOverHTTP(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	body := []byte("0123456789")
	u := w.open(t, wire.OpenRequest{Collection: "checked", Size: 10})
	w.send(t, u, body)
	if a := w.call("POST", "/v1/uploads/"+u.ID+"/complete", w.ann, nil); a.status != 200 {
		t.Fatalf("complete: %d %s", a.status, a.body)
	}
	var calls []worker.StepCall
	p := worker.Processor{Tasks: w.stack.Store, Chain: w.stack.Service.Steps, Owner: "w", Lease: time.Minute, Limit: 1, Now: w.stack.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: worker.NewMetrics(nil),
		Kinds: map[string]worker.StepFunc{"test": func(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
			calls = append(calls, c)
			return models.StepAnswer{Later: true}, nil
		}}}
	for i := range 2 {
		if _, err := p.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(calls) != i+1 {
			t.Fatalf("%d calls", len(calls))
		}
		c := calls[i]
		path := "/v1/tasks/" + string(c.Task.ID) + "/result"
		for what, a := range map[string]answer{
			"no token":      w.call("POST", path, "", wire.StepResult{Verdict: "pass"}),
			"caller's":      w.call("POST", path, w.ann, wire.StepResult{Verdict: "pass"}),
			"guessed":       w.call("POST", path, "AAAAAAAAAAAAAAAAAAAAAAAAAA", wire.StepResult{Verdict: "pass"}),
			"another task":  w.call("POST", "/v1/tasks/"+string(models.NewTaskID())+"/result", c.Token, wire.StepResult{Verdict: "pass"}),
			"no verdict":    w.call("POST", path, c.Token, map[string]any{}),
			"other verdict": w.call("POST", path, c.Token, wire.StepResult{Verdict: "maybe"}),
		} {
			if a.status < 400 || a.status > 404 {
				t.Errorf("%s: %d %s", what, a.status, a.body)
			}
		}
		if a := w.call("POST", path, c.Token, wire.StepResult{Verdict: "pass"}); a.status != 204 {
			t.Fatalf("result: %d %s", a.status, a.body)
		}
	}
	if f := into[wire.File](t, w.call("GET", "/v1/files/"+u.FileID, w.ann, nil)); f.State != "active" {
		t.Errorf("file %s", f.State)
	}
}

func TestTasksAndEventsOverHTTP(t *testing.T) {
	t.Parallel()
	w := serveWhole(t)
	w.open(t, wire.OpenRequest{Size: 10})
	for i := range 3 {
		w.open(t, wire.OpenRequest{Size: 10, Name: fmt.Sprint(i)})
	}
	var got []string
	cursor := ""
	for {
		l := into[wire.TaskList](t, w.call("GET", "/v1/tasks?limit=3&kind=reap&cursor="+cursor, w.ann, nil))
		for _, k := range l.Tasks {
			got = append(got, k.ID)
		}
		if cursor = l.NextCursor; cursor == "" {
			break
		}
	}
	if len(got) != 4 {
		t.Errorf("listed %d tasks", len(got))
	}
	for path, status := range map[string]int{
		"/v1/tasks?kind=dance": 400, "/v1/tasks?state=none": 400, "/v1/tasks?cursor=x": 400, "/v1/tasks?limit=0x": 400,
		"/v1/events": 200, "/v1/events?state=pending": 200, "/v1/events?state=none": 400, "/v1/events?cursor=x": 400,
	} {
		if a := w.call("GET", path, w.ann, nil); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for path, status := range map[string]int{
		"/v1/tasks/" + got[0] + "/retry":                       409, // it has not failed
		"/v1/tasks/" + string(models.NewTaskID()) + "/retry":   404,
		"/v1/tasks/x/retry":                                    404,
		"/v1/events/" + string(models.NewEventID()) + "/retry": 404,
		"/v1/events/x/cancel":                                  404,
	} {
		if a := w.call("POST", path, w.ann, nil); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	plain := tokenFor(t, "ann", "upload read delete")
	for _, path := range []string{"/v1/tasks", "/v1/events"} {
		if a := w.call("GET", path, plain, nil); a.status != 403 {
			t.Errorf("%s without the scope: %d", path, a.status)
		}
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	begun := time.Now()
	now := func() time.Time { return begun.Add(time.Duration(ahead.Load())) }
	s := serve(t, func(c *httpapi.Config) {
		c.Service, c.Now = &recorder{}, now
		c.CallerRate = httpapi.Rate{PerSecond: 1, Burst: 3}
		c.AddressRate = httpapi.Rate{PerSecond: 5, Burst: 12}
		c.TrustedProxies = []string{"127.0.0.1"}
	})
	s.undocumented()
	ann, bob := tokenFor(t, "ann", allScopes), tokenFor(t, "bob", allScopes)
	count := func(n int, token string, header ...string) (limited int, last answer) {
		for range n {
			a := s.call("GET", "/v1/files", token, nil, header...)
			if a.status == 429 {
				limited++
				last = a
			}
		}
		return limited, last
	}
	from := func(ip string) []string { return []string{"X-Forwarded-For", ip} }
	if n, a := count(5, ann, from("192.0.2.1")...); n != 2 {
		t.Errorf("ann: %d of 5 were refused, want 2", n)
	} else if a.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	if n, _ := count(3, bob, from("192.0.2.2")...); n != 0 {
		t.Errorf("bob paid for ann: %d", n)
	}
	ahead.Store(int64(2 * time.Second))
	if n, _ := count(3, ann, from("192.0.2.3")...); n != 1 {
		t.Errorf("two seconds later: %d of 3 were refused, want 1", n)
	}
	// Without a token, the address is what counts; a /64 is one.
	if n, _ := count(20, "", from("2001:db8::1")...); n != 8 {
		t.Errorf("an address: %d of 20 were refused, want 8", n)
	}
	if n, _ := count(1, "", from("2001:db8::2")...); n != 1 {
		t.Error("a neighbour in the same /64 was let in")
	}
	if n, _ := count(1, "", from("2001:db8:0:1::2")...); n != 0 {
		t.Error("another /64 was refused")
	}
	// Uppy's calls are the caller's as any other: two of ann's three are left.
	ahead.Store(int64(time.Minute))
	limited := 0
	for n := range 5 {
		path := "/uppy/s3/params?filename=a.txt&type=text/plain"
		if n == 0 {
			path = "/v1/files"
		}
		if a := s.call("GET", path, ann, nil, from("192.0.2.4")...); a.status == 429 {
			limited++
		}
	}
	if limited != 2 {
		t.Errorf("ann by Uppy: %d of 5 were refused, want 2", limited)
	}
	for range 30 {
		if a := s.call("GET", "/healthz", "", nil, from("2001:db8::1")...); a.status != 200 {
			t.Fatalf("a probe was limited: %d", a.status)
		}
	}
}
