package httpapi

import (
	"net/http"
	"strings"

	"berth/models"
)

// statuses gives every public code its HTTP status and its title. It is the only
// place in which a code meets a status.
var statuses = map[models.Code]struct {
	status int
	title  string
}{
	models.CodeInvalidRequest:        {http.StatusBadRequest, "The request is not valid"},
	models.CodeMetadataInvalid:       {http.StatusBadRequest, "The metadata are not valid"},
	models.CodeUnauthenticated:       {http.StatusUnauthorized, "A valid token is needed"},
	models.CodeForbidden:             {http.StatusForbidden, "The token does not allow this"},
	models.CodeNotFound:              {http.StatusNotFound, "There is no such thing"},
	models.CodeNotReady:              {http.StatusConflict, "Not readable"},
	models.CodeSessionClosed:         {http.StatusConflict, "The upload is closed"},
	models.CodeSessionExpired:        {http.StatusGone, "The upload has expired"},
	models.CodeSessionNotCompleted:   {http.StatusConflict, "The upload is not completed"},
	models.CodePartConflict:          {http.StatusConflict, "The part is pinned to another checksum"},
	models.CodePartOutOfRange:        {http.StatusBadRequest, "There is no such part number"},
	models.CodeMissingParts:          {http.StatusConflict, "Parts are missing"},
	models.CodePartCorrupt:           {http.StatusConflict, "Parts are corrupt"},
	models.CodeSizeMismatch:          {http.StatusConflict, "The size differs"},
	models.CodeChecksumMismatch:      {http.StatusConflict, "The checksum differs"},
	models.CodeDigestMismatch:        {http.StatusConflict, "The digests differ"},
	models.CodeDuplicateFile:         {http.StatusConflict, "The file exists already"},
	models.CodeQuotaExceeded:         {http.StatusConflict, "The quota is used up"},
	models.CodeTooLarge:              {http.StatusRequestEntityTooLarge, "Too large"},
	models.CodeTypeNotAllowed:        {http.StatusUnsupportedMediaType, "The type is not allowed"},
	models.CodeIdempotencyConflict:   {http.StatusUnprocessableEntity, "The idempotency key was used for another request"},
	models.CodeIdempotencyInProgress: {http.StatusConflict, "The first request of this idempotency key still runs"},
	models.CodeLastReplica:           {http.StatusConflict, "The last replica stays"},
	models.CodeBusy:                  {http.StatusConflict, "Busy"},
	models.CodeBlobCorrupt:           {http.StatusBadGateway, "The stored object is not the one recorded"},
	models.CodeRateLimited:           {http.StatusTooManyRequests, "Too many requests"},
	models.CodeStoreUnavailable:      {http.StatusServiceUnavailable, "Not available at the moment"},
	models.CodeInternal:              {http.StatusInternalServerError, "Internal error"},
}

// retryAfter are the codes after which the same request may succeed soon, with the
// seconds to wait.
var retryAfter = map[models.Code]string{
	models.CodeIdempotencyInProgress: "1",
	models.CodeBusy:                  "1",
	models.CodeRateLimited:           "1",
	models.CodeStoreUnavailable:      "2",
}

// problemType is the RFC 9457 type of a code: a name, not a place to fetch.
func problemType(c models.Code) string {
	return "urn:berth:problem:" + strings.ReplaceAll(strings.ToLower(string(c)), "_", "-")
}
