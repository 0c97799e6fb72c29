package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// meter counts the bytes of a transfer and tells its rate.
type meter struct {
	total atomic.Int64
	done  atomic.Int64

	mu   sync.Mutex
	at   time.Time
	seen int64
	rate float64 // bytes a second, smoothed over a few seconds
}

func newMeter(total int64) *meter {
	m := &meter{at: time.Now()}
	m.total.Store(total)
	return m
}

// skip counts bytes that need not travel, without their counting as speed.
func (m *meter) skip(n int64) {
	m.done.Add(n)
	m.mu.Lock()
	m.seen += n
	m.mu.Unlock()
}

// sample brings the rate up to date and returns it with the time that is left; 0 is
// not known.
func (m *meter) sample(now time.Time) (rate float64, left time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := m.done.Load()
	if dt := now.Sub(m.at).Seconds(); dt >= 0.2 {
		moment := max(0, float64(done-m.seen)/dt)
		weight := min(1, dt/4)
		if m.rate == 0 {
			weight = 1
		}
		m.rate += (moment - m.rate) * weight
		m.at, m.seen = now, done
	}
	if rest := m.total.Load() - done; m.rate > 1 && rest > 0 {
		left = time.Duration(float64(rest) / m.rate * float64(time.Second))
	}
	return m.rate, left
}

func (m *meter) text(now time.Time) string {
	rate, left := m.sample(now)
	s := bytesText(m.done.Load()) + " of " + bytesText(m.total.Load()) + ", " + bytesText(int64(rate)) + "/s"
	if left > 0 {
		s += ", " + max(left, time.Second).Round(time.Second).String() + " left"
	}
	return s
}

// quietEvery is between two lines where no terminal is.
const quietEvery = 10 * time.Second

// progress shows meters: as bars on a terminal, as a line now and then elsewhere.
type progress struct {
	w    io.Writer
	bars *mpb.Progress // nil: lines
	all  *meter
	sum  *mpb.Bar // of all
	stop chan struct{}
	gone sync.WaitGroup

	mu    sync.Mutex
	files int // in all
	ended int
}

// newProgress begins it. off shows nothing; files is how many there will be.
func newProgress(w io.Writer, off bool, files int, total int64) *progress {
	p := &progress{w: w, all: newMeter(total), files: files, stop: make(chan struct{})}
	switch {
	case off:
	case isTerminal(w):
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(150*time.Millisecond))
		if files > 1 {
			p.sum = p.bar(fmt.Sprintf("%d files", files), p.all, 1<<30)
		}
	default:
		p.gone.Add(1)
		go p.lines()
	}
	return p
}

func (p *progress) lines() {
	defer p.gone.Done()
	t := time.NewTicker(quietEvery)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-t.C:
			s := p.all.text(now)
			if p.files > 1 {
				p.mu.Lock()
				s = fmt.Sprintf("%d of %d files, %s", p.ended, p.files, s)
				p.mu.Unlock()
			}
			fmt.Fprintln(p.w, s)
		}
	}
}

func (p *progress) bar(name string, m *meter, priority int) *mpb.Bar {
	// A bar that is made with a total ends by itself when that is reached, and keeps it;
	// one that is made without takes corrections and ends when it is told to.
	b := p.bars.New(0, mpb.BarStyle().Rbound("|"),
		mpb.BarPriority(priority), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(shorten(name, 28), decor.WC{W: 28, C: decor.DindentRight})),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + m.text(time.Now()) })))
	b.SetTotal(max(m.total.Load(), 1), false)
	return b
}

func shorten(s string, n int) string {
	r := []rune(printable(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n/2-1]) + "…" + string(r[len(r)-n/2:])
}

// file is one transfer in it.
type file struct {
	p   *progress
	m   *meter
	bar *mpb.Bar
}

// add shows one more transfer. Small ones get no bar of their own.
func (p *progress) add(name string, size int64) *file {
	f := &file{p: p, m: newMeter(size)}
	if p.bars != nil && (p.files == 1 || size > 8<<20) {
		f.bar = p.bar(name, f.m, 0)
	}
	return f
}

// resize corrects a size that was not known.
func (f *file) resize(size int64) {
	f.p.all.total.Add(size - f.m.total.Swap(size))
	if f.bar != nil {
		f.bar.SetTotal(max(size, 1), false)
	}
	if f.p.sum != nil {
		f.p.sum.SetTotal(max(f.p.all.total.Load(), 1), false)
	}
}

func (f *file) skip(n int64) {
	f.m.skip(n)
	f.p.all.skip(n)
	f.show()
}

func (f *file) moved(n int64) {
	f.m.done.Add(n)
	f.p.all.done.Add(n)
	f.show()
}

func (f *file) show() {
	move(f.bar, f.m)
	move(f.p.sum, f.p.all)
}

// move brings a bar to where its meter is. Never full before the end: the bar would go.
func move(b *mpb.Bar, m *meter) {
	if b != nil {
		b.SetCurrent(min(m.done.Load(), max(0, m.total.Load()-1)))
	}
}

func (f *file) end() {
	f.p.mu.Lock()
	f.p.ended++
	f.p.mu.Unlock()
	if f.bar != nil {
		f.bar.Abort(true)
	}
}

// print writes a line so that bars do not run through it.
func (p *progress) print(w io.Writer, line string) {
	if p.bars != nil && isTerminal(w) {
		_, _ = p.bars.Write([]byte(line + "\n"))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(w, line)
}

// close ends the showing.
func (p *progress) close() {
	close(p.stop)
	p.gone.Wait()
	if p.sum != nil {
		p.sum.Abort(true)
	}
	if p.bars != nil {
		p.bars.Wait() // what was printed is out, and no bar is left
	}
}
