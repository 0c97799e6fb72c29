package models

import (
	"slices"
	"time"
)

// Scope is one thing that a caller may do.
type Scope string

const (
	ScopeUpload Scope = "upload"
	ScopeRead   Scope = "read"
	ScopeDelete Scope = "delete"
	ScopeAdmin  Scope = "admin"
)

// Caller is who asks: taken from a verified token, never from a body.
type Caller struct {
	Tenant Tenant
	Owner  Owner
	Scopes []Scope
	Grant  *Grant // narrows what the caller may open; nil: no narrowing
}

// Grant narrows a token to what one form on one page needs.
type Grant struct {
	ID           string // counts MaxFiles; empty: not counted
	Collection   string
	MaxBytes     int64 // of one file
	ContentTypes []string
	MaxFiles     int64
	Upload       UploadID  // only this upload
	Expires      time.Time // of the token that carries it
	// Derive is the lease of a processing step that may send files derived from the one it
	// looks at; nil for everybody else.
	Derive *Derivation
}

// Derivation ties what a step sends to its lease: it is attached only if a verdict is taken
// under the same one.
type Derivation struct {
	Parent FileID
	Task   TaskID
	Fence  int64 // the lease version
}

// Can tells whether the caller has a scope.
func (c Caller) Can(s Scope) bool { return slices.Contains(c.Scopes, s) }

// Require returns FORBIDDEN unless the caller has the scope.
func (c Caller) Require(s Scope) error {
	if !c.Can(s) {
		return Errorf(CodeForbidden, "the token has no scope %q", string(s))
	}
	return nil
}
