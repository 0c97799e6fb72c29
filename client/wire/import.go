package wire

import "encoding/json"

// ImportRequest is the body of POST /v1/imports: an object that lies in a store already
// becomes a file. Size and Checksum, if given, must be what the store attests.
type ImportRequest struct {
	Store       string          `json:"store,omitempty"` // the collection's if empty
	Key         string          `json:"key"`
	VersionID   string          `json:"version_id,omitempty"` // the current one if empty
	Owner       string          `json:"owner"`                // of the caller's tenant
	Collection  string          `json:"collection"`
	Name        string          `json:"name"`
	ContentType string          `json:"content_type,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Size        *int64          `json:"size,omitempty"` // bytes
	Checksum    *Checksum       `json:"checksum,omitempty"`
}
