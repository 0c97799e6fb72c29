package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/models"

	"github.com/gin-gonic/gin"
)

// UppyCookie is the cookie that /uppy/s3/* takes a token from. The application that
// shares our origin sets it, with HttpOnly, SameSite=Strict, Secure and Path=/uppy.
const UppyCookie = "berth_token"

// maxGrantLife is how long a token may still be good that is taken from a path: paths
// are written down in places that nobody guards.
const maxGrantLife = 24 * time.Hour

// uppyCaller takes a bearer token, or a cookie. With a cookie the browser decides who
// asks, so the request must come from a page of our own origin.
func (a *API) uppyCaller(c *gin.Context) {
	if len(c.Request.Header.Values("Authorization")) > 0 {
		a.authenticate(c)
		return
	}
	cookies := c.Request.CookiesNamed(UppyCookie)
	if len(cookies) != 1 { // of two, who can say which is the application's
		fail(c, errUnauthenticated)
		return
	}
	if !sameOrigin(c.Request) {
		fail(c, models.Errorf(models.CodeForbidden, "a cookie is taken from pages of this origin only; pages elsewhere need a grant in the path"))
		return
	}
	if a.verified(c, cookies[0].Value) {
		c.Next()
	}
}

// uppyGrant takes a grant from the path: no header and no cookie counts here.
func (a *API) uppyGrant(c *gin.Context) {
	if !a.verified(c, c.Param("grant")) {
		return
	}
	switch g := exchangeOf(c).caller.Grant; {
	case g == nil:
		fail(c, models.Errorf(models.CodeForbidden, "a token in a path must be narrowed by a grant, the claim berth"))
	case g.Expires.Sub(a.Now()) > maxGrantLife+time.Minute:
		fail(c, models.Errorf(models.CodeForbidden, "a token in a path may be good for %s at most", maxGrantLife))
	default:
		c.Next()
	}
}

// sameOrigin tells whether a browser says that a page of our own origin asks. It cannot
// be made to say otherwise by a page. Those that send no Sec-Fetch-Site (old ones, and
// all of them over plain HTTP to another machine) must send our own Origin, which they
// do not for GET: over plain HTTP the cookie is of no use, as it should be.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}
