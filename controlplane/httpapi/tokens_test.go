package httpapi_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/controlplane/httpapi"
	"berth/models"

	"github.com/golang-jwt/jwt/v5"
)

func verifier(t testing.TB, c httpapi.TokenConfig) *httpapi.Verifier {
	t.Helper()
	v, err := httpapi.NewVerifier(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func signed(t testing.TB, m jwt.SigningMethod, key any, header map[string]any, claims jwt.Claims) string {
	t.Helper()
	tok := jwt.NewWithClaims(m, claims)
	for k, v := range header {
		tok.Header[k] = v
	}
	s, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// raw signs text as it is, so that it may hold what an encoder would not write.
func raw(header, payload string) string {
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

const (
	hs256 = `{"alg":"HS256","typ":"JWT"}`
	never = `"exp":9999999999`
)

func TestTokensWithASecret(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	v := verifier(t, httpapi.TokenConfig{Secret: []byte(secret), Issuer: "us", Audience: "berth", Now: func() time.Time { return now }})
	base := func(change map[string]any) jwt.MapClaims {
		c := jwt.MapClaims{"sub": "ann", "iss": "us", "aud": "berth", "exp": now.Add(time.Minute).Unix(), "scope": "upload read"}
		for k, x := range change {
			if c[k] = x; x == nil {
				delete(c, k)
			}
		}
		return c
	}
	at := func(d time.Duration) any { return now.Add(d).Unix() }
	grant := func(g any) map[string]any { return map[string]any{"berth": g} }
	for name, c := range map[string]struct {
		change map[string]any
		ok     bool
	}{
		"good":                    {nil, true},
		"expired":                 {map[string]any{"exp": at(-31 * time.Second)}, false},
		"expired within leeway":   {map[string]any{"exp": at(-29 * time.Second)}, true},
		"no expiry":               {map[string]any{"exp": nil}, false},
		"expiry is text":          {map[string]any{"exp": "9999999999"}, false},
		"not yet":                 {map[string]any{"nbf": at(31 * time.Second)}, false},
		"not yet, within leeway":  {map[string]any{"nbf": at(29 * time.Second)}, true},
		"another issuer":          {map[string]any{"iss": "them"}, false},
		"no issuer":               {map[string]any{"iss": nil}, false},
		"another audience":        {map[string]any{"aud": "other"}, false},
		"no audience":             {map[string]any{"aud": nil}, false},
		"one of the audiences":    {map[string]any{"aud": []string{"other", "berth"}}, true},
		"no subject":              {map[string]any{"sub": nil}, false},
		"empty subject":           {map[string]any{"sub": ""}, false},
		"subject is a number":     {map[string]any{"sub": 1}, false},
		"subject with NUL":        {map[string]any{"sub": "a\x00"}, false},
		"subject with newline":    {map[string]any{"sub": "a\nb"}, false},
		"subject with mark":       {map[string]any{"sub": "a\u202eb"}, false},
		"subject with space end":  {map[string]any{"sub": "ann "}, false},
		"subject of 255":          {map[string]any{"sub": strings.Repeat("a", 255)}, true},
		"subject of 256":          {map[string]any{"sub": strings.Repeat("a", 256)}, false},
		"subject not ASCII":       {map[string]any{"sub": "Zoë 你好"}, true},
		"empty tenant":            {map[string]any{"tenant": ""}, false},
		"long tenant":             {map[string]any{"tenant": strings.Repeat("t", 129)}, false},
		"tenant is a list":        {map[string]any{"tenant": []string{"a"}}, false},
		"tenant is null":          {map[string]any{"tenant": json.RawMessage("null")}, false},
		"scope is a list":         {map[string]any{"scope": []string{"read"}}, true},
		"scope is a number":       {map[string]any{"scope": 7}, false},
		"scope too long":          {map[string]any{"scope": strings.Repeat("read ", 500)}, false},
		"too many scopes":         {map[string]any{"scope": make([]string, 65)}, false},
		"grant":                   {grant(map[string]any{"collection": "c", "max_bytes": 1, "content_types": []string{"image/*"}, "max_files": 2}), true},
		"empty grant":             {grant(map[string]any{}), true},
		"grant is null":           {grant(json.RawMessage("null")), false},
		"grant is a list":         {grant([]string{}), false},
		"grant is text":           {grant("c"), false},
		"grant knows more":        {grant(map[string]any{"colection": "c"}), false},
		"grant, another case":     {grant(map[string]any{"Collection": "c"}), false},
		"grant, negative bytes":   {grant(map[string]any{"max_bytes": -1}), false},
		"grant, negative files":   {grant(map[string]any{"max_files": -1}), false},
		"grant, no bytes":         {grant(map[string]any{"max_bytes": 0}), false},
		"grant, no files":         {grant(map[string]any{"max_files": 0}), false},
		"grant, no collection":    {grant(map[string]any{"collection": ""}), false},
		"grant, no upload":        {grant(map[string]any{"upload": ""}), false},
		"grant, no id":            {grant(map[string]any{"id": ""}), false},
		"grant, fraction":         {grant(map[string]any{"max_bytes": 1.5}), false},
		"grant, bytes text":       {grant(map[string]any{"max_bytes": "1"}), false},
		"grant, bytes null":       {grant(map[string]any{"max_bytes": nil}), false},
		"grant, types null":       {grant(map[string]any{"content_types": nil}), false},
		"grant, types not types":  {grant(map[string]any{"content_types": []string{"pdf"}}), false},
		"grant, no types":         {grant(map[string]any{"content_types": []string{}}), false},
		"grant, 65 types":         {grant(map[string]any{"content_types": strings.Split(strings.Repeat("a/b ", 64)+"a/b", " ")}), false},
		"grant, bad upload":       {grant(map[string]any{"upload": "upl_x"}), false},
		"grant, upload":           {grant(map[string]any{"upload": someUpload}), true},
		"grant, odd collection":   {grant(map[string]any{"collection": "a\nb"}), false},
		"grant, long id":          {grant(map[string]any{"id": strings.Repeat("i", 129)}), false},
		"unknown claims are fine": {map[string]any{"azp": "x", "roles": []string{"a"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caller, err := v.Verify(t.Context(), signed(t, jwt.SigningMethodHS256, []byte(secret), nil, base(c.change)))
			refusedAsAlways(t, caller, err, c.ok)
		})
	}
}

// refusedAsAlways fails unless the outcome is the wanted one; every refusal has one
// and the same sentence.
func refusedAsAlways(t testing.TB, caller models.Caller, err error, ok bool) {
	t.Helper()
	if ok {
		if err != nil || caller.Owner == "" || caller.Tenant == "" {
			t.Fatalf("refused: %+v, %v", caller, err)
		}
		return
	}
	const sentence = "UNAUTHENTICATED: the bearer token is missing, not valid, or no longer valid"
	if err == nil || err.Error() != sentence || !reflect.DeepEqual(caller, models.Caller{}) {
		t.Fatalf("taken, or refused otherwise: %+v, %v", caller, err)
	}
}

func TestCallersOfTokens(t *testing.T) {
	t.Parallel()
	v := verifier(t, httpapi.TokenConfig{Secret: []byte(secret)})
	ann := func(change func(*models.Caller)) models.Caller {
		c := models.Caller{Tenant: "default", Owner: "ann"}
		change(&c)
		return c
	}
	for claims, want := range map[string]models.Caller{
		``: ann(func(*models.Caller) {}),
		`,"tenant":"acme","scope":"openid upload  read read"`: ann(func(c *models.Caller) {
			c.Tenant, c.Scopes = "acme", []models.Scope{"upload", "read"}
		}),
		`,"scope":["admin","delete","root"]`:           ann(func(c *models.Caller) { c.Scopes = []models.Scope{"admin", "delete"} }),
		`,"SUB":"bob","Tenant":"acme","Scope":"admin"`: ann(func(*models.Caller) {}),
		`,"jti":"j","berth":{"collection":"c","max_files":3}`: ann(func(c *models.Caller) {
			c.Grant = &models.Grant{ID: "j", Collection: "c", MaxFiles: 3}
		}),
		`,"jti":"j","berth":{"id":"g","max_bytes":10}`: ann(func(c *models.Caller) { c.Grant = &models.Grant{ID: "g", MaxBytes: 10} }),
		`,"berth":{"content_types":["Image/*","text/plain"]}`: ann(func(c *models.Caller) {
			c.Grant = &models.Grant{ContentTypes: []string{"image/*", "text/plain"}}
		}),
		`,"berth":{"upload":"` + someUpload + `"}`: ann(func(c *models.Caller) { c.Grant = &models.Grant{Upload: someUpload} }),
		`,"berth":{"max_files":1}`:                 ann(func(c *models.Caller) { c.Grant = &models.Grant{MaxFiles: 1, ID: "hash"} }),
	} {
		got, err := v.Verify(t.Context(), raw(hs256, `{"sub":"ann",`+never+claims+`}`))
		if err != nil {
			t.Errorf("%s: %v", claims, err)
			continue
		}
		if got.Grant != nil {
			if end := time.Unix(9999999999, 0).Add(30 * time.Second); !got.Grant.Expires.Equal(end) {
				t.Errorf("%s: the grant ends %v", claims, got.Grant.Expires)
			}
			got.Grant.Expires = time.Time{}
			if want.Grant != nil && want.Grant.ID == "hash" {
				if !strings.HasPrefix(got.Grant.ID, "sha256-") || len(got.Grant.ID) != 71 {
					t.Errorf("%s: counted by %q", claims, got.Grant.ID)
				}
				got.Grant.ID = "hash"
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", claims, got, want)
		}
	}
}

// Tokens that no library would write.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	v := verifier(t, httpapi.TokenConfig{Secret: []byte(secret)})
	good := raw(hs256, `{"sub":"ann",`+never+`}`)
	if caller, err := v.Verify(t.Context(), good); err != nil || caller.Owner != "ann" {
		t.Fatalf("a good token: %v", err)
	}
	parts := strings.Split(good, ".")
	enc := base64.RawURLEncoding.EncodeToString
	forever := jwt.MapClaims{"sub": "ann", "exp": 9999999999}
	for name, token := range map[string]string{
		"empty": "", "one part": "a", "two parts": parts[0] + "." + parts[1], "four parts": good + ".a", "dots": "..",
		"no signature":         parts[0] + "." + parts[1] + ".",
		"none":                 enc([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".",
		"None":                 enc([]byte(`{"alg":"None"}`)) + "." + parts[1] + "." + parts[2],
		"no alg":               raw(`{"typ":"JWT"}`, `{"sub":"ann",`+never+`}`),
		"alg is a list":        raw(`{"alg":["HS256"]}`, `{"sub":"ann",`+never+`}`),
		"HS384 by name":        raw(`{"alg":"HS384"}`, `{"sub":"ann",`+never+`}`),
		"RS256 by name":        raw(`{"alg":"RS256"}`, `{"sub":"ann",`+never+`}`),
		"lower case":           raw(`{"alg":"hs256"}`, `{"sub":"ann",`+never+`}`),
		"critical extension":   raw(`{"alg":"HS256","crit":["b64"],"b64":false}`, `{"sub":"ann",`+never+`}`),
		"empty crit":           raw(`{"alg":"HS256","crit":null}`, `{"sub":"ann",`+never+`}`),
		"another payload":      parts[0] + "." + enc([]byte(`{"sub":"bob",`+never+`}`)) + "." + parts[2],
		"padded":               good + "=",
		"loose last bits":      loosen(good),
		"newline within":       parts[0] + "." + parts[1] + "\n." + parts[2],
		"newline in signature": parts[0] + "." + parts[1] + ".\n" + parts[2],
		"subject twice":        raw(hs256, `{"sub":"ann","sub":"bob",`+never+`}`),
		"expiry twice":         raw(hs256, `{"sub":"ann","exp":1,`+never+`}`),
		"payload is a list":    raw(hs256, `[]`),
		"payload is null":      raw(hs256, `null`),
		"payload is garbage":   raw(hs256, "\xff\xfe"),
		"payload trails":       raw(hs256, `{"sub":"ann",`+never+`}{}`),
		"payload too deep":     raw(hs256, `{"sub":"ann",`+never+`,"a":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`}`),
		"NUL, escaped":         raw(hs256, `{"sub":"ann\u0000",`+never+`}`),
		"half a surrogate":     raw(hs256, `{"sub":"ann\ud800",`+never+`}`),
		"huge expiry":          raw(hs256, `{"sub":"ann","exp":1e400}`),
		"negative expiry":      raw(hs256, `{"sub":"ann","exp":-1}`),
		"grant twice":          raw(hs256, `{"sub":"ann","berth":{"collection":"a"},"berth":{},`+never+`}`),
		"grant's field twice":  raw(hs256, `{"sub":"ann","berth":{"collection":"a","collection":""},`+never+`}`),
		"9 KB":                 raw(hs256, `{"sub":"ann","x":"`+strings.Repeat("x", 9000)+`",`+never+`}`),
		"1 MB":                 strings.Repeat("a", 1<<20),
		"1 MB of dots":         strings.Repeat(".", 1<<20),
		"another secret":       signed(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), nil, forever),
		"HS512, our secret":    signed(t, jwt.SigningMethodHS512, []byte(secret), nil, forever),
		"unsigned":             signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, forever),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caller, err := v.Verify(t.Context(), token)
			refusedAsAlways(t, caller, err, false)
		})
	}
}

// loosen sets a bit that strict base64 wants to be zero: the same signature in
// another spelling.
func loosen(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last|1])
}

// issuer publishes keys, and may change them.
type issuer struct {
	mu   sync.Mutex
	keys []map[string]any
	gets atomic.Int64
	url  string
}

func newIssuer(t testing.TB, keys ...map[string]any) *issuer {
	t.Helper()
	i := &issuer{keys: keys}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.gets.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.keys == nil {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": i.keys})
	}))
	t.Cleanup(s.Close)
	i.url = s.URL
	return i
}

func (i *issuer) publish(keys ...map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

func jwk(kid string, public crypto.PublicKey) map[string]any {
	b64 := base64.RawURLEncoding.EncodeToString
	m := map[string]any{"kid": kid, "use": "sig"}
	switch k := public.(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		size := (k.Curve.Params().BitSize + 7) / 8
		point := must(k.Bytes())
		m["kty"], m["crv"], m["x"], m["y"] = "EC", k.Curve.Params().Name, b64(point[1:1+size]), b64(point[1+size:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(k)
	case []byte:
		m["kty"], m["k"] = "oct", b64(k)
	}
	return m
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type testKeys struct {
	rsa, other, weak *rsa.PrivateKey
	p256, p384       *ecdsa.PrivateKey
	ed               ed25519.PrivateKey
}

var keys = sync.OnceValue(func() testKeys {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	return testKeys{
		rsa: must(rsa.GenerateKey(rand.Reader, 2048)), other: must(rsa.GenerateKey(rand.Reader, 2048)),
		weak: must(rsa.GenerateKey(rand.Reader, 1024)),
		p256: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), p384: must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)),
		ed: must(ed, err),
	}
})

func TestTokensWithPublishedKeys(t *testing.T) {
	t.Parallel()
	k := keys()
	octet := []byte(strings.Repeat("o", 32))
	rs := jwk("rs-only", k.rsa.Public())
	rs["alg"] = "RS256"
	i := newIssuer(t, jwk("rsa", k.rsa.Public()), jwk("weak", k.weak.Public()), jwk("p256", k.p256.Public()), jwk("p384", k.p384.Public()),
		jwk("ed", k.ed.Public()), jwk("oct", octet), rs)
	v := verifier(t, httpapi.TokenConfig{JWKSURL: i.url})
	both := verifier(t, httpapi.TokenConfig{JWKSURL: i.url, Secret: []byte(secret)})
	claims := jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(time.Minute).Unix()}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(k.rsa.Public()))})
	for name, c := range map[string]struct {
		method jwt.SigningMethod
		key    any
		kid    any
		ok     bool
	}{
		"RS256":                  {jwt.SigningMethodRS256, k.rsa, "rsa", true},
		"RS512":                  {jwt.SigningMethodRS512, k.rsa, "rsa", true},
		"PS256":                  {jwt.SigningMethodPS256, k.rsa, "rsa", true},
		"ES256":                  {jwt.SigningMethodES256, k.p256, "p256", true},
		"ES384":                  {jwt.SigningMethodES384, k.p384, "p384", true},
		"EdDSA":                  {jwt.SigningMethodEdDSA, k.ed, "ed", true},
		"no key id":              {jwt.SigningMethodES256, k.p256, nil, true},
		"the key's own alg":      {jwt.SigningMethodRS256, k.rsa, "rs-only", true},
		"not the key's own alg":  {jwt.SigningMethodPS256, k.rsa, "rs-only", false},
		"1024 bits":              {jwt.SigningMethodRS256, k.weak, "weak", false},
		"1024 bits, no key id":   {jwt.SigningMethodRS256, k.weak, nil, false},
		"another's key":          {jwt.SigningMethodRS256, k.other, "rsa", false},
		"another key's id":       {jwt.SigningMethodRS256, k.rsa, "ed", false},
		"unknown key id":         {jwt.SigningMethodRS256, k.rsa, "unknown", false},
		"key id is a number":     {jwt.SigningMethodRS256, k.rsa, 7, false},
		"HS256 with public PEM":  {jwt.SigningMethodHS256, publicPEM, "rsa", false},
		"HS256 with modulus":     {jwt.SigningMethodHS256, k.rsa.N.Bytes(), "rsa", false},
		"HS256 with Ed25519 key": {jwt.SigningMethodHS256, []byte(k.ed.Public().(ed25519.PublicKey)), "ed", false},
		"HS256 with published":   {jwt.SigningMethodHS256, octet, "oct", false},
		"HS256 with no id":       {jwt.SigningMethodHS256, octet, nil, false},
		"none":                   {jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "rsa", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := map[string]any{}
			if c.kid != nil {
				header["kid"] = c.kid
			}
			token := signed(t, c.method, c.key, header, claims)
			for _, v := range []*httpapi.Verifier{v, both} {
				caller, err := v.Verify(t.Context(), token)
				refusedAsAlways(t, caller, err, c.ok)
			}
		})
	}
	t.Run("the secret, beside published keys", func(t *testing.T) {
		t.Parallel()
		token := signed(t, jwt.SigningMethodHS256, []byte(secret), map[string]any{"kid": "rsa"}, claims)
		caller, err := both.Verify(t.Context(), token)
		refusedAsAlways(t, caller, err, true)
		caller, err = v.Verify(t.Context(), token)
		refusedAsAlways(t, caller, err, false)
	})
}

// A key that is published later is found; made-up key ids do not make us ask for ever.
func TestKeysAreRefreshed(t *testing.T) {
	t.Parallel()
	k := keys()
	i := newIssuer(t, jwk("old", k.p384.Public()))
	v := verifier(t, httpapi.TokenConfig{JWKSURL: i.url})
	claims := jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(time.Minute).Unix()}
	i.publish(jwk("new", k.p256.Public()))
	caller, err := v.Verify(t.Context(), signed(t, jwt.SigningMethodES256, k.p256, map[string]any{"kid": "new"}, claims))
	refusedAsAlways(t, caller, err, true)
	caller, err = v.Verify(t.Context(), signed(t, jwt.SigningMethodES384, k.p384, map[string]any{"kid": "old"}, claims))
	refusedAsAlways(t, caller, err, false)

	asked := i.gets.Load()
	madeUp := signed(t, jwt.SigningMethodES256, k.p256, map[string]any{"kid": "made up"}, claims)
	for range 100 {
		caller, err := v.Verify(t.Context(), madeUp)
		refusedAsAlways(t, caller, err, false)
	}
	if n := i.gets.Load() - asked; n > 2 { // one each 30 s
		t.Errorf("made-up key ids asked %d times", n)
	}
}

// While no key could be had, tokens cannot be judged: that is no reason to log people
// out.
func TestNoKeysYet(t *testing.T) {
	t.Parallel()
	k := keys()
	i := newIssuer(t)
	l := &logs{}
	v := verifier(t, httpapi.TokenConfig{JWKSURL: i.url, Log: logger(l)})
	for _, kid := range []map[string]any{{"kid": "p256"}, nil} {
		token := signed(t, jwt.SigningMethodES256, k.p256, kid, jwt.MapClaims{"sub": "ann", "exp": 9999999999})
		if _, err := v.Verify(t.Context(), token); models.ErrorCode(err) != models.CodeStoreUnavailable {
			t.Errorf("%v", err)
		}
	}
	if !strings.Contains(l.String(), "could not be fetched") {
		t.Errorf("log: %s", l)
	}
}

func TestTokenConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]httpapi.TokenConfig{
		"nothing":      {},
		"31 bytes":     {Secret: []byte(secret[:31])},
		"plain http":   {JWKSURL: "http://issuer.example.com/keys"},
		"file":         {JWKSURL: "file:///etc/passwd"},
		"no host":      {JWKSURL: "https://"},
		"not a URL":    {JWKSURL: "\x00"},
		"short beside": {JWKSURL: "https://issuer.example.com/keys", Secret: []byte("short")},
	} {
		if _, err := httpapi.NewVerifier(t.Context(), c); err == nil || strings.Contains(err.Error(), secret[:31]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever is taken was signed with the secret by HS256, and says who it is.
func FuzzVerify(f *testing.F) {
	good := raw(hs256, `{"sub":"ann",`+never+`}`)
	f.Add(good)
	f.Add("")
	f.Add("..")
	f.Add(loosen(good))
	f.Add(strings.Replace(good, ".", ".\n", 2))
	f.Add(raw(hs256, `{"sub":"ann","berth":{"collection":"c","max_files":1},`+never+`}`))
	f.Add(raw(`{"alg":"none"}`, `{"sub":"ann",`+never+`}`))
	f.Add(strings.Repeat("a.", 5000))
	v := verifier(f, httpapi.TokenConfig{Secret: []byte(secret)})
	f.Fuzz(func(t *testing.T, token string) {
		caller, err := v.Verify(context.Background(), token)
		if err != nil {
			refusedAsAlways(t, caller, err, false)
			return
		}
		i := strings.LastIndexByte(token, '.')
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte(token[:i]))
		if token[i+1:] != base64.RawURLEncoding.EncodeToString(h.Sum(nil)) || caller.Owner == "" || caller.Tenant == "" {
			t.Fatalf("took %q as %+v", token, caller)
		}
	})
}

// What a signed payload says is taken or refused, and never too much: the bounds hold
// whatever it holds.
func FuzzClaims(f *testing.F) {
	for _, s := range []string{
		`{"sub":"ann",` + never + `}`, `{"sub":"ann","tenant":"t","scope":["read"],"berth":{"collection":"c","max_files":1},` + never + `}`,
		`{"sub":1}`, `{"exp":1e999}`, `[]`, `null`, `{"scope":{}}`, `{"sub":"ann","aud":[1],` + never + `}`,
	} {
		f.Add([]byte(s))
	}
	v := verifier(f, httpapi.TokenConfig{Secret: []byte(secret)})
	f.Fuzz(func(t *testing.T, payload []byte) {
		caller, err := v.Verify(context.Background(), raw(hs256, string(payload)))
		if err != nil {
			refusedAsAlways(t, caller, err, false)
			return
		}
		if caller.Owner == "" || len(caller.Owner) > 255 || caller.Tenant == "" || len(caller.Tenant) > 128 ||
			strings.ContainsRune(string(caller.Owner)+string(caller.Tenant), 0) || len(caller.Scopes) > 4 {
			t.Fatalf("took %q as %+v", payload, caller)
		}
		if g := caller.Grant; g != nil && (g.MaxBytes < 0 || g.MaxFiles < 0 || (g.MaxFiles > 0 && g.ID == "") || g.Expires.IsZero()) {
			t.Fatalf("took the grant %+v of %q", g, payload)
		}
	})
}

// A grant is what the claim says or the token is refused: no member is passed over, none
// reads as less narrow than it was written, and a token with the claim is never one without.
func FuzzGrants(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"collection":"c","max_bytes":1,"content_types":["Image/*"],"max_files":2,"upload":"` + someUpload + `","id":"i"}`,
		`{"max_files":1}`, `{"max_bytes":0}`, `{"max_bytes":9223372036854775807}`, `{"max_bytes":9223372036854775808}`, `{"max_bytes":1e2}`,
		`{"content_types":[]}`, `{"content_types":[""]}`, `{"content_types":["*/*"]}`, `{"content_types":[null]}`, `{"collection":null}`,
		`{"Collection":"c"}`, `{"collection":"a","collection":"b"}`, `{"collection":"\u0000"}`, `{"co\u006clection":"c"}`, `{"upload":"upl_"}`,
		`null`, `[]`, `"c"`, `0`, `{"x":{"berth":{}}}`, `{},"berth":{}`, `{"collection":"c "}`, `{"max_files":-1}`,
	} {
		f.Add(s)
	}
	v := verifier(f, httpapi.TokenConfig{Secret: []byte(secret)})
	f.Fuzz(func(t *testing.T, claim string) {
		caller, err := v.Verify(context.Background(), raw(hs256, `{"sub":"ann","scope":"read","berth":`+claim+`,`+never+`}`))
		if err != nil {
			refusedAsAlways(t, caller, err, false)
			return
		}
		g := caller.Grant
		if g == nil {
			t.Fatalf("%q is no grant", claim)
		}
		var said map[string]any
		d := json.NewDecoder(strings.NewReader(claim))
		d.UseNumber()
		if err := d.Decode(&said); err != nil || said == nil || d.More() {
			t.Fatalf("took %q: %v", claim, err)
		}
		for name, value := range said {
			var took any
			switch name {
			case "collection":
				took = g.Collection
			case "upload":
				took = string(g.Upload)
			case "id":
				took = g.ID
			case "max_bytes":
				took = json.Number(strconv.FormatInt(g.MaxBytes, 10))
			case "max_files":
				took = json.Number(strconv.FormatInt(g.MaxFiles, 10))
			case "content_types":
				types := []any{}
				for _, s := range value.([]any) {
					types = append(types, strings.ToLower(s.(string)))
				}
				kept := []any{}
				for _, s := range g.ContentTypes {
					kept = append(kept, s)
				}
				if took, value = kept, types; len(kept) == 0 {
					t.Fatalf("%q takes any type", claim)
				}
			default:
				t.Fatalf("%q: %q was passed over", claim, name)
			}
			if !reflect.DeepEqual(took, value) || took == "" || took == json.Number("0") {
				t.Fatalf("%q: %s became %v", claim, name, took)
			}
		}
		if g.MaxFiles > 0 && g.ID == "" || g.Derive != nil {
			t.Fatalf("%q became %+v", claim, g)
		}
	})
}
