package wire

// BlockRequest is the optional body of POST /v1/files/{id}/block.
type BlockRequest struct {
	Reason string `json:"reason,omitempty"`
}
