package httpapi

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/models"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

// Bounds of a token and of what it may state, in bytes unless said otherwise.
const (
	maxToken       = 8 << 10
	maxOwner       = 255
	maxTenant      = 128
	maxScope       = 2048
	maxScopes      = 64 // entries
	maxGrantID     = 128
	maxGrantTypes  = 64 // entries
	minSecret      = 32
	minRSABits     = 2048
	maxJWKS        = 1 << 20
	defaultLeeway  = 30 * time.Second
	defaultRefresh = 15 * time.Minute
)

// errUnauthenticated is the one answer to every token that is not good. It does not
// tell what is wrong with it: whoever mints tokens knows, nobody else needs to.
var errUnauthenticated = models.Errorf(models.CodeUnauthenticated, "the bearer token is missing, not valid, or no longer valid")

// TokenConfig says whose tokens are believed. Secret, JWKSURL or both must be given:
// HS256 is checked with the secret only, every other algorithm with the published
// keys only, so that a public key never serves as a secret.
type TokenConfig struct {
	Secret   []byte // HS256; at least 32 bytes
	JWKSURL  string // RS, PS, ES and EdDSA; https, or http on a loopback address
	Issuer   string // iss, if given
	Audience string // one of aud, if given
	Leeway   time.Duration
	Refresh  time.Duration // of the published keys
	Client   *http.Client  // for the published keys
	Log      *slog.Logger
	Now      func() time.Time
}

// Verifier checks tokens. It is safe for concurrent use.
type Verifier struct {
	secret []byte
	keys   keyfunc.Keyfunc
	parser *jwt.Parser
	leeway time.Duration
}

var publicKeyMethods = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// NewVerifier makes a Verifier. The published keys are fetched now and refreshed
// until ctx ends; if they cannot be had now, they are looked for again later.
func NewVerifier(ctx context.Context, c TokenConfig) (*Verifier, error) {
	v := &Verifier{secret: slices.Clone(c.Secret)}
	var methods []string
	if len(c.Secret) > 0 {
		if len(c.Secret) < minSecret {
			return nil, fmt.Errorf("httpapi: the token secret has %d bytes, it needs %d", len(c.Secret), minSecret)
		}
		methods = append(methods, "HS256")
	}
	if c.JWKSURL != "" {
		keys, err := publishedKeys(ctx, c)
		if err != nil {
			return nil, err
		}
		v.keys = keys
		methods = append(methods, publicKeyMethods...)
	}
	if len(methods) == 0 {
		return nil, errors.New("httpapi: neither a token secret nor a JWKS URL is configured")
	}
	if c.Leeway <= 0 {
		c.Leeway = defaultLeeway
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithLeeway(c.Leeway),
		jwt.WithTimeFunc(c.Now), jwt.WithStrictDecoding(),
	}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	v.parser, v.leeway = jwt.NewParser(options...), c.Leeway
	return v, nil
}

func publishedKeys(ctx context.Context, c TokenConfig) (keyfunc.Keyfunc, error) {
	u, err := url.Parse(c.JWKSURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname()))) {
		return nil, errors.New("httpapi: the JWKS URL must be https, or http on a loopback address")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Refresh <= 0 {
		c.Refresh = defaultRefresh
	}
	client := &http.Client{Timeout: 5 * time.Second}
	if c.Client != nil {
		copied := *c.Client
		client = &copied
	}
	client.Transport = boundedTransport{client.Transport}
	keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{c.JWKSURL}, keyfunc.Override{
		Client:          client,
		HTTPTimeout:     5 * time.Second,
		RefreshInterval: c.Refresh,
		// A key id that nobody knows makes us look again, but not more often than
		// this, however many such tokens come. Those that come meanwhile are refused
		// at once: the wait for the limiter would be longer than it may take.
		RefreshUnknownKID: rate.NewLimiter(rate.Every(30*time.Second), 1),
		RateLimitWaitMax:  3 * time.Second,
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(ctx context.Context, err error) {
				c.Log.ErrorContext(ctx, "the keys of the token issuer could not be fetched", "error", scrub(err.Error()))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("httpapi: token keys: %w", err)
	}
	return keys, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// boundedTransport cuts answers, since the reader of the keys does not.
type boundedTransport struct{ next http.RoundTripper }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	next := t.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, maxJWKS), body}
	return resp, nil
}

// Verify returns the caller that a token names. Its error is UNAUTHENTICATED with a
// fixed sentence, or STORE_UNAVAILABLE while no key is known at all.
func (v *Verifier) Verify(ctx context.Context, token string) (models.Caller, error) {
	// encoding/base64 passes over line breaks, also when it is strict.
	if len(token) > maxToken || strings.ContainsAny(token, "\r\n") {
		return models.Caller{}, errUnauthenticated
	}
	var c claims
	parsed, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) { return v.key(ctx, t) })
	if err != nil || !parsed.Valid {
		if errors.Is(err, errNoKeys) {
			return models.Caller{}, models.Errorf(models.CodeStoreUnavailable, "the keys to check tokens with are not available")
		}
		return models.Caller{}, errUnauthenticated
	}
	caller, err := c.caller(token)
	if err != nil {
		return models.Caller{}, errUnauthenticated
	}
	if caller.Grant != nil {
		// With the leeway: as long as the token is taken, its uses are counted.
		caller.Grant.Expires = c.ExpiresAt.Add(v.leeway).UTC()
	}
	return caller, nil
}

var errNoKeys = errors.New("no keys")

// key chooses the key by the algorithm, which the parser has held against the list
// of allowed ones already.
func (v *Verifier) key(ctx context.Context, t *jwt.Token) (any, error) {
	// RFC 7515, 4.1.11: what must be understood and is not makes the token invalid.
	if _, critical := t.Header["crit"]; critical {
		return nil, errors.New("critical extension")
	}
	alg := t.Method.Alg()
	if alg == "HS256" {
		return v.secret, nil
	}
	found, err := v.keys.KeyfuncCtx(ctx)(t)
	if err != nil {
		if all, err := v.keys.Storage().KeyReadAll(ctx); err == nil && len(all) == 0 {
			return nil, errNoKeys
		}
		return nil, err
	}
	set, ok := found.(jwt.VerificationKeySet)
	if !ok {
		set = jwt.VerificationKeySet{Keys: []jwt.VerificationKey{found}}
	} else if len(set.Keys) == 0 {
		if all, err := v.keys.Storage().KeyReadAll(ctx); err == nil && len(all) == 0 {
			return nil, errNoKeys
		}
	}
	fitting := set.Keys[:0:0]
	for _, k := range set.Keys {
		if fits(alg, k) {
			fitting = append(fitting, k)
		}
	}
	if len(fitting) == 0 {
		return nil, errors.New("no key fits the algorithm")
	}
	return jwt.VerificationKeySet{Keys: fitting}, nil
}

// fits tells whether a key is of the kind and the strength that an algorithm takes.
func fits(alg string, key crypto.PublicKey) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && k.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		switch alg {
		case "ES256":
			return k.Curve == elliptic.P256()
		case "ES384":
			return k.Curve == elliptic.P384()
		case "ES512":
			return k.Curve == elliptic.P521()
		}
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

// claims are read by exactly these names: encoding/json alone would take "SUB" for
// "sub", and the last of two.
type claims struct {
	jwt.RegisteredClaims
	tenant *string
	scope  json.RawMessage
	grant  json.RawMessage
}

func (c *claims) UnmarshalJSON(b []byte) error {
	if err := checkJSON(b, anyShape); err != nil {
		return err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for name, into := range map[string]any{
		"iss": &c.Issuer, "sub": &c.Subject, "aud": &c.Audience, "exp": &c.ExpiresAt,
		"nbf": &c.NotBefore, "jti": &c.ID, "tenant": &c.tenant,
	} {
		if raw, there := m[name]; there {
			switch date := name == "exp" || name == "nbf"; {
			case string(raw) == "null":
				return errors.New(name + " is null") // not as if it were absent
			case date && raw[0] == '"':
				return errors.New(name + " is text") // the library would read it
			}
			if err := json.Unmarshal(raw, into); err != nil {
				return err
			}
		}
	}
	c.scope, c.grant = m["scope"], m["berth"]
	return nil
}

func (c *claims) caller(token string) (models.Caller, error) {
	caller := models.Caller{Tenant: "default", Owner: models.Owner(c.Subject)}
	if !printable(c.Subject, maxOwner) {
		return caller, errors.New("sub")
	}
	if c.tenant != nil {
		caller.Tenant = models.Tenant(*c.tenant)
		if !printable(*c.tenant, maxTenant) {
			return caller, errors.New("tenant")
		}
	}
	scopes, err := parseScopes(c.scope)
	if err != nil {
		return caller, err
	}
	caller.Scopes = scopes
	if c.grant != nil {
		caller.Grant, err = parseGrant(c.grant, c.ID, token)
	}
	return caller, err
}

// parseScopes takes "a b" (RFC 8693) or ["a","b"]. Scopes of others are passed over.
func parseScopes(raw json.RawMessage) ([]models.Scope, error) {
	if raw == nil {
		return nil, nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, errors.New("scope")
		}
		list = strings.Fields(s)
	}
	if len(raw) > maxScope || len(list) > maxScopes {
		return nil, errors.New("scope")
	}
	var out []models.Scope
	for _, s := range list {
		switch scope := models.Scope(s); scope {
		case models.ScopeUpload, models.ScopeRead, models.ScopeDelete, models.ScopeAdmin:
			if !slices.Contains(out, scope) {
				out = append(out, scope)
			}
		}
	}
	return out, nil
}

// grantClaim is the claim "berth". All of it narrows; absent members do not, and one that
// is there and would not is refused.
type grantClaim struct {
	ID           string   `json:"id"`
	Collection   string   `json:"collection"`
	MaxBytes     int64    `json:"max_bytes"`
	ContentTypes []string `json:"content_types"`
	MaxFiles     int64    `json:"max_files"`
	Upload       string   `json:"upload"`
}

var grantShape = func() *shape {
	s := shapeOf[grantClaim]()
	s.fields["content_types"].nullable = false
	return s
}()

// parseGrant fails closed: what is not understood might narrow. A grant that counts
// files and has no id is counted by the token's id, or else by the token itself.
func parseGrant(raw json.RawMessage, tokenID, token string) (*models.Grant, error) {
	var g grantClaim
	present, err := checkFields(raw, grantShape)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		return nil, err
	}
	// What is there must narrow: no types, or no bytes left of a budget, would be read as any.
	for name, narrows := range map[string]bool{
		"id": g.ID != "", "collection": g.Collection != "", "upload": g.Upload != "", "max_bytes": g.MaxBytes > 0,
		"max_files": g.MaxFiles > 0, "content_types": len(g.ContentTypes) > 0 && len(g.ContentTypes) <= maxGrantTypes,
	} {
		if !narrows && slices.Contains(present, name) {
			return nil, errors.New("berth." + name)
		}
	}
	out := &models.Grant{ID: g.ID, Collection: g.Collection, MaxBytes: g.MaxBytes, MaxFiles: g.MaxFiles}
	for _, t := range g.ContentTypes {
		t = strings.ToLower(t)
		if !printable(t, models.MaxTypeBytes) || !strings.Contains(t, "/") {
			return nil, errors.New("berth.content_types")
		}
		out.ContentTypes = append(out.ContentTypes, t)
	}
	if g.Collection != "" && !printable(g.Collection, maxGrantID) {
		return nil, errors.New("berth.collection")
	}
	if g.Upload != "" {
		id, err := models.ParseUploadID(g.Upload)
		if err != nil {
			return nil, err
		}
		out.Upload = id
	}
	if out.ID == "" {
		out.ID = tokenID
	}
	if out.ID == "" && out.MaxFiles > 0 {
		signed := token[:strings.LastIndexByte(token, '.')]
		sum := sha256.Sum256([]byte(signed))
		out.ID = "sha256-" + hex.EncodeToString(sum[:])
	}
	if out.ID != "" && !printable(out.ID, maxGrantID) {
		return nil, errors.New("berth.id")
	}
	return out, nil
}

// printable tells whether s is 1 to limit bytes of UTF-8 that one can read, without
// marks with which a name can pretend to be another, and without space around it.
func printable(s string, limit int) bool {
	if s == "" || len(s) > limit || !utf8.ValidString(s) || strings.TrimSpace(s) != s {
		return false
	}
	for _, r := range s {
		if !unicode.IsGraphic(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}
