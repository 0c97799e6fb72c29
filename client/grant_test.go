package client

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/models"

	"github.com/golang-jwt/jwt/v5"
)

func TestGrantIsSignedWithAnyKey(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]any{"HS256": []byte(strings.Repeat("k", 32)), "RS256": rsaKey, "EdDSA": edKey}
	for alg, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		if keys[alg], err = ecdsa.GenerateKey(curve, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1_800_000_000, 0)
	g := Grant{Owner: "ann", Tenant: "t", Lifetime: time.Minute, Collection: "c", MaxBytes: 1, ContentTypes: []string{"a/b"},
		MaxFiles: 2, Upload: "upl_1", ID: "i", Issuer: "us", Audience: "berth", KeyID: "k1"}
	for alg, key := range keys {
		signed, err := g.sign(key, now)
		if err != nil {
			t.Fatalf("%s: %v", alg, err)
		}
		public := key
		if k, ok := key.(interface{ Public() crypto.PublicKey }); ok {
			public = k.Public()
		}
		var claims jwt.MapClaims
		parsed, err := jwt.ParseWithClaims(signed, &claims, func(*jwt.Token) (any, error) { return public, nil },
			jwt.WithValidMethods([]string{alg}), jwt.WithTimeFunc(func() time.Time { return now }))
		if err != nil || parsed.Header["kid"] != "k1" {
			t.Fatalf("%s: %v, %v", alg, parsed.Header, err)
		}
		got, err := json.Marshal(claims)
		const want = `{"aud":["berth"],"berth":{"collection":"c","content_types":["a/b"],"id":"i","max_bytes":1,"max_files":2,"upload":"upl_1"},` +
			`"exp":1800000060,"iat":1800000000,"iss":"us","scope":"upload","sub":"ann","tenant":"t"}`
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", alg, got, err)
		}
	}
}

func TestGrantThatWouldNotDo(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("k", 32))
	good := Grant{Owner: "ann", Lifetime: time.Minute}
	for name, change := range map[string]func(*Grant){
		"no owner": func(g *Grant) { g.Owner = "" }, "no life": func(g *Grant) { g.Lifetime = 0 }, "past": func(g *Grant) { g.Lifetime = -1 },
		"bytes": func(g *Grant) { g.MaxBytes = -1 }, "files": func(g *Grant) { g.MaxFiles = -1 }, "type": func(g *Grant) { g.ContentTypes = []string{"pdf"} },
	} {
		g := good
		change(&g)
		if s, err := g.Sign(secret); err == nil || s != "" {
			t.Errorf("%s: signed", name)
		}
	}
	for _, key := range []any{nil, "a string", secret[:31], 7, ed25519.PrivateKey("short")} {
		if s, err := good.Sign(key); err == nil || s != "" || strings.Contains(err.Error(), "kkkk") {
			t.Errorf("%T signs: %v", key, err)
		}
	}
}

func TestTokensOfAGrant(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("k", 32))
	claims := func(source TokenSource, refresh bool) (string, map[string]any) {
		s, err := source(t.Context(), refresh)
		if err != nil {
			t.Fatal(err)
		}
		var c jwt.MapClaims
		if _, _, err := jwt.NewParser().ParseUnverified(s, &c); err != nil {
			t.Fatal(err)
		}
		return s, c["berth"].(map[string]any)
	}
	source := Grant{Owner: "ann", Lifetime: time.Hour, MaxFiles: 1, Scopes: []models.Scope{models.ScopeRead}}.Tokens(secret)
	first, a := claims(source, false)
	again, _ := claims(source, false)
	_, b := claims(source, true)
	if first != again || a["id"] == "" || !reflect.DeepEqual(a, b) {
		t.Errorf("counted by %v and %v", a, b)
	}
	short := Grant{Owner: "ann", Lifetime: time.Nanosecond, MaxFiles: 1}.Tokens(secret)
	if _, c := claims(short, false); c["id"] == a["id"] {
		t.Error("two grants are counted as one")
	}
	if _, err := (Grant{}).Tokens(secret)(t.Context(), false); err == nil {
		t.Error("a grant of nobody's was signed")
	}
}
