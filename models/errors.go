package models

import (
	"errors"
	"fmt"
)

// Code is a public error code: what a caller may act on. HTTP statuses are given
// to codes in one place, the HTTP room.
type Code string

// The codes of the public contract.
const (
	CodeInvalidRequest        Code = "INVALID_REQUEST"
	CodeMetadataInvalid       Code = "METADATA_INVALID"
	CodeUnauthenticated       Code = "UNAUTHENTICATED"
	CodeForbidden             Code = "FORBIDDEN"
	CodeNotFound              Code = "NOT_FOUND"
	CodeNotReady              Code = "NOT_READY"
	CodeSessionClosed         Code = "SESSION_CLOSED"
	CodeSessionExpired        Code = "SESSION_EXPIRED"
	CodeSessionNotCompleted   Code = "SESSION_NOT_COMPLETED"
	CodePartConflict          Code = "PART_CONFLICT"
	CodePartOutOfRange        Code = "PART_OUT_OF_RANGE"
	CodeMissingParts          Code = "MISSING_PARTS"
	CodePartCorrupt           Code = "PART_CORRUPT"
	CodeSizeMismatch          Code = "SIZE_MISMATCH"
	CodeChecksumMismatch      Code = "CHECKSUM_MISMATCH"
	CodeDigestMismatch        Code = "DIGEST_MISMATCH"
	CodeDuplicateFile         Code = "DUPLICATE_FILE"
	CodeQuotaExceeded         Code = "QUOTA_EXCEEDED"
	CodeTooLarge              Code = "TOO_LARGE"
	CodeTypeNotAllowed        Code = "TYPE_NOT_ALLOWED"
	CodeIdempotencyConflict   Code = "IDEMPOTENCY_CONFLICT"
	CodeIdempotencyInProgress Code = "IDEMPOTENCY_IN_PROGRESS"
	CodeLastReplica           Code = "LAST_REPLICA"
	CodeBusy                  Code = "BUSY"
	CodeBlobCorrupt           Code = "BLOB_CORRUPT"
	CodeRateLimited           Code = "RATE_LIMITED"
	CodeStoreUnavailable      Code = "STORE_UNAVAILABLE"
	CodeInternal              Code = "INTERNAL"
)

// Codes lists every public code, for the HTTP room's map and for tests.
var Codes = []Code{
	CodeInvalidRequest, CodeMetadataInvalid, CodeUnauthenticated, CodeForbidden, CodeNotFound, CodeNotReady,
	CodeSessionClosed, CodeSessionExpired, CodeSessionNotCompleted, CodePartConflict, CodePartOutOfRange,
	CodeMissingParts, CodePartCorrupt, CodeSizeMismatch, CodeChecksumMismatch, CodeDigestMismatch,
	CodeDuplicateFile, CodeQuotaExceeded, CodeTooLarge, CodeTypeNotAllowed, CodeIdempotencyConflict,
	CodeIdempotencyInProgress, CodeLastReplica, CodeBusy, CodeBlobCorrupt, CodeRateLimited,
	CodeStoreUnavailable, CodeInternal,
}

// Error is an error that a caller may see: a code to act on, a sentence for
// people, optional details (extension members of the problem document). Cause is
// for the log only. Every error without a code is internal.
type Error struct {
	Code    Code
	Message string
	Details map[string]any
	Cause   error
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error with a code and a sentence.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With returns a copy that carries one more detail.
func (e *Error) With(key string, value any) *Error {
	c := *e
	c.Details = make(map[string]any, len(e.Details)+1)
	for k, v := range e.Details {
		c.Details[k] = v
	}
	c.Details[key] = value
	return &c
}

// Because returns a copy that carries the cause, for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// NotFound is the one answer for what is absent and for what is another's.
func NotFound(what string) *Error {
	return Errorf(CodeNotFound, "there is no such %s", what)
}

// ErrorCode returns the code an error carries, INTERNAL if none, "" for nil.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Sentence returns what an error says to people, "" if it has no code.
func Sentence(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Message
	}
	return ""
}

// ObjectErrorKind classifies what a store answered. The adapter classifies, the
// use case decides what follows.
type ObjectErrorKind string

const (
	// ObjectAbsent: no such key, or no such version, or a delete marker.
	ObjectAbsent ObjectErrorKind = "absent"
	// ObjectNoUpload: NoSuchUpload. Ambiguous: aborted, or completed already.
	ObjectNoUpload ObjectErrorKind = "no_such_upload"
	// ObjectExists: 412, the condition failed: something lies at the key.
	ObjectExists ObjectErrorKind = "exists"
	// ObjectConflict: 409, a concurrent delete or write: begin again.
	ObjectConflict ObjectErrorKind = "conflict"
	// ObjectBadDigest: the content has another checksum than was stated.
	ObjectBadDigest ObjectErrorKind = "bad_digest"
	// ObjectBadPart: a part is missing, has another ETag or checksum, or is too small.
	ObjectBadPart ObjectErrorKind = "bad_part"
	// ObjectBadSize: the sum of the parts is not the stated object size.
	ObjectBadSize ObjectErrorKind = "bad_size"
	// ObjectDenied: credentials or policy refuse.
	ObjectDenied ObjectErrorKind = "denied"
	// ObjectLocked: object lock or legal hold protects the version.
	ObjectLocked ObjectErrorKind = "locked"
	// ObjectInvalid: the store calls the request itself wrong, or does not know it.
	ObjectInvalid ObjectErrorKind = "invalid"
	// ObjectUnavailable: throttled, 5xx, or unreachable: later it may pass.
	ObjectUnavailable ObjectErrorKind = "unavailable"
)

// ObjectError is a classified answer of a store. Its text holds no URL.
type ObjectError struct {
	Kind ObjectErrorKind
	Op   string // the S3 action, e.g. CompleteMultipartUpload
	Code string // the store's own code, e.g. NoSuchKey
	Part int    // the part number it names, 0 if none
	Err  error
}

func (e *ObjectError) Error() string {
	return fmt.Sprintf("%s: %s (%s): %v", e.Op, e.Kind, e.Code, e.Err)
}

func (e *ObjectError) Unwrap() error { return e.Err }

// ObjectKind returns the kind of a store's answer, "" if err is not one.
func ObjectKind(err error) ObjectErrorKind {
	var e *ObjectError
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
