package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/models"

	"github.com/golang-jwt/jwt/v5"
)

// Grant is a token that an application hands to one of its users: who it is, what it may
// do, and what narrows that. Collection and Upload narrow everything it reaches; MaxBytes
// and ContentTypes what may be sent; MaxFiles how many uploads it may open. The server
// enforces all of it; a zero value narrows nothing, so what is used up needs no grant at all.
type Grant struct {
	Owner    string
	Tenant   string         // "" is the default one
	Scopes   []models.Scope // none is upload alone
	Lifetime time.Duration  // as short as the work takes; in a path (Uppy) at most 24 h

	Collection   string
	MaxBytes     int64    // of one file
	ContentTypes []string // "image/*" is a family
	MaxFiles     int64
	Upload       string // only this one
	// ID is what MaxFiles is counted by. A renewal with the same ID goes on counting; "" makes
	// a new one for each token.
	ID string

	// What the server's configuration wants of all tokens.
	Issuer, Audience string
	KeyID            string // of a published key
}

type grantClaim struct {
	ID           string   `json:"id,omitempty"`
	Collection   string   `json:"collection,omitempty"`
	MaxBytes     int64    `json:"max_bytes,omitempty"`
	ContentTypes []string `json:"content_types,omitempty"`
	MaxFiles     int64    `json:"max_files,omitempty"`
	Upload       string   `json:"upload,omitempty"`
}

type grantClaims struct {
	jwt.RegisteredClaims
	Tenant string     `json:"tenant,omitempty"`
	Scope  string     `json:"scope"`
	Berth  grantClaim `json:"berth"`
}

// Sign makes the token with the application's own key, which the server must know: the
// shared secret as []byte, at least 32 of them, or the private half of a published key
// (*rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey). The key stays here.
func (g Grant) Sign(key any) (string, error) { return g.sign(key, time.Now()) }

func (g Grant) sign(key any, now time.Time) (string, error) {
	switch {
	case g.Owner == "":
		return "", errors.New("grant: it needs an owner")
	case g.Lifetime <= 0:
		return "", errors.New("grant: it needs a lifetime")
	case g.MaxBytes < 0 || g.MaxFiles < 0:
		return "", errors.New("grant: a limit is negative")
	}
	for _, t := range g.ContentTypes {
		if !strings.Contains(t, "/") {
			return "", fmt.Errorf("grant: %.60q is not a content type", t)
		}
	}
	scopes := []string{}
	for _, s := range g.Scopes {
		scopes = append(scopes, string(s))
	}
	if len(scopes) == 0 {
		scopes = append(scopes, string(models.ScopeUpload))
	}
	if g.ID == "" && g.MaxFiles > 0 {
		g.ID = rand.Text()
	}
	c := grantClaims{
		RegisteredClaims: jwt.RegisteredClaims{Subject: g.Owner, Issuer: g.Issuer, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(g.Lifetime))},
		Tenant:           g.Tenant,
		Scope:            strings.Join(scopes, " "),
		Berth: grantClaim{ID: g.ID, Collection: g.Collection, MaxBytes: g.MaxBytes, ContentTypes: g.ContentTypes,
			MaxFiles: g.MaxFiles, Upload: g.Upload},
	}
	if g.Audience != "" {
		c.Audience = jwt.ClaimStrings{g.Audience}
	}
	method, err := methodOf(key)
	if err != nil {
		return "", err
	}
	t := jwt.NewWithClaims(method, c)
	if g.KeyID != "" {
		t.Header["kid"] = g.KeyID
	}
	signed, err := t.SignedString(key)
	if err != nil {
		return "", errors.New("grant: the key does not sign") // a cause could quote it
	}
	return signed, nil
}

func methodOf(key any) (jwt.SigningMethod, error) {
	switch k := key.(type) {
	case []byte:
		if len(k) < 32 {
			return nil, errors.New("grant: the secret has fewer than 32 bytes")
		}
		return jwt.SigningMethodHS256, nil
	case *rsa.PrivateKey:
		return jwt.SigningMethodRS256, nil
	case ed25519.PrivateKey:
		if len(k) == ed25519.PrivateKeySize {
			return jwt.SigningMethodEdDSA, nil
		}
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return jwt.SigningMethodES256, nil
		case 384:
			return jwt.SigningMethodES384, nil
		case 521:
			return jwt.SigningMethodES512, nil
		}
	}
	return nil, fmt.Errorf("grant: a key of type %T signs no token", key)
}

// Tokens is a TokenSource of this grant for an application that acts for its user itself:
// each token serves for half of its life, and all are counted as one.
func (g Grant) Tokens(key any) TokenSource {
	if g.ID == "" && g.MaxFiles > 0 {
		g.ID = rand.Text()
	}
	var mu sync.Mutex
	var token string
	var until time.Time
	return func(_ context.Context, refresh bool) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if token != "" && !refresh && now.Before(until) {
			return token, nil
		}
		fresh, err := g.sign(key, now)
		if err != nil {
			return "", err
		}
		token, until = fresh, now.Add(g.Lifetime/2)
		return token, nil
	}
}
