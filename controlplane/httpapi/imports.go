package httpapi

import (
	"net/http"

	"berth/client/wire"
	"berth/controlplane"
	"berth/models"

	"github.com/gin-gonic/gin"
)

var importShape = shapeOf[wire.ImportRequest]()

func (a *API) importObject(c *gin.Context) {
	w, _, err := body[wire.ImportRequest](c, a.MaxBody, importShape, "key", "owner", "collection", "name")
	var req controlplane.ImportRequest
	if err == nil {
		req, err = importRequest(w)
	}
	if err != nil {
		fail(c, err)
		return
	}
	f, before, err := a.Service.Import(c.Request.Context(), exchangeOf(c).caller, req)
	if err != nil {
		fail(c, err)
		return
	}
	status := http.StatusCreated
	if before {
		status = http.StatusOK
	}
	c.Header("Location", "/v1/files/"+string(f.ID))
	writeJSON(c, status, wireFile(f))
}

func importRequest(w wire.ImportRequest) (req controlplane.ImportRequest, err error) {
	if !printable(w.Owner, maxOwner) { // as a token's sub
		return req, invalid("owner", "must be 1 to %d bytes of plain text", maxOwner)
	}
	sum, err := checksumOf(w.Checksum)
	if err != nil {
		return req, err
	}
	return controlplane.ImportRequest{
		Store: models.StoreName(w.Store), Key: w.Key, VersionID: w.VersionID, Owner: models.Owner(w.Owner), Collection: w.Collection,
		Name: w.Name, ContentType: w.ContentType, Metadata: present(w.Metadata), Size: w.Size, Checksum: sum,
	}, nil
}
