package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"pgregory.net/rapid"

	"berth/controlplane"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/models"
)

// sim is one random life of a world: clients who try everything, in any order and at once;
// two servers, of which now and then one dies in the middle of a call; events that come
// late, twice and in any order, or not for a long time; others who write under our keys;
// and the clock.
type sim struct {
	w       *world
	ctx     context.Context
	servers []*process
	stops   []func()

	mu      sync.Mutex
	uploads []ours
	urls    []sendable
	events  []models.ObjectEvent // all there ever were
	mood    string               // of steps: they pass, block, fail, or answer later
	waits   []state              // lease tokens that steps were asked under
}

type ours struct {
	owner string
	up    models.Upload
}

// sendable is a part's URL, good until a time of the world's clock.
type sendable struct {
	of    ours
	part  models.SignedPart
	until time.Time
}

// action is one thing that somebody does; it has drawn all that is random already, so that
// it can run beside others, and be cut.
type action struct {
	name string
	do   func(ctx context.Context, p *process) error
}

var bodies = []int{10, small, large}

func (s *sim) start() *process {
	p, stop, err := s.w.process(s.ctx, nil, parts{})
	if err != nil {
		panic(err)
	}
	p.answers = s.answer
	s.stops = append(s.stops, stop)
	return p
}

// answer is what a step says, in whatever mood it is.
func (s *sim) answer(_ context.Context, c worker.StepCall) (models.StepAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, state{Task: c.Task.ID, Token: c.Token, File: c.File.ID})
	switch s.mood {
	case "later":
		return models.StepAnswer{Later: true, Within: 5 * time.Minute}, nil
	case "fail":
		return models.StepAnswer{}, errors.New("it is down")
	case "block":
		return models.StepAnswer{Verdict: models.StepBlock, Reason: "a mood"}, nil
	}
	return passes, nil
}

// asStep draws what a step does by a lease token that it was given some time: it sends a
// file, or says its verdict, maybe again, maybe much too late.
func (s *sim) asStep(t *rapid.T, kind string) action {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.waits)
	if n == 0 {
		return action{"nothing", func(context.Context, *process) error { return nil }}
	}
	w := s.waits[n-1-rapid.IntRange(0, min(n, 4)-1).Draw(t, "token")]
	if kind == "derive" {
		return action{kind, func(ctx context.Context, p *process) error {
			err := derives(ctx, p, &w)
			if ctx.Err() != nil {
				return nil
			}
			return err
		}}
	}
	verdict := rapid.SampledFrom([]models.StepVerdict{models.StepPass, models.StepPass, models.StepBlock, models.StepDelete}).Draw(t, "verdict")
	return action{kind, func(ctx context.Context, p *process) error {
		return p.service.StepResult(ctx, w.Task, w.Token, models.StepAnswer{Verdict: verdict, Reason: "late"})
	}}
}

// step draws the mood of steps, and asks the next of each due chain.
func (s *sim) step(t *rapid.T) action {
	mood := rapid.SampledFrom([]string{"pass", "pass", "later", "later", "fail", "block"}).Draw(t, "mood")
	return action{"step", func(ctx context.Context, p *process) error {
		s.mu.Lock()
		s.mood = mood
		s.mu.Unlock()
		return stepOnce(ctx, nil, p)
	}}
}

func (s *sim) stop() {
	for _, stop := range s.stops {
		stop()
	}
}

func (s *sim) pick(t *rapid.T) (ours, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.uploads) == 0 {
		return ours{}, false
	}
	// Mostly the last few: what is old is seldom still interesting.
	back := rapid.IntRange(0, min(len(s.uploads), 6)-1).Draw(t, "upload")
	return s.uploads[len(s.uploads)-1-back], true
}

func (s *sim) keep(owner string, v controlplane.UploadView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := ours{owner, v.Upload}
	if v.ID != "" {
		s.uploads = append(s.uploads, o)
	}
	for _, p := range v.Parts {
		s.urls = append(s.urls, sendable{o, p, v.PartsExpireAt})
	}
}

func (s *sim) event(e models.ObjectEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// open draws an open. The same key with the same request is a repetition.
func (s *sim) open(t *rapid.T) action {
	owner := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "owner")
	req := controlplane.OpenRequest{
		Collection: rapid.SampledFrom([]string{"plain", "sha", "draft", "limited", "reject", "reuse", "checked", "checked"}).Draw(t, "collection"),
		Name:       "a.pdf", Size: int64(rapid.SampledFrom(bodies).Draw(t, "size")),
	}
	switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
	case kind == 0:
		req.SizeUnknown, req.Size, req.Method = true, 0, models.MethodMultipart
	case kind < 4 && req.Collection != "sha":
		withSum(&req)
	}
	if key := rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(t, "key"); key != "" {
		req.IdempotencyKey = key
		req.RequestHash = fmt.Appendf(nil, "%s %d %v %v", req.Collection, req.Size, req.SizeUnknown, req.Checksum != nil)
	}
	return action{"open", func(ctx context.Context, p *process) error {
		v, err := p.service.Open(ctx, caller(owner), req)
		if err == nil {
			s.keep(owner, v)
		}
		return err
	}}
}

// sign draws a signing: with the right pins, with none, or with those of other bytes.
func (s *sim) sign(t *rapid.T, o ours) action {
	req := controlplane.SignRequest{From: 1, To: 1}
	seed := rapid.SampledFrom([]int{-1, 7, 7, 7, 8}).Draw(t, "pins")
	if seed >= 0 && !o.up.Undeclared {
		req = controlplane.SignRequest{Parts: []controlplane.PartRequest{{Number: 1,
			Checksum: o.up.Checksum.Algorithm.Sum(stack.Bytes(byte(seed), int(o.up.Size)))}}}
	}
	return action{"sign", func(ctx context.Context, p *process) error {
		v, err := p.service.Sign(ctx, caller(o.owner), o.up.ID, req)
		if err != nil {
			return err
		}
		s.keep(o.owner, controlplane.UploadView{Parts: v.Parts, PartsExpireAt: v.ExpiresAt})
		s.mu.Lock()
		for i := len(s.urls) - len(v.Parts); i < len(s.urls); i++ {
			s.urls[i].of = o
		}
		s.mu.Unlock()
		return nil
	}}
}

// send draws a body for a URL that was given out: the right one, other bytes of the same
// length, or another length. S3 alone judges it. The event of it may come now, or later.
func (s *sim) send(t *rapid.T) action {
	s.mu.Lock()
	n := len(s.urls)
	s.mu.Unlock()
	if n == 0 {
		return s.open(t)
	}
	i := n - 1 - rapid.IntRange(0, min(n, 8)-1).Draw(t, "url")
	seed := rapid.SampledFrom([]byte{7, 7, 7, 7, 8}).Draw(t, "bytes")
	return action{"send", func(ctx context.Context, _ *process) error {
		s.mu.Lock()
		u := s.urls[i]
		s.mu.Unlock()
		if !s.w.clock.Now().Before(u.until) {
			return nil
		}
		size := u.part.Size
		if size < 0 {
			size = large
		}
		if _, err := stack.Send(ctx, u.part, stack.Bytes(seed, int(size))); err != nil && ctx.Err() == nil {
			return err
		}
		s.event(models.ObjectEvent{Store: stack.Main, Key: u.of.up.Key, Created: true})
		return nil
	}}
}

// foreign writes under a key of ours as somebody else would.
func (s *sim) foreign(o ours) action {
	return action{"foreign", func(ctx context.Context, _ *process) error {
		out, err := s.w.s3.Client().PutObject(ctx, &s3.PutObjectInput{Bucket: &s.w.s3.Bucket, Key: &o.up.Key, Body: bytes.NewReader([]byte("evil"))})
		if err != nil {
			return nil // the bucket is theirs as well as ours; it is not about them
		}
		s.event(models.ObjectEvent{Store: stack.Main, Key: o.up.Key, VersionID: *out.VersionId, Created: true})
		return nil
	}}
}

// deliver brings some of the events there ever were, in any order.
func (s *sim) deliver(t *rapid.T) action {
	s.mu.Lock()
	n := len(s.events)
	s.mu.Unlock()
	if n == 0 {
		return s.open(t)
	}
	which := rapid.SliceOfN(rapid.IntRange(0, n-1), 1, 3).Draw(t, "events")
	return action{"deliver", func(ctx context.Context, p *process) error {
		s.mu.Lock()
		var batch []models.ObjectEvent
		for _, i := range which {
			batch = append(batch, s.events[i])
		}
		s.mu.Unlock()
		return errors.Join(p.service.Settle(ctx, batch)...)
	}}
}

// draw draws one action.
func (s *sim) draw(t *rapid.T) action {
	kind := rapid.SampledFrom([]string{"open", "open", "sign", "send", "send", "complete", "complete", "commit", "abort", "delete", "block", "unblock",
		"foreign", "deliver", "deliver", "repair", "reap", "step", "step", "derive", "verdict"}).Draw(t, "action")
	service := func(name string, call func(context.Context, *controlplane.Service, ours) error) action {
		o, ok := s.pick(t)
		if !ok {
			return s.open(t)
		}
		return action{name, func(ctx context.Context, p *process) error { return call(ctx, p.service, o) }}
	}
	switch kind {
	case "open":
		return s.open(t)
	case "sign":
		if o, ok := s.pick(t); ok {
			return s.sign(t, o)
		}
	case "send":
		return s.send(t)
	case "foreign":
		if o, ok := s.pick(t); ok {
			return s.foreign(o)
		}
	case "deliver":
		return s.deliver(t)
	case "step":
		return s.step(t)
	case "derive", "verdict":
		return s.asStep(t, kind)
	case "complete":
		return service(kind, func(ctx context.Context, c *controlplane.Service, o ours) error {
			// Its lease may be held by one that died; the clock stands still, so do not wait.
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := c.Complete(ctx, caller(o.owner), o.up.ID, controlplane.CompleteRequest{})
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	case "commit":
		return service(kind, func(ctx context.Context, c *controlplane.Service, o ours) error {
			_, err := c.Commit(ctx, caller(o.owner), o.up.ID, controlplane.CommitRequest{Name: "c.pdf"})
			return err
		})
	case "abort":
		return service(kind, func(ctx context.Context, c *controlplane.Service, o ours) error {
			_, err := c.Abort(ctx, caller(o.owner), o.up.ID)
			return err
		})
	case "delete":
		return service(kind, func(ctx context.Context, c *controlplane.Service, o ours) error {
			_, err := c.Delete(ctx, caller(o.owner), o.up.FileID)
			return err
		})
	case "block":
		return service(kind, func(ctx context.Context, c *controlplane.Service, o ours) error {
			_, err := c.Block(ctx, caller(o.owner), o.up.FileID, "")
			return err
		})
	case "unblock":
		return service(kind, func(ctx context.Context, c *controlplane.Service, o ours) error {
			_, err := c.Unblock(ctx, caller(o.owner), o.up.FileID)
			return err
		})
	case "repair":
		return action{kind, func(ctx context.Context, p *process) error { return repairOnce(ctx, nil, p) }}
	case "reap":
		return action{kind, func(ctx context.Context, p *process) error { return reapOnce(ctx, nil, p) }}
	}
	return s.open(t) // there is nothing yet for anything else
}

// allowed tells whether a client may be answered so. What has no code is ours to mend.
func allowed(err error) bool { return err == nil || models.ErrorCode(err) != models.CodeInternal }

func (s *sim) server(t *rapid.T) *process {
	return s.servers[rapid.IntRange(0, len(s.servers)-1).Draw(t, "server")]
}

// release unblocks what a step blocked: what was derived from it waits for that, however
// long.
func (s *sim) release(t *rapid.T) {
	blocked, err := rows[struct{ ID, Owner string }](s.ctx, s.w, "SELECT id, owner FROM files WHERE state = 'blocked' AND activated_at IS NULL")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range blocked {
		if _, err := s.servers[0].service.Unblock(s.ctx, caller(f.Owner), models.FileID(f.ID)); err != nil {
			t.Error(err)
		}
	}
}

func (s *sim) judge(t *rapid.T, final bool) {
	broken, err := s.w.check(s.ctx, s.servers[0], final)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

// TestRandomLives runs random lives. After every step what must hold at every moment is
// checked; in the end every event comes, time passes, and all of F1 to F9 must hold.
func TestRandomLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lives, steps, deaths := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		lives++
		if err := w.clear(t.Context()); err != nil {
			rt.Fatal(err)
		}
		s := &sim{w: w, ctx: t.Context()}
		defer s.stop()
		s.servers = []*process{s.start(), s.start()}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) { steps++; s.judge(rt, false) },
			"one": func(rt *rapid.T) {
				a, p := s.draw(rt), s.server(rt)
				if err := a.do(p.ctx, p); !allowed(err) {
					rt.Fatalf("%s: %v", a.name, err)
				}
			},
			"two": func(rt *rapid.T) {
				a, p := s.draw(rt), s.server(rt)
				if err := a.do(p.ctx, p); !allowed(err) {
					rt.Fatalf("%s: %v", a.name, err)
				}
				b := s.draw(rt)
				if err := b.do(p.ctx, p); !allowed(err) {
					rt.Fatalf("%s: %v", b.name, err)
				}
			},
			"at once": func(rt *rapid.T) {
				all := []action{s.draw(rt), s.draw(rt), s.draw(rt)}
				var running sync.WaitGroup
				errs := make([]error, len(all))
				for i, a := range all {
					p := s.servers[i%len(s.servers)]
					running.Go(func() { errs[i] = a.do(p.ctx, p) })
				}
				running.Wait()
				for i, err := range errs {
					if !allowed(err) {
						rt.Errorf("%s at once with others: %v", all[i].name, err)
					}
				}
			},
			"dies": func(rt *rapid.T) {
				a := s.draw(rt)
				cut := newCutter(rapid.IntRange(1, 30).Draw(rt, "boundary"), rapid.SampledFrom([]moment{before, after}).Draw(rt, "moment"))
				p, stop, err := w.process(s.ctx, cut, parts{})
				if err != nil {
					rt.Fatal(err)
				}
				cut.count(true)
				_ = a.do(p.ctx, p)
				if cut.ended() {
					deaths++
				}
				stop()
			},
			"time": func(rt *rapid.T) {
				w.clock.Advance(rapid.SampledFrom([]time.Duration{10 * time.Second, 40 * time.Second, 2 * time.Minute, 6 * time.Minute, 20 * time.Minute, deadline}).Draw(rt, "time"))
			},
		})
		s.mood = "pass"
		s.release(rt)
		for _, e := range s.events {
			for _, err := range s.servers[0].service.Settle(s.ctx, []models.ObjectEvent{e}) {
				if !allowed(err) {
					rt.Errorf("event: %v", err)
				}
			}
		}
		for range 2 {
			if err := w.tell(s.ctx, s.servers[0]); err != nil {
				rt.Error(err)
			}
			if err := w.settle(s.servers[0]); err != nil {
				rt.Error(err)
			}
			s.release(rt)
		}
		s.judge(rt, true)
	})
	t.Logf("%d lives, %d steps, %d deaths", lives, steps, deaths)
}
