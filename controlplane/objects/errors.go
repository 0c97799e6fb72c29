package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"berth/models"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// kinds maps the stores' error codes. Source: S3 API reference, error responses;
// XAmzContentChecksumMismatch is MinIO's and R2's word for BadDigest.
var kinds = map[string]models.ObjectErrorKind{
	"NoSuchKey":     models.ObjectAbsent,
	"NoSuchVersion": models.ObjectAbsent,

	"NoSuchUpload": models.ObjectNoUpload,

	"PreconditionFailed": models.ObjectExists,

	"ConditionalRequestConflict": models.ObjectConflict,
	"OperationAborted":           models.ObjectConflict,

	"BadDigest":                   models.ObjectBadDigest,
	"XAmzContentChecksumMismatch": models.ObjectBadDigest,
	"XAmzContentSHA256Mismatch":   models.ObjectBadDigest,

	"InvalidPart":      models.ObjectBadPart,
	"InvalidPartOrder": models.ObjectBadPart,
	"EntityTooSmall":   models.ObjectBadPart,

	"AccessDenied":          models.ObjectDenied,
	"AllAccessDisabled":     models.ObjectDenied,
	"AccountProblem":        models.ObjectDenied,
	"ExpiredToken":          models.ObjectDenied,
	"InvalidAccessKeyId":    models.ObjectDenied,
	"InvalidToken":          models.ObjectDenied,
	"RequestTimeTooSkewed":  models.ObjectDenied,
	"SignatureDoesNotMatch": models.ObjectDenied,

	// A missing bucket is a wrong configuration. It must not read as an absent object:
	// a reaper would take it for work done.
	"NoSuchBucket":   models.ObjectInvalid,
	"NotImplemented": models.ObjectInvalid, // 501 does not pass by waiting

	"InternalError":                          models.ObjectUnavailable,
	"OperationTimedOut":                      models.ObjectUnavailable,
	"RequestLimitExceeded":                   models.ObjectUnavailable,
	"RequestTimeout":                         models.ObjectUnavailable, // 400: the store waited for us
	"RequestThrottled":                       models.ObjectUnavailable,
	"ServiceUnavailable":                     models.ObjectUnavailable,
	"SlowDown":                               models.ObjectUnavailable,
	"Throttling":                             models.ObjectUnavailable,
	"ThrottlingException":                    models.ObjectUnavailable,
	"TooManyRequests":                        models.ObjectUnavailable,
	"TooManyRequestsException":               models.ObjectUnavailable,
	"ProvisionedThroughputExceededException": models.ObjectUnavailable,
}

// classify makes a typed error of what the SDK returned. The caller's own cancellation
// passes through: it says nothing about the store.
func classify(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	var api smithy.APIError
	var resp *smithyhttp.ResponseError
	status := 0
	if errors.As(err, &resp) && resp.Response != nil && resp.Response.Response != nil {
		status = resp.HTTPStatusCode()
	}
	if errors.As(err, &api) {
		return answer(op, api.ErrorCode(), api.ErrorMessage(), status)
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%s: %w", op, cause)
	}
	if status >= http.StatusBadRequest {
		return answer(op, http.StatusText(status), "an answer that is not S3's", status)
	}
	kind := models.ObjectUnavailable
	var params *smithy.InvalidParamsError
	var ser *smithy.SerializationError
	if errors.As(err, &params) || errors.As(err, &ser) {
		kind = models.ObjectInvalid
	}
	return &models.ObjectError{Kind: kind, Op: op, Code: "none", Err: withoutURL(err)}
}

// answer classifies a code and a status, as a response or a member of a batch has them.
func answer(op, code, message string, status int) *models.ObjectError {
	kind, known := kinds[code]
	if !known {
		kind = kindOfStatus(op, status)
	}
	if lockable[code] && saysLocked(message) {
		kind = models.ObjectLocked
	}
	return &models.ObjectError{Kind: kind, Op: op, Code: code, Err: errors.New(shorten(message))}
}

// kindOfStatus judges an answer whose code says nothing. Only of a HEAD, which has no
// body, does the status alone mean that the object is not there: a 404 of something in
// between must not read as work done.
func kindOfStatus(op string, status int) models.ObjectErrorKind {
	switch {
	case op == opHead && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed): // 405: a delete marker by its version id
		return models.ObjectAbsent
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return models.ObjectDenied
	case status == http.StatusPreconditionFailed:
		return models.ObjectExists
	case status == http.StatusConflict:
		return models.ObjectConflict
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return models.ObjectUnavailable
	case status == http.StatusNotImplemented:
		return models.ObjectInvalid
	case status >= http.StatusInternalServerError, status == 0:
		return models.ObjectUnavailable
	}
	return models.ObjectInvalid
}

// opHead is the operation whose errors have no body.
const opHead = "HeadObject"

// lockable are the codes with which stores refuse to delete a locked version. S3 has no
// code for it, only AccessDenied with a sentence: the one place where the text is read.
var lockable = map[string]bool{"AccessDenied": true, "InvalidRequest": true, "ObjectLocked": true}

func saysLocked(message string) bool {
	m := strings.ToLower(message)
	for _, w := range []string{"object lock", "objectlock", "legal hold", "worm protected"} {
		if strings.Contains(m, w) {
			return true
		}
	}
	return false
}

// withoutURL takes the request's address out of a transport error and keeps its cause.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return errors.New(shorten(err.Error()))
}

// shorten bounds a foreign text, and withholds one that holds an address: it might be
// signed.
func shorten(s string) string {
	const most = 300
	if s == "" {
		return "no message"
	}
	if strings.Contains(s, "://") || strings.Contains(s, "X-Amz-") {
		return "a message with an address in it, withheld"
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// invalid refuses what the caller asks, before any call.
func invalid(op, format string, args ...any) *models.ObjectError {
	return &models.ObjectError{Kind: models.ObjectInvalid, Op: op, Code: "none", Err: fmt.Errorf(format, args...)}
}
