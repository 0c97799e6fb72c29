package client

import (
	"context"
	"math/bits"
	"sync"
)

// buffers lends memory for parts, by classes of size, so that thousands of small
// files and the parts of a large one reuse what is there.
type buffers struct{ pools sync.Map } // class → *sync.Pool of *[]byte

// classOf is the capacity lent for n bytes: a power of two up to 1 MiB, whole MiB
// beyond. It is what counts against the budget.
func classOf(n int64) int64 {
	const mib = 1 << 20
	switch {
	case n <= 4096:
		return 4096
	case n <= mib:
		return 1 << bits.Len64(uint64(n-1)) // #nosec G115 -- positive
	default:
		return (n + mib - 1) / mib * mib
	}
}

func (b *buffers) get(n int64) *[]byte {
	class := classOf(n)
	p, ok := b.pools.Load(class)
	if !ok {
		p, _ = b.pools.LoadOrStore(class, &sync.Pool{New: func() any {
			s := make([]byte, class)
			return &s
		}})
	}
	s := p.(*sync.Pool).Get().(*[]byte)
	*s = (*s)[:n]
	return s
}

func (b *buffers) put(s *[]byte) {
	if p, ok := b.pools.Load(int64(cap(*s))); ok {
		p.(*sync.Pool).Put(s)
	}
}

// borrow waits for room in the budget and lends a buffer of n bytes.
func (c *Client) borrow(ctx context.Context, n int64) (*[]byte, error) {
	if err := c.budget.Acquire(ctx, min(classOf(n), c.memory)); err != nil {
		return nil, context.Cause(ctx)
	}
	return c.buffers.get(n), nil
}

func (c *Client) giveBack(b *[]byte) {
	n := int64(cap(*b))
	c.buffers.put(b)
	c.budget.Release(min(n, c.memory))
}
