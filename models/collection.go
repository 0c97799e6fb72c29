package models

import (
	"slices"
	"time"
)

// Collection is a named policy for files. It comes from the configuration and is
// immutable while it is used.
type Collection struct {
	Name string

	Extensions   []string // lower case, without the dot; empty: any
	ContentTypes []string // media types, "image/*" allowed; empty: any
	MinSize      int64    // bytes
	MaxSize      int64    // bytes; 0: what S3 takes

	MaxFiles int64 // living files per owner; 0: no limit
	MaxBytes int64 // bytes of living files per owner; 0: no limit
	MaxOpen  int64 // open uploads per owner; 0: no limit

	Dedupe           DedupeMode
	Algorithm        Algorithm
	ChecksumRequired bool // the whole value at open, or one per part when signed
	Commit           CommitMode
	Store            StoreName
	PartSize         int64 // preferred, bytes
	SingleMax        int64 // largest single PUT, bytes
	Deadline         time.Duration
	HardDeadline     time.Duration // no progress prolongs a session beyond it
	Grace            time.Duration // from a deadline to the reaping
	URLExpiry        time.Duration
	StorageClass     string
	SSEKMSKeyID      string
	InlineTypes      []string // content types served inline; others are attachments
	VerifyOnRead     bool     // look at the object again before a read URL is signed
	Steps            []Step
	MaxMetadataBytes int
}

// Step is one member of a collection's processing chain.
type Step struct {
	Name    string
	Kind    string // "webhook" or "inspect"
	URL     string
	Secret  string
	Timeout time.Duration
	Action  StepVerdict // of inspect on disagreement: block or delete
}

// Guarded tells whether the owner's row in quotas is kept for the collection: only
// where it limits or dedupes.
func (c *Collection) Guarded() bool {
	return c.MaxFiles > 0 || c.MaxBytes > 0 || c.MaxOpen > 0 || c.Dedupe != DedupeNone
}

// Limited are the names of the collections that quotas are kept for, in order.
func Limited(cols map[string]Collection) []string {
	var names []string
	for name, c := range cols {
		if c.Guarded() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
