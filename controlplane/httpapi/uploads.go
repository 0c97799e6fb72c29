package httpapi

import (
	"net/http"

	"berth/client/wire"
	"berth/controlplane"
	"berth/models"

	"github.com/gin-gonic/gin"
)

var (
	openShape     = shapeOf[wire.OpenRequest]()
	signShape     = shapeOf[wire.SignRequest]()
	completeShape = shapeOf[wire.CompleteRequest]()
	commitShape   = shapeOf[wire.CommitRequest]()
)

func (a *API) openUpload(c *gin.Context) {
	key, err := idempotencyKey(c.Request.Header)
	if err != nil {
		fail(c, err)
		return
	}
	w, raw, err := body[wire.OpenRequest](c, a.MaxBody, openShape, openRequired...)
	if err != nil {
		fail(c, err)
		return
	}
	req, err := openRequest(w)
	if err != nil {
		fail(c, err)
		return
	}
	if key != "" {
		req.IdempotencyKey, req.RequestHash = key, requestHash(c.Request, raw)
	}
	view, err := a.Service.Open(c.Request.Context(), exchangeOf(c).caller, req)
	if err != nil {
		fail(c, err)
		return
	}
	status := http.StatusCreated
	if view.Instant || view.Resumed {
		status = http.StatusOK
	}
	if view.Replayed {
		c.Header("Idempotency-Replayed", "true")
	}
	if view.ID != "" { // an imported file, found at once, had no upload
		c.Header("Location", "/v1/uploads/"+string(view.ID))
	}
	writeJSON(c, status, wireUpload(view))
}

var openRequired = []string{"collection", "name", "size"}

func openRequest(w wire.OpenRequest) (req controlplane.OpenRequest, err error) {
	parent := models.FileID("")
	if w.Parent != "" {
		if parent, err = models.ParseFileID(w.Parent); err != nil {
			return req, err
		}
	}
	commit := models.CommitMode(w.Commit)
	switch commit {
	case "", models.CommitAuto, models.CommitDeferred:
	default:
		return req, invalid("commit", "must be auto or deferred")
	}
	sum, err := checksumOf(w.Checksum)
	if err != nil {
		return req, err
	}
	return controlplane.OpenRequest{
		Collection: w.Collection, Name: w.Name, Size: w.Size, ContentType: w.ContentType, Checksum: sum,
		Metadata: present(w.Metadata), Commit: commit, Continue: w.Continue, Parent: parent,
	}, nil
}

func (a *API) showUpload(c *gin.Context) {
	id, err := models.ParseUploadID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	view, err := a.Service.Upload(c.Request.Context(), exchangeOf(c).caller, id)
	answerUpload(c, view, err)
}

func (a *API) abortUpload(c *gin.Context) {
	id, err := models.ParseUploadID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	view, err := a.Service.Abort(c.Request.Context(), exchangeOf(c).caller, id)
	answerUpload(c, view, err)
}

func answerUpload(c *gin.Context, view controlplane.UploadView, err error) {
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, wireUpload(view))
}

func (a *API) signParts(c *gin.Context) {
	id, err := models.ParseUploadID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	w, raw, err := body[wire.SignRequest](c, max(partsBody, a.MaxBody), signShape)
	if err == nil && len(raw) == 0 {
		err = models.Errorf(models.CodeInvalidRequest, "the request needs a JSON body")
	}
	var req controlplane.SignRequest
	if err == nil {
		req, err = signRequest(w)
	}
	if err != nil {
		fail(c, err)
		return
	}
	signed, err := a.Service.Sign(c.Request.Context(), exchangeOf(c).caller, id, req)
	if err != nil {
		fail(c, err)
		return
	}
	writeSigned(c, signed)
}

func signRequest(w wire.SignRequest) (req controlplane.SignRequest, err error) {
	ranged := w.From != 0 || w.To != 0
	switch {
	case ranged == (w.Parts != nil):
		return req, invalid("parts", "give either parts, or from and to")
	case len(w.Parts) > models.MaxParts:
		return req, invalid("parts", "lists more than %d parts", models.MaxParts)
	case w.Parts != nil && len(w.Parts) == 0:
		return req, invalid("parts", "lists no part")
	}
	req.From, req.To = w.From, w.To
	if w.Parts != nil {
		req.Parts = make([]controlplane.PartRequest, len(w.Parts))
		for i, p := range w.Parts {
			req.Parts[i] = controlplane.PartRequest{Number: p.Number, Checksum: p.Checksum}
		}
	}
	return req, nil
}

func (a *API) listParts(c *gin.Context) {
	id, err := models.ParseUploadID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	list, err := a.Service.Parts(c.Request.Context(), exchangeOf(c).caller, id)
	if err != nil {
		fail(c, err)
		return
	}
	out := wire.PartsResponse{Parts: make([]wire.Part, len(list.Parts)), Missing: list.Missing}
	for i, p := range list.Parts {
		out.Parts[i] = wire.Part{Number: p.Number, Size: p.Size, ETag: p.ETag, Checksum: p.Checksum}
	}
	if out.Missing == nil {
		out.Missing = [][2]int{}
	}
	writeJSON(c, http.StatusOK, out)
}

func (a *API) completeUpload(c *gin.Context) {
	id, err := models.ParseUploadID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	w, _, err := body[wire.CompleteRequest](c, max(partsBody, a.MaxBody), completeShape)
	var req controlplane.CompleteRequest
	if err == nil {
		req, err = completeRequest(w)
	}
	if err != nil {
		fail(c, err)
		return
	}
	view, err := a.Service.Complete(c.Request.Context(), exchangeOf(c).caller, id, req)
	exchangeOf(c).unsettled = view.State != models.UploadCompleted && view.State != models.UploadCommitted
	answerUpload(c, view, err)
}

func completeRequest(w wire.CompleteRequest) (req controlplane.CompleteRequest, err error) {
	if len(w.Parts) > models.MaxParts {
		return req, invalid("parts", "lists more than %d parts", models.MaxParts)
	}
	if req.Checksum, err = checksumOf(w.Checksum); err != nil {
		return req, err
	}
	if len(w.Parts) > 0 {
		req.Parts = make([]models.Part, len(w.Parts))
		for i, p := range w.Parts {
			req.Parts[i] = models.Part{Number: p.Number, ETag: p.ETag, Checksum: p.Checksum}
		}
	}
	return req, nil
}

func (a *API) commitUpload(c *gin.Context) {
	id, err := models.ParseUploadID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	w, _, err := body[wire.CommitRequest](c, a.MaxBody, commitShape, "name")
	if err != nil {
		fail(c, err)
		return
	}
	file, err := a.Service.Commit(c.Request.Context(), exchangeOf(c).caller, id, controlplane.CommitRequest{
		Name: w.Name, ContentType: w.ContentType, Metadata: present(w.Metadata),
	})
	answerFile(c, http.StatusOK, file, err)
}
