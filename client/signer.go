package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/client/wire"
)

// signedURL is a part's request and when, by our own clock, it stops being good.
type signedURL struct {
	part   wire.SignedPart
	signed time.Time
	until  time.Time
}

// fresh tells whether it is worth sending with.
func (s *signedURL) fresh(now time.Time) bool {
	margin := min(5*time.Second, s.until.Sub(s.signed)/4)
	return now.Before(s.until.Add(-margin))
}

// expired tells whether S3 may well call it expired.
func (s *signedURL) expired(now time.Time) bool { return !s.fresh(now) }

// maxSignBatch bounds one request to sign.
const maxSignBatch = 500

// signer has parts signed for just before they are sent. Parts that become ready
// while a request is on its way share the next one.
type signer struct {
	c      *Client
	ctx    context.Context // of the whole transfer
	upload string

	mu    sync.Mutex
	queue []signWait
	busy  bool
}

type signWait struct {
	part wire.PartToSign
	out  chan signAnswer // of one
}

type signAnswer struct {
	url *signedURL
	err error
}

func (s *signer) sign(ctx context.Context, number int, checksum string) (*signedURL, error) {
	w := signWait{wire.PartToSign{Number: number, Checksum: checksum}, make(chan signAnswer, 1)}
	s.mu.Lock()
	s.queue = append(s.queue, w)
	if !s.busy {
		s.busy = true
		go s.run()
	}
	s.mu.Unlock()
	select {
	case a := <-w.out:
		return a.url, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *signer) run() {
	for {
		s.mu.Lock()
		batch := s.queue[:min(len(s.queue), maxSignBatch)]
		s.queue = s.queue[len(batch):]
		if len(batch) == 0 {
			s.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.answer(batch)
	}
}

func (s *signer) answer(batch []signWait) {
	req := wire.SignRequest{Parts: make([]wire.PartToSign, len(batch))}
	for i, w := range batch {
		req.Parts[i] = w.part
	}
	asked := time.Now()
	res, ahead, err := s.c.sign(s.ctx, s.upload, req)
	byNumber := map[int]wire.SignedPart{}
	if err == nil {
		for _, p := range res.Parts {
			byNumber[p.Number] = p
		}
	}
	for _, w := range batch {
		a := signAnswer{err: err}
		if err == nil {
			if p, ok := byNumber[w.part.Number]; ok {
				a.url = &signedURL{p, asked, res.ExpiresAt.Add(-ahead)}
			} else {
				a.err = fmt.Errorf("sign: the answer lacks part %d", w.part.Number)
			}
		}
		w.out <- a
	}
}
