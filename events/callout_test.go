package events

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/models"
)

// The vector of the Standard Webhooks specification.
func TestSignatureIsTheSpecifications(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	at := time.Unix(1614265330, 0)
	body := []byte(`{"test": 2432232314}`)
	h := http.Header{}
	if err := sign(h, secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body); err != nil {
		t.Fatal(err)
	}
	if got, want := h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	if err := VerifySignature(h, secret, body, at.Add(4*time.Minute)); err != nil {
		t.Error(err)
	}
	h.Set("webhook-signature", "v1,bm9uZQ== "+h.Get("webhook-signature")) // a list, while secrets rotate
	if err := VerifySignature(h, secret, body, at); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"old":           VerifySignature(h, secret, body, at.Add(6*time.Minute)),
		"ahead":         VerifySignature(h, secret, body, at.Add(-6*time.Minute)),
		"other body":    VerifySignature(h, secret, []byte("{}"), at),
		"other secret":  VerifySignature(h, NewSecret(), body, at),
		"broken secret": VerifySignature(h, "whsec_!", body, at),
	} {
		if err == nil {
			t.Errorf("%s: verified", what)
		}
	}
}

func TestOnlyPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"127.0.0.1:80", "[::1]:80", "10.0.0.1:443", "172.16.5.4:80", "192.168.1.1:80", "169.254.169.254:80", "100.64.0.1:80",
		"0.0.0.0:80", "[::]:80", "[fe80::1]:80", "[fd00::1]:80", "[::ffff:127.0.0.1]:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::7f00:1]:80",
		"[2002:7f00:1::]:80", "224.0.0.1:80", "255.255.255.255:80", "nonsense"} {
		if public(a) == nil {
			t.Errorf("%s counts as public", a)
		}
	}
	for _, a := range []string{"1.1.1.1:443", "[2606:4700:4700::1111]:443"} {
		if err := public(a); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

// step runs one call against an endpoint.
func stepAt(t *testing.T, inside bool, url string) (models.StepAnswer, error) {
	t.Helper()
	wait := 30 * time.Second
	if strings.Contains(url, "/slow") { // never answers
		wait = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return NewCaller(inside, nil).Step(ctx, StepRequest{
		Step: models.Step{Name: "scan", URL: url, Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		Task: models.Task{ID: "tsk_1"}, File: models.File{ID: "fil_1", Metadata: []byte("{}")},
	})
}

// A step has the time that is configured for it, also more than a call has otherwise.
func TestStepHasItsOwnTime(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(300 * time.Millisecond):
			_, _ = io.WriteString(w, `{"verdict":"pass"}`)
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	c := NewCaller(true, nil)
	c.timeout = 50 * time.Millisecond
	for timeout, ok := range map[time.Duration]bool{time.Minute: true, 100 * time.Millisecond: false, 0: false} {
		_, err := c.Step(t.Context(), StepRequest{Step: models.Step{Name: "scan", URL: srv.URL, Timeout: timeout}, File: models.File{Metadata: []byte("{}")}})
		if (err == nil) != ok {
			t.Errorf("with %s: %v", timeout, err)
		}
	}
	if err := (WebhookTarget{Caller: c, URL: srv.URL}).Send(t.Context(), models.Event{Payload: []byte("{}")}); err == nil {
		t.Error("an event's call has no end")
	}
}

func TestStepEndpoints(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	mux := http.NewServeMux()
	answer := func(path string, status int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if err := VerifySignature(r.Header, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b, time.Now()); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	answer("/pass", 200, `{"verdict":"pass"}`)
	answer("/block", 200, `{"verdict":"block","reason":"a\nvirus"}`)
	answer("/later", 202, `{"within_seconds":60}`)
	answer("/later-empty", 202, "")
	answer("/garbage", 200, "<html>")
	answer("/unknown", 200, `{"verdict":"maybe"}`)
	answer("/empty", 200, "")
	answer("/null", 200, "null")
	answer("/both", 200, `{"verdict":"block","reason":"a virus","verdict":"pass"}`)
	answer("/both-cases", 200, `{"verdict":"delete","Verdict":"pass"}`)
	answer("/two", 200, `{"verdict":"block"}{"verdict":"pass"}`)
	answer("/created", 201, `{"verdict":"pass"}`)
	answer("/later-never", 202, `{"within_seconds":-5}`)
	answer("/nested", 200, `{"verdict":"pass","reason":"fine","details":{"verdict":"block"}}`)
	answer("/down", 503, "")
	answer("/long", 200, `{"verdict":"pass","reason":"`+strings.Repeat("x", 100<<10)+`"}`)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/secret", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/secret", func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server never sees that the caller is gone
		<-r.Context().Done()
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()

	for path, want := range map[string]models.StepAnswer{
		"/pass":        {Verdict: models.StepPass},
		"/block":       {Verdict: models.StepBlock, Reason: "a virus"},
		"/later":       {Later: true, Within: time.Minute},
		"/later-empty": {Later: true},
		"/nested":      {Verdict: models.StepPass, Reason: "fine"},
	} {
		if got, err := stepAt(t, true, srv.URL+path); err != nil || got != want {
			t.Errorf("%s: %+v, error %v", path, got, err)
		}
	}
	for _, path := range []string{"/garbage", "/unknown", "/empty", "/null", "/both", "/both-cases", "/two", "/created", "/later-never", "/down", "/long", "/redirect", "/slow"} {
		got, err := stepAt(t, true, srv.URL+path+"?token=hush")
		if err == nil {
			t.Errorf("%s: taken for an answer: %+v", path, got)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the error tells the URL: %v", path, err)
		}
	}
	if reached.Load() != 0 {
		t.Error("a redirect was followed")
	}
	if _, err := stepAt(t, false, srv.URL+"/pass"); !errors.Is(err, errInside) {
		t.Errorf("loopback was called: %v", err)
	}
	// What counts is where the name leads when the call is made, not what it was when it was
	// written down.
	named := strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)
	if _, err := stepAt(t, false, named+"/pass"); !errors.Is(err, errInside) {
		t.Errorf("a name that leads inside was called: %v", err)
	}
	if got, err := stepAt(t, true, named+"/pass"); err != nil || got.Verdict != models.StepPass {
		t.Errorf("the name by itself: %+v, %v", got, err)
	}
}

func FuzzParseVerdict(f *testing.F) {
	for _, s := range []string{`{"verdict":"pass"}`, `{"verdict":"block","reason":"\u0000"}`, `[]`, `{"verdict":1}`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseVerdict(b)
		if err == nil && a.Verdict != models.StepPass && a.Verdict != models.StepBlock && a.Verdict != models.StepDelete {
			t.Errorf("%q became %+v", b, a)
		}
		if strings.ContainsAny(a.Reason, "\x00\n") || len([]rune(a.Reason)) > 300 {
			t.Errorf("reason %q", a.Reason)
		}
	})
}
