package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"
)

// faults stands between browsers and S3: it counts what is sent, and does what lines do
// to requests. Scripts steer it by POST /faults and read its log by GET /faults.
type faults struct {
	URL string

	mu    sync.Mutex
	set   settings
	log   []sent
	until time.Time // when the line is free again
	proxy *httputil.ReverseProxy
}

// settings are replaced whole by each POST. Those about a part are for its next request
// only.
type settings struct {
	Rate    int64 `json:"rate"`    // bytes per second over all requests; 0: no limit
	Corrupt int   `json:"corrupt"` // this part loses a bit on the way
	Swallow int   `json:"swallow"` // this part is answered with 200 and goes nowhere
	Hold    int   `json:"hold"`    // this part waits
	HoldFor int64 `json:"holdFor"` // for so many milliseconds
	Dark    bool  `json:"dark"`    // nothing gets through, and what is under way is cut
	Forget  bool  `json:"forget"`  // empties the log
}

// sent is one PUT that S3, or the swallower, has answered; 0 is none.
type sent struct {
	Part   int    `json:"part"` // 0: the whole file
	Key    string `json:"key"`
	Bytes  int64  `json:"bytes"`
	Status int    `json:"status"`
}

func newFaults(t *testing.T, endpoint string) *faults {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	f := &faults{}
	f.proxy = &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host // it is signed
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(f)
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(server.Close)
	f.URL = server.URL
	return f
}

func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/faults" {
		f.control(w, r)
		return
	}
	if r.Method != http.MethodPut {
		f.proxy.ServeHTTP(w, r)
		return
	}
	part, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
	f.mu.Lock()
	s := f.set
	if part == f.set.Corrupt {
		f.set.Corrupt = 0
	}
	if part == f.set.Swallow {
		f.set.Swallow = 0
	}
	if part == f.set.Hold {
		f.set.Hold = 0
	}
	f.mu.Unlock()
	if s.Dark {
		panic(http.ErrAbortHandler)
	}
	if part > 0 && part == s.Hold {
		select {
		case <-time.After(time.Duration(s.HoldFor) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
	body := &line{faults: f, from: r.Body, flip: part > 0 && part == s.Corrupt}
	r.Body = body
	status := &statusWriter{ResponseWriter: w}
	defer func() {
		f.mu.Lock()
		f.log = append(f.log, sent{Part: part, Key: r.URL.Path, Bytes: body.n, Status: status.code})
		f.mu.Unlock()
	}()
	if part > 0 && part == s.Swallow {
		_, _ = io.Copy(io.Discard, body)
		status.Header().Set("Access-Control-Allow-Origin", "*")
		status.WriteHeader(http.StatusOK)
		return
	}
	f.proxy.ServeHTTP(status, r)
}

func (f *faults) control(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodPost {
		f.set = settings{}
		if err := json.NewDecoder(r.Body).Decode(&f.set); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if f.set.Forget {
			f.log = nil
		}
		f.until = time.Time{}
	}
	log := f.log
	if log == nil {
		log = []sent{}
	}
	_ = json.NewEncoder(w).Encode(log)
}

// line is a body on its way.
type line struct {
	*faults
	from io.ReadCloser
	flip bool
	n    int64
}

func (l *line) Read(p []byte) (int, error) {
	n, err := l.from.Read(p[:min(len(p), 64<<10)])
	if n > 0 && l.flip {
		p[n/2] ^= 1
		l.flip = false
	}
	l.n += int64(n)
	l.mu.Lock()
	var wait time.Duration
	if l.set.Dark && err == nil {
		err = io.ErrUnexpectedEOF
	}
	if rate := l.set.Rate; rate > 0 {
		now := time.Now()
		if l.until.Before(now) {
			l.until = now
		}
		l.until = l.until.Add(time.Duration(n) * time.Second / time.Duration(rate))
		wait = time.Until(l.until)
	}
	l.mu.Unlock()
	time.Sleep(wait)
	return n, err
}

func (l *line) Close() error { return l.from.Close() }

type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}
