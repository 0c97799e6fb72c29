package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"net/http"
	"time"

	"berth/models"

	"github.com/gin-gonic/gin"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI is the OpenAPI 3.1 document of everything that is served.
func OpenAPI() []byte { return openAPI }

func (a *API) openapi(c *gin.Context) {
	c.Header("Cache-Control", "no-cache")
	c.Header("Access-Control-Allow-Origin", "*")
	writeBytes(c, http.StatusOK, jsonType, openAPI)
}

// health says that the process is up.
func (a *API) health(c *gin.Context) {
	writeBytes(c, http.StatusOK, jsonType, []byte(`{"status":"ok"}`+"\n"))
}

// ErrStopping is why a process that ends is not ready.
var ErrStopping = errors.New("stopping")

const readyTime = 5 * time.Second

// ready says whether requests can be served; why not is for the log.
func (a *API) ready(c *gin.Context) {
	if a.Ready != nil {
		ctx, cancel := context.WithTimeout(c.Request.Context(), readyTime)
		defer cancel()
		if err := a.Ready(ctx); err != nil {
			fail(c, models.Errorf(models.CodeStoreUnavailable, "not ready").Because(err))
			return
		}
	}
	writeBytes(c, http.StatusOK, jsonType, []byte(`{"status":"ready"}`+"\n"))
}
