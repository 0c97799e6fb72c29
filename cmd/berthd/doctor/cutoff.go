package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"berth/models"
)

// Of a request that breaks off: what it announces, what of it comes, in bytes. A server that
// reads small bodies before it begins to work would make nothing of fewer.
const (
	cutAnnounced = 1 << 20
	cutSent      = 256 << 10
)

// cutPatience is how long what lies between may take to tell the store that a request broke
// off, once it has told us.
const cutPatience = 3 * time.Second

// cutOff begins requests that it does not finish, as clients do whose connection breaks. A
// store that makes an object or a part of the half of it lets bytes pass that nobody sent:
// only a checksum that is signed into the request, or declared for the whole, tells.
func (p *probing) cutOff(ctx context.Context) {
	const check = "cut-off body"
	d, alg := p.d, p.s.Algorithms[0]
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()

	pinned, plain := p.spec(alg), p.spec(alg)
	multi := p.spec(models.CRC64NVME) // of a composite, some stores refuse a part without its checksum
	multi.Type = models.FullObject
	whole := make([]byte, cutAnnounced)
	for _, x := range []struct {
		spec   models.ObjectSpec
		digest []byte
	}{{pinned, digest(alg, whole)}, {plain, nil}} {
		signed, _, err := p.s.Objects.PresignPut(ctx, x.spec, cutAnnounced, x.digest, probeExpiry, d.Now())
		if err == nil {
			err = p.sendHalf(ctx, signed)
		}
		if err != nil {
			d.add(check, Warning, "not tried: "+short(err), "Look what lies between the doctor and the store, and try again.", "")
			return
		}
	}
	id, err := p.s.Objects.CreateMultipart(ctx, multi)
	var signed []models.SignedPart
	if err == nil {
		signed, _, err = p.s.Objects.PresignParts(ctx, multi.Key, id, []models.PartToSign{{Number: 1, Size: cutAnnounced}}, multi.Algorithm, probeExpiry, d.Now())
	}
	if err == nil {
		err = p.sendHalf(ctx, signed[0])
	}
	sawPart := err == nil // a store without the algorithm has no such parts, and it is said elsewhere

	var object, part int64
	for end := time.Now().Add(cutPatience); ; {
		if _, err := p.s.Objects.Head(ctx, pinned.Key, ""); err == nil {
			d.add(check, Failure, "a body that breaks off is kept, also where its checksum is signed: the store does not check what was signed",
				"Use a store, or a version of it, that enforces signed checksums; see infra/stores/.", "")
			return
		}
		if o, err := p.s.Objects.Head(ctx, plain.Key, ""); err == nil {
			object = o.Size
		}
		if sawPart {
			for x, err := range p.s.Objects.ListParts(ctx, multi.Key, id, multi.Algorithm) {
				if err != nil {
					break
				}
				part = x.Size
			}
		}
		if object > 0 && (part > 0 || !sawPart) || time.Now().After(end) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	d.judgeCutOff(check, p.s, object, part)
}

// judgeCutOff says what it means that so many bytes are attested of what broke off; 0: nothing
// was kept.
func (d *doctor) judgeCutOff(check string, s *Store, object, part int64) {
	var kept string
	silent := object >= cutAnnounced || part >= cutAnnounced
	switch {
	case silent:
		kept = fmt.Sprintf("a body that breaks off is kept as if it were whole, with the length that was announced: %d of %d bytes came, and the store attests %d", cutSent, cutAnnounced, max(object, part))
	case object > 0 || part > 0:
		kept = fmt.Sprintf("a body that breaks off is kept as if it were whole: %d of %d bytes came, and the store attests %d", cutSent, cutAnnounced, max(object, part))
	default:
		d.ok(check, "what breaks off leaves nothing behind")
		return
	}
	names := strings.Join(s.Unpinned, ", ")
	mend := "Set checksum_required: true for the collections " + names + ": where the checksum is signed, nothing is kept. " +
		"That shuts out Uppy, which tells none; for it put a proxy before the store that passes on whole requests only (nginx, as it is by default), " +
		"or use another store; see infra/stores/."
	terraform := `module "service" { config = { collections = { ` + first(s.Unpinned) + ` = { checksum_required = true … } … } … } }`
	switch {
	case len(s.Unpinned) == 0:
		d.ok(check, "%s; where the checksum is signed nothing is kept, and all collections demand it", kept)
	case silent && len(s.UnpinnedParts) > 0:
		d.add(check, Failure, kept+". A file of "+strings.Join(s.UnpinnedParts, ", ")+" can become active with bytes that nobody sent", mend, terraform)
	default:
		// A declared size tells, or the parts of a composite are pinned: what is left is what
		// comes without either.
		d.add(check, Warning, kept+". Uploads whose size nobody declared can become active with what came; others are rejected for it", mend, terraform)
	}
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// sendHalf sends the beginning of what a request announces, ends its side of the connection,
// and returns once the store, or what is before it, has answered or hung up.
func (p *probing) sendHalf(ctx context.Context, r models.SignedPart) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	half := &halfBody{ctx: ctx, left: cutSent}
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { half.conn = i.Conn }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.Method, r.URL, half)
	if err != nil {
		return errors.New("the signed URL is none")
	}
	for _, h := range r.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	req.ContentLength = cutAnnounced
	// A connection of its own, and of HTTP/1.1: it is broken on purpose.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	if t, ok := p.d.HTTP.Transport.(*http.Transport); ok && t.TLSClientConfig != nil {
		transport.TLSClientConfig = t.TLSClientConfig.Clone()
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		resp.Body.Close()
		return nil
	}
	if half.conn == nil {
		return err // it was never sent
	}
	return nil // hung up
}

// halfBody gives the beginning of a body, then ends the sending side of the connection, and
// waits.
type halfBody struct {
	ctx  context.Context
	conn net.Conn
	left int
}

func (h *halfBody) Read(b []byte) (int, error) {
	if h.left == 0 {
		if c, ok := h.conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
			<-h.ctx.Done()
		}
		return 0, io.ErrUnexpectedEOF // and the whole of it ends, where halves cannot be told
	}
	n := min(len(b), h.left)
	clear(b[:n])
	h.left -= n
	return n, nil
}

func (h *halfBody) Close() error { return nil }
