package httpapi

import (
	"net/http"
	"strings"

	"berth/models"

	"github.com/gin-gonic/gin"
)

// uppyProblem is an error as Companion writes it. Uppy 5 shows the message, Uppy 6 the
// text of the status.
type uppyProblem struct {
	Error     models.Code `json:"error"`
	Message   string      `json:"message"`
	RequestID string      `json:"requestId"`
}

// speaksUppy tells whether errors go out in Companion's form.
func speaksUppy(c *gin.Context) bool { return strings.HasPrefix(c.Request.URL.Path, "/uppy/") }

// uppyStatus is the status of a code for Companion's clients, to whom 4xx is final: what
// passes by itself is a 503.
func uppyStatus(code models.Code, status int) int {
	if status < http.StatusInternalServerError && retryAfter[code] != "" && status != http.StatusTooManyRequests {
		return http.StatusServiceUnavailable
	}
	return status
}

func writeUppyProblem(c *gin.Context, e *models.Error, status int, requestID string) {
	message := e.Message
	if message == "" {
		message = statuses[e.Code].title
	}
	writeBytes(c, uppyStatus(e.Code, status), jsonType, append(mustMarshal(uppyProblem{e.Code, message, requestID}), '\n'))
}
