package httpapi

import (
	"net/http"
	"strings"
	"unicode"

	"berth/client/wire"
	"berth/controlplane"
	"berth/models"

	"github.com/gin-gonic/gin"
)

var (
	patchShape = shapeOf[wire.PatchRequest]()
	blockShape = shapeOf[wire.BlockRequest]()
)

// maxReason bounds the reason of a block, in bytes.
const maxReason = 500

func answerFile(c *gin.Context, status int, f models.File, err error) {
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, status, wireFile(f))
}

// onFile is a use case that takes a file's id and nothing else.
func (a *API) onFile(c *gin.Context, status int, do func(models.FileID) (models.File, error)) {
	id, err := models.ParseFileID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	f, err := do(id)
	answerFile(c, status, f, err)
}

func (a *API) listFiles(c *gin.Context) {
	q, err := fileQuery(c.Request)
	if err != nil {
		fail(c, err)
		return
	}
	p, err := a.Service.Files(c.Request.Context(), exchangeOf(c).caller, q)
	if err != nil {
		fail(c, err)
		return
	}
	out := wire.FileList{Files: make([]wire.File, len(p.Files)), NextCursor: p.NextCursor}
	for i, f := range p.Files {
		out.Files[i] = wireFile(f)
	}
	writeJSON(c, http.StatusOK, out)
}

func fileQuery(r *http.Request) (out controlplane.FileQuery, err error) {
	q, err := query(r, "collection", "state", "all", "cursor", "limit")
	if err != nil {
		return out, err
	}
	out.Collection, out.State = q["collection"], models.FileState(q["state"])
	if _, known := models.Files.Next[out.State]; out.State != "" && !known {
		return out, invalid("state", "%.40q is not a state of a file", q["state"])
	}
	switch q["all"] {
	case "", "false":
	case "true":
		out.All = true
	default:
		return out, invalid("all", "is true or false")
	}
	out.Cursor, out.Limit, err = page(q)
	return out, err
}

func (a *API) showFile(c *gin.Context) {
	a.onFile(c, http.StatusOK, func(id models.FileID) (models.File, error) {
		return a.Service.File(c.Request.Context(), exchangeOf(c).caller, id)
	})
}

func (a *API) fileHistory(c *gin.Context) {
	id, err := models.ParseFileID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	q, err := query(c.Request, "cursor", "limit")
	if err != nil {
		fail(c, err)
		return
	}
	cursor, limit, err := page(q)
	if err != nil {
		fail(c, err)
		return
	}
	p, err := a.Service.History(c.Request.Context(), exchangeOf(c).caller, id, cursor, limit)
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, wireHistory(p))
}

// fileContent redirects to the presigned GET. HEAD is refused: the URL is signed for
// GET, and who followed the redirect with HEAD would be refused by S3, obscurely.
func (a *API) fileContent(c *gin.Context) {
	if isHead(c.Request) {
		c.Header("Allow", "GET, OPTIONS")
		e := models.Errorf(models.CodeInvalidRequest, "the content's URL is signed for GET only; ask for the file instead")
		failWith(c, http.StatusMethodNotAllowed, e, e)
		return
	}
	u, err := a.contentURL(c)
	if err != nil {
		fail(c, err)
		return
	}
	h := c.Writer.Header()
	h.Set("Location", u.URL)
	h.Set("Content-Length", "0")
	c.Writer.WriteHeader(http.StatusFound)
	c.Writer.WriteHeaderNow()
}

func (a *API) fileURL(c *gin.Context) {
	u, err := a.contentURL(c)
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, wireContent(u))
}

func (a *API) contentURL(c *gin.Context) (controlplane.ReadURL, error) {
	id, err := models.ParseFileID(c.Param("id"))
	if err != nil {
		return controlplane.ReadURL{}, err
	}
	return a.Service.ContentURL(c.Request.Context(), exchangeOf(c).caller, id)
}

func (a *API) patchFile(c *gin.Context) {
	a.onFile(c, http.StatusOK, func(id models.FileID) (f models.File, err error) {
		w, raw, err := body[wire.PatchRequest](c, a.MaxBody, patchShape)
		if err != nil {
			return f, err
		}
		req := controlplane.PatchRequest{Name: w.Name, Metadata: present(w.Metadata)}
		if len(raw) == 0 || (req.Name == nil && req.Metadata == nil) {
			return f, models.Errorf(models.CodeInvalidRequest, "the body must hold name, metadata or both")
		}
		return a.Service.Patch(c.Request.Context(), exchangeOf(c).caller, id, req)
	})
}

func (a *API) deleteFile(c *gin.Context) {
	a.onFile(c, http.StatusAccepted, func(id models.FileID) (models.File, error) {
		return a.Service.Delete(c.Request.Context(), exchangeOf(c).caller, id)
	})
}

func (a *API) blockFile(c *gin.Context) {
	a.onFile(c, http.StatusOK, func(id models.FileID) (f models.File, err error) {
		w, _, err := body[wire.BlockRequest](c, a.MaxBody, blockShape)
		if err != nil {
			return f, err
		}
		if len(w.Reason) > maxReason || strings.ContainsFunc(w.Reason, unicode.IsControl) {
			return f, invalid("reason", "must be at most %d bytes, without control characters", maxReason)
		}
		return a.Service.Block(c.Request.Context(), exchangeOf(c).caller, id, w.Reason)
	})
}

func (a *API) unblockFile(c *gin.Context) {
	a.onFile(c, http.StatusOK, func(id models.FileID) (models.File, error) {
		return a.Service.Unblock(c.Request.Context(), exchangeOf(c).caller, id)
	})
}
