package objects

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// maxExpiry is the longest life of a presigned URL that S3 takes, in seconds. Source:
// SigV4 query parameters, X-Amz-Expires.
const maxExpiry = 604_800

const daySeconds = 86_400

const (
	sigAlgorithm = "AWS4-HMAC-SHA256"
	shortDate    = "20060102"
	unsigned     = "UNSIGNED-PAYLOAD"
)

// signer makes SigV4 query-signed URLs of one bucket. Source: S3 API reference,
// authenticating requests by query parameters.
type signer struct {
	form     string // where POST policy forms go
	origin   string // scheme://host[:port]
	prefix   string // the path before the key, with the slash, escaped
	odd      *url.URL
	host     string // as signed: without the scheme's default port
	hostLine string // of a canonical request
	region   string
	owner    string
	day      atomic.Pointer[dayKey]
}

// newSigner asks the SDK's own resolver where the bucket is, so that virtual hosts,
// dotted bucket names and partitions come out as they do for the SDK.
func newSigner(bucket, region, endpoint string, pathStyle bool, owner string) (*signer, error) {
	ep, err := s3.NewDefaultEndpointResolverV2().ResolveEndpoint(context.Background(), s3.EndpointParameters{
		Bucket: &bucket, Region: &region, Endpoint: optional(endpoint), ForcePathStyle: &pathStyle,
		UseFIPS: aws.Bool(false), UseDualStack: aws.Bool(false), Accelerate: aws.Bool(false),
		UseGlobalEndpoint: aws.Bool(false), DisableMultiRegionAccessPoints: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("no address can be made of bucket, region and endpoint (some need path_style): %w", err)
	}
	u := ep.URI
	if u.RawPath == "" {
		u.RawPath = u.Path
	}
	host := u.Host
	if p := u.Port(); (u.Scheme == "http" && p == "80") || (u.Scheme == "https" && p == "443") {
		host = strings.TrimSuffix(host, ":"+p)
	}
	g := &signer{form: ep.URI.String(), origin: u.Scheme + "://" + u.Host, host: host, hostLine: "\nhost:" + host + "\n", region: region, owner: owner}
	g.prefix = strings.TrimSuffix(u.Path, "/") + "/"
	if string(appendEscaped(nil, g.prefix, true)) != g.prefix {
		g.odd = &u
	}
	return g, nil
}

// appendPath appends the escaped path of a key.
func (g *signer) appendPath(b []byte, key string) []byte {
	if g.odd == nil {
		return appendEscaped(append(b, g.prefix...), key, true)
	}
	// The endpoint's own path has bytes to escape. The SDK then escapes the whole by
	// net/url's rules, which are others.
	u := url.URL{
		Path:    smithyhttp.JoinPath(g.odd.Path, "/"+key),
		RawPath: smithyhttp.JoinPath(g.odd.RawPath, "/"+string(appendEscaped(nil, key, true))),
	}
	return append(b, u.EscapedPath()...)
}

// dayKey is the key that one day's signatures of one pair of credentials are made with.
type dayKey struct {
	access, secret string
	day            int64     // since 1970
	scope          string    // day/region/s3/aws4_request
	head           string    // of the query, up to the date
	benches        sync.Pool // of *bench, their MACs keyed with this key
}

// bench is what signatures are made on: hashes that keep their state, and buffers that
// keep their size.
type bench struct {
	sha  hash.Hash
	mac  hash.Hash
	buf  []byte // URL, and the canonical request in it
	tail []byte // query parameters after the one that varies
	sts  []byte // string to sign
	sum  []byte
	pin  []byte // a checksum in base64
	tmpl [2]template
}

func (g *signer) keyOf(c aws.Credentials, at int64) *dayKey {
	day := at / daySeconds
	if k := g.day.Load(); k != nil && k.day == day && k.access == c.AccessKeyID && k.secret == c.SecretAccessKey {
		return k
	}
	date := time.Unix(at, 0).UTC().Format(shortDate)
	key := []byte("AWS4" + c.SecretAccessKey)
	for _, part := range []string{date, g.region, "s3", "aws4_request"} {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	k := &dayKey{access: c.AccessKeyID, secret: c.SecretAccessKey, day: day, scope: date + "/" + g.region + "/s3/aws4_request"}
	k.head = "X-Amz-Algorithm=" + sigAlgorithm + "&X-Amz-Credential=" +
		string(appendEscaped(nil, c.AccessKeyID+"/"+k.scope, false)) + "&X-Amz-Date="
	k.benches.New = func() any {
		return &bench{
			sha: sha256.New(), mac: hmac.New(sha256.New, key),
			buf: make([]byte, 0, 2048), sts: make([]byte, 0, 256), sum: make([]byte, 0, sha256.Size),
		}
	}
	g.day.Store(k)
	return k
}

// stamp is what all signatures of one call share.
type stamp struct {
	key     *dayKey
	token   string   // of the session, "" if none
	date    [16]byte // 20060102T150405Z
	seconds int64
	until   time.Time // the true expiry
}

// stamp fixes the time and the expiry: the least of what was asked, what S3 takes and
// the life of the credentials, in whole seconds from the signing second. Less than one
// second asked is one second, since S3 knows none shorter.
func (g *signer) stamp(c aws.Credentials, asked time.Duration, now time.Time) (stamp, error) {
	if asked <= 0 {
		return stamp{}, errors.New("the expiry is not in the future")
	}
	at := now.Unix() // the signing second
	secs := min(max(int64(asked/time.Second), 1), maxExpiry)
	if c.CanExpire {
		left := c.Expires.Unix() - at
		if left <= 0 {
			return stamp{}, errCredentialsOver
		}
		secs = min(secs, left)
	}
	t := stamp{key: g.keyOf(c, at), token: c.SessionToken, seconds: secs, until: time.Unix(at+secs, 0).UTC()}
	copy(t.date[:], t.key.scope[:8])
	t.date[8], t.date[15] = 'T', 'Z'
	clock := at - t.key.day*daySeconds
	for i, v := range [...]int64{clock / 3600, clock / 60 % 60, clock % 60} {
		t.date[9+2*i], t.date[10+2*i] = byte('0'+v/10), byte('0'+v%10)
	}
	return t, nil
}

var errCredentialsOver = errors.New("the credentials have expired")

// appendQuery appends the signing parameters, which sort before all of ours since
// those begin in lower case.
func (t *stamp) appendQuery(b []byte, escapedHeaders string) []byte {
	b = append(b, t.key.head...)
	b = append(b, t.date[:]...)
	b = append(b, "&X-Amz-Expires="...)
	b = strconv.AppendInt(b, t.seconds, 10)
	if t.token != "" {
		b = append(b, "&X-Amz-Security-Token="...)
		b = appendEscaped(b, t.token, false)
	}
	b = append(b, "&X-Amz-SignedHeaders="...)
	return append(b, escapedHeaders...)
}

// begin writes the string to sign up to the canonical request's hash.
func (w *bench) begin(t *stamp) (prefix int) {
	w.sts = append(w.sts[:0], sigAlgorithm+"\n"...)
	w.sts = append(w.sts, t.date[:]...)
	w.sts = append(w.sts, '\n')
	w.sts = append(w.sts, t.key.scope...)
	w.sts = append(w.sts, '\n')
	return len(w.sts)
}

// appendSignature appends the signature of the canonical request whose hash is in sum.
func (w *bench) appendSignature(dst []byte, prefix int) []byte {
	w.sts = appendHex(w.sts[:prefix], w.sum)
	w.mac.Reset()
	w.mac.Write(w.sts)
	w.sum = w.mac.Sum(w.sum[:0])
	return appendHex(dst, w.sum)
}

type pair struct{ name, value string }

// request is one request to sign. Names of query parameters and headers are in lower
// case, host and content-length are added.
type request struct {
	method, key string
	query       []pair
	headers     models.Headers
	size        int64
}

func (g *signer) sign(t *stamp, r request) string {
	if g.owner != "" {
		r.query = append(r.query, pair{"x-amz-expected-bucket-owner", g.owner})
	}
	slices.SortFunc(r.query, func(a, b pair) int { return cmp.Compare(a.name, b.name) })
	headers := append(slices.Clone(r.headers), models.Header{Name: "host", Value: g.host})
	if r.size > 0 {
		headers = append(headers, models.Header{Name: "content-length", Value: strconv.FormatInt(r.size, 10)})
	}
	slices.SortFunc(headers, byName)
	names := make([]string, len(headers))
	for i, h := range headers {
		names[i] = h.Name
	}
	signed := strings.Join(names, ";")

	w := t.key.benches.Get().(*bench)
	defer t.key.benches.Put(w)
	b := g.appendPath(append(w.buf[:0], g.origin...), r.key)
	slash := len(b)
	b = append(b, '?')
	b = t.appendQuery(b, string(appendEscaped(nil, signed, false)))
	for _, q := range r.query {
		b = append(b, '&')
		b = appendEscaped(b, q.name, false)
		b = append(b, '=')
		b = appendEscaped(b, q.value, false)
	}
	end := len(b)
	b = append(b, '\n')
	for _, h := range headers {
		b = append(b, h.Name...)
		b = append(b, ':')
		b = append(b, trimAll(h.Value)...)
		b = append(b, '\n')
	}
	b = append(b, '\n')
	b = append(b, signed...)
	b = append(b, "\n"+unsigned...)
	inPlace(b, len(g.origin), slash, r.method, w.hashWhole)
	b = append(b[:end], "&X-Amz-Signature="...)
	b = w.appendSignature(b, w.begin(t))
	w.buf = b
	return string(b)
}

// inPlace calls f with the canonical request that lies in b from the path on. Path and
// query are the URL's too, so they are written once: for the hashing, the method stands
// over the end of the origin, and a newline over the question mark.
func inPlace(b []byte, path, question int, method string, f func(request []byte)) {
	var kept [8]byte
	n := copy(kept[:], b[path-len(method)-1:path])
	copy(b[path-n:], method)
	b[path-1], b[question] = '\n', '\n'
	f(b[path-n:])
	copy(b[path-n:], kept[:n])
	b[question] = '?'
}

func (w *bench) hashWhole(request []byte) {
	sum := sha256.Sum256(request)
	w.sum = append(w.sum[:0], sum[:]...)
}

// partHeaders is what the headers that a part signs add to its canonical request and
// its URL, made once.
type partHeaders struct {
	checksum string // the header's name, "" if none
	before   string // its value, in the canonical request
	after    string // all headers
	escaped  string // names, for the query
}

var (
	loose           = newPartHeaders("")
	pinnedSHA256    = newPartHeaders(models.SHA256.Header())
	pinnedCRC64NVME = newPartHeaders(models.CRC64NVME.Header())
	pinnedCRC32C    = newPartHeaders(models.CRC32C.Header())
	pinnedCRC32     = newPartHeaders(models.CRC32.Header())
)

func pinned(alg models.Algorithm) *partHeaders {
	switch alg {
	case models.SHA256:
		return pinnedSHA256
	case models.CRC64NVME:
		return pinnedCRC64NVME
	case models.CRC32C:
		return pinnedCRC32C
	case models.CRC32:
		return pinnedCRC32
	}
	return loose
}

func newPartHeaders(checksum string) *partHeaders {
	h := &partHeaders{checksum: checksum}
	signed, end := "content-length;host", "\n"
	if checksum != "" {
		signed += ";" + checksum
		h.before, end = checksum+":", "\n\n"
	}
	h.after = end + signed + "\n" + unsigned
	h.escaped = string(appendEscaped(nil, signed, false))
	return h
}

// template holds what the URLs and the canonical requests of one upload's parts begin
// with. There are two: with the part's checksum pinned, and without.
type template struct {
	ready bool
	buf   []byte // the URL up to the part number, then each part's own
	n     int    // length of the URL up to the part number
	query int    // where its question mark is
	state []byte // SHA-256 after the canonical request up to the part number
}

// signParts signs UploadPart requests. Parts are valid.
func (g *signer) signParts(t *stamp, key, uploadID string, parts []models.PartToSign, alg models.Algorithm) []models.SignedPart {
	w := t.key.benches.Get().(*bench)
	defer t.key.benches.Put(w)
	w.tmpl[0].ready, w.tmpl[1].ready = false, false
	prefix := w.begin(t)
	tail := appendEscaped(append(w.tail[:0], "&uploadId="...), uploadID, false)
	if g.owner != "" {
		tail = appendEscaped(append(tail, "&x-amz-expected-bucket-owner="...), g.owner, false)
	}
	tail = append(tail, "&x-id=UploadPart"...)
	w.tail = tail
	withDigest := pinned(alg)
	out, headers := make([]models.SignedPart, len(parts)), make(models.Headers, 0, len(parts))
	for i := range parts {
		p := &parts[i]
		m, h := &w.tmpl[0], loose
		if len(p.Digest) > 0 {
			m, h = &w.tmpl[1], withDigest
			w.pin = base64.StdEncoding.AppendEncode(w.pin[:0], p.Digest)
		}
		if !m.ready {
			g.fill(m, w, t, key, h, len(parts) > 1)
		}
		b := strconv.AppendInt(m.buf[:m.n], int64(p.Number), 10)
		b = append(b, tail...)
		end := len(b)
		b = append(b, "\ncontent-length:"...)
		b = strconv.AppendInt(b, p.Size, 10)
		b = append(b, g.hostLine...)
		if h != loose {
			b = append(b, h.before...)
			b = append(b, w.pin...)
		}
		b = append(b, h.after...)
		if len(parts) > 1 {
			w.hashFrom(m.state, b[m.n:])
		} else {
			inPlace(b, len(g.origin), m.query, "PUT", w.hashWhole)
		}
		b = append(b[:end], "&X-Amz-Signature="...)
		b = w.appendSignature(b, prefix)
		// The header's value lies behind the URL in one string: one allocation for both.
		n := len(b)
		if h != loose {
			b = append(b, w.pin...)
		}
		m.buf = b
		text := string(b)
		o := &out[i]
		o.Number, o.Size, o.Method, o.URL = p.Number, p.Size, "PUT", text[:n]
		if h != loose {
			headers = append(headers, models.Header{Name: h.checksum, Value: text[n:]})
			o.Headers = headers[len(headers)-1 : len(headers) : len(headers)]
		}
	}
	return out
}

// fill makes a template; its state only where several parts begin with it.
func (g *signer) fill(m *template, w *bench, t *stamp, key string, h *partHeaders, several bool) {
	b := g.appendPath(append(m.buf[:0], g.origin...), key)
	m.query = len(b)
	b = append(b, '?')
	b = t.appendQuery(b, h.escaped)
	b = append(b, "&partNumber="...)
	m.buf, m.n, m.ready = b, len(b), true
	if !several {
		return
	}
	inPlace(b, len(g.origin), m.query, "PUT", func(beginning []byte) {
		w.sha.Reset()
		w.sha.Write(beginning)
	})
	var err error
	if m.state, err = w.sha.(encoding.BinaryAppender).AppendBinary(m.state[:0]); err != nil {
		panic("objects: SHA-256 gives no state: " + err.Error())
	}
}

// hashFrom hashes on from a kept state.
func (w *bench) hashFrom(state, rest []byte) {
	if err := w.sha.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		panic("objects: SHA-256 does not take its own state: " + err.Error())
	}
	w.sha.Write(rest)
	w.sum = w.sha.Sum(w.sum[:0])
}

func byName(a, b models.Header) int { return cmp.Compare(a.Name, b.Name) }

// plain are the bytes that SigV4 leaves as they are.
var plain = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~") {
		t[c] = true
	}
	return t
}()

// hexPairs spares a look-up: hex is written 128 bytes a signature.
var hexPairs = func() (t [256][2]byte) {
	const digits = "0123456789abcdef"
	for i := range t {
		t[i] = [2]byte{digits[i>>4], digits[i&15]}
	}
	return t
}()

func appendHex(b, raw []byte) []byte {
	n := len(b)
	b = slices.Grow(b, 2*len(raw))[:n+2*len(raw)]
	out := b[n:]
	for i, c := range raw {
		*(*[2]byte)(out[2*i:]) = hexPairs[c]
	}
	return b
}

// appendEscaped URI-encodes s as SigV4 wants it: upper-case hex, a space is %20.
func appendEscaped(b []byte, s string, keepSlash bool) []byte {
	const digits = "0123456789ABCDEF"
	from := 0
	for i := range len(s) {
		c := s[i]
		if plain[c] || (keepSlash && c == '/') {
			continue
		}
		b = append(b, s[from:i]...)
		b = append(b, '%', digits[c>>4], digits[c&15])
		from = i + 1
	}
	return append(b, s[from:]...)
}

// trimAll takes white space off the ends of a header's value and makes runs of spaces
// one, as SigV4's canonical headers have them.
func trimAll(s string) string {
	s = strings.Trim(s, " ")
	for strings.Contains(s, "  ") {
		s = strings.ReplaceAll(s, "  ", " ")
	}
	return strings.TrimSpace(s)
}
