package events

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of the Standard Webhooks specification.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// secretPrefix marks a secret whose rest is base64 of the key.
const secretPrefix = "whsec_"

// signingKey is the key that a secret stands for: base64 behind whsec_, or else its bytes.
func signingKey(secret string) ([]byte, error) {
	rest, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return []byte(secret), nil
	}
	key, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return nil, errors.New("events: the secret behind whsec_ is not base64")
	}
	return key, nil
}

// signature is that of the Standard Webhooks specification, version 1: the base64 of
// HMAC-SHA256 over `id.timestamp.body`, behind "v1,".
func signature(key []byte, id string, at time.Time, body []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// sign puts the three headers on a request.
func sign(h http.Header, secret, id string, at time.Time, body []byte) error {
	key, err := signingKey(secret)
	if err != nil {
		return err
	}
	h.Set(headerID, id)
	h.Set(headerTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(headerSignature, signature(key, id, at, body))
	return nil
}

// tolerance is how far a timestamp may be from now.
const tolerance = 5 * time.Minute

// VerifySignature checks a webhook as its receiver does: any of the signatures listed may
// be the right one, and the timestamp must be near now. For receivers written in Go, and
// for tests.
func VerifySignature(h http.Header, secret string, body []byte, now time.Time) error {
	key, err := signingKey(secret)
	if err != nil {
		return err
	}
	sec, err := strconv.ParseInt(h.Get(headerTimestamp), 10, 64)
	if err != nil {
		return errors.New("events: the webhook has no timestamp")
	}
	at := time.Unix(sec, 0)
	if d := now.Sub(at); d > tolerance || d < -tolerance {
		return errors.New("events: the webhook's timestamp is too far from now")
	}
	want := []byte(signature(key, h.Get(headerID), at, body))
	for _, got := range strings.Fields(h.Get(headerSignature)) {
		if subtle.ConstantTimeCompare([]byte(got), want) == 1 {
			return nil
		}
	}
	return errors.New("events: the webhook's signature is not right")
}

// NewSecret makes a secret in the form that the specification recommends.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}
