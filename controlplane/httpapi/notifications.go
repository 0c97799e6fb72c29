package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"berth/models"

	"github.com/gin-gonic/gin"
)

// hashTokens keeps the stores' tokens as hashes of one length, so that a comparison
// takes the same time whatever is compared.
func hashTokens(tokens map[models.StoreName]string) map[models.StoreName][32]byte {
	out := make(map[models.StoreName][32]byte, len(tokens))
	for store, token := range tokens {
		if token != "" {
			out[store] = sha256.Sum256([]byte(token))
		}
	}
	return out
}

// storeToken is what a store shows: a bearer token, or the password of Basic, since
// some stores can only be given a URL.
func storeToken(r *http.Request) string {
	if token, ok := bearer(r); ok {
		return token
	}
	if len(r.Header.Values("Authorization")) == 1 {
		if _, password, ok := r.BasicAuth(); ok {
			return password
		}
	}
	return ""
}

// notify takes a store's webhook. It answers 2xx only when the work is committed, so
// that the store sends again what was lost. An unknown store and a wrong token get
// the same answer after the same comparison.
func (a *API) notify(c *gin.Context) {
	store := models.StoreName(c.Param("store"))
	want, known := a.tokens[store]
	got := sha256.Sum256([]byte(storeToken(c.Request)))
	equal := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	if !known || !equal || a.Notify == nil {
		fail(c, errUnauthenticated)
		return
	}
	b, err := readBody(c, notificationBody)
	if err != nil {
		fail(c, err)
		return
	}
	if err := a.Notify(c.Request.Context(), store, b); err != nil {
		if models.ErrorCode(err) != models.CodeInvalidRequest {
			err = models.Errorf(models.CodeStoreUnavailable, "the notification could not be worked off; send it again").Because(err)
		}
		fail(c, err)
		return
	}
	writeBytes(c, http.StatusOK, jsonType, []byte("{}\n"))
}
