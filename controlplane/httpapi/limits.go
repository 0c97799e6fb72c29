package httpapi

import (
	"hash/maphash"
	"math"
	"net"
	"sync"
	"time"

	"berth/models"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

// Rate is how many requests a second one caller or one address may send for long, and
// how many at once after a pause. A zero PerSecond limits nothing.
type Rate struct {
	PerSecond float64
	Burst     int
}

// shards and most bound the limiters that are kept: what is dropped begins anew with a
// full burst, so that a flood of addresses costs memory for a fixed number only.
const (
	shards = 64
	most   = 1024 // per shard
)

// limiter keeps a token bucket for each name, in shards, so that callers do not wait for
// each other.
type limiter struct {
	rate  Rate
	seed  maphash.Seed
	parts [shards]struct {
		mu   sync.Mutex
		kept map[string]*rate.Limiter
	}
}

func newLimiter(r Rate) *limiter {
	if r.PerSecond <= 0 {
		return nil
	}
	r.Burst = max(r.Burst, 1)
	return &limiter{rate: r, seed: maphash.MakeSeed()}
}

// take takes one token of a name, or returns how long until there is one.
func (l *limiter) take(name string, now time.Time) (wait time.Duration, ok bool) {
	p := &l.parts[maphash.String(l.seed, name)%shards]
	p.mu.Lock()
	b := p.kept[name]
	if b == nil {
		if p.kept == nil || len(p.kept) >= most {
			p.kept = l.idle(p.kept, now)
		}
		b = rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)
		p.kept[name] = b
	}
	p.mu.Unlock()
	if b.AllowN(now, 1) {
		return 0, true
	}
	r := b.ReserveN(now, 1)
	wait = r.DelayFrom(now)
	r.CancelAt(now)
	return wait, false
}

// idle drops the buckets that are full again; where none is, all: a limit that forgets is
// better than a server that is out of memory.
func (l *limiter) idle(kept map[string]*rate.Limiter, now time.Time) map[string]*rate.Limiter {
	out := make(map[string]*rate.Limiter)
	for name, b := range kept {
		if b.TokensAt(now) < float64(l.rate.Burst) {
			out[name] = b
		}
	}
	if len(out) >= most {
		return make(map[string]*rate.Limiter)
	}
	return out
}

// limitAddress holds an address to its rate, before anything is done for it. IPv6
// addresses count by their /64: that is what one subscriber has.
func (a *API) limitAddress(c *gin.Context) {
	if a.addresses == nil || quietRoute(c.FullPath()) {
		c.Next()
		return
	}
	a.limit(c, a.addresses, addressOf(c.ClientIP()), "too many requests from this address")
}

// limitCaller holds an owner to its rate, whatever addresses it comes from.
func (a *API) limitCaller(c *gin.Context) {
	if a.callers == nil {
		c.Next()
		return
	}
	who := exchangeOf(c).caller
	a.limit(c, a.callers, string(who.Tenant)+"\x00"+string(who.Owner), "too many requests")
}

func (a *API) limit(c *gin.Context, l *limiter, name, text string) {
	wait, ok := l.take(name, a.Now())
	if !ok {
		fail(c, models.Errorf(models.CodeRateLimited, "%s", text).With("retry_after", int(math.Ceil(wait.Seconds()))))
		return
	}
	c.Next()
}

func addressOf(ip string) string {
	parsed := net.ParseIP(ip)
	if parsed == nil || parsed.To4() != nil {
		return ip
	}
	return parsed.Mask(net.CIDRMask(64, 128)).String()
}
