package worker

import (
	"context"
	"fmt"
	"mime"

	"github.com/gabriel-vasile/mimetype"

	"berth/models"
)

// inspectBytes is how much of an object the inspect step reads at most.
const inspectBytes = 4 << 10

// Inspect is the built-in step that looks whether a file is what it says. It reads the
// first bytes of the recorded version, here in the worker, never in the API.
func Inspect(read func(ctx context.Context, r models.Replica, n int64) ([]byte, error)) StepFunc {
	return func(ctx context.Context, c StepCall) (models.StepAnswer, error) {
		if c.File.Size == 0 {
			return models.StepAnswer{Verdict: models.StepPass}, nil // nothing to disagree with
		}
		head, err := read(ctx, c.Replica, min(inspectBytes, c.File.Size))
		if err != nil {
			return models.StepAnswer{}, err
		}
		detected, ok := agrees(c.File.ContentType, head)
		if ok {
			return models.StepAnswer{Verdict: models.StepPass}, nil
		}
		verdict := models.StepBlock
		if c.Step.Action == models.StepDelete {
			verdict = models.StepDelete
		}
		return models.StepAnswer{Verdict: verdict, Reason: fmt.Sprintf("declared %s, looks like %s", c.File.ContentType, detected)}, nil
	}
}

// agrees tells whether bytes look like the declared type: the same, a special case of it
// (SVG is XML is text), or the general case that the first bytes alone cannot tell from it
// (a .docx begins like any ZIP). A declaration of nothing in particular is never wrong.
func agrees(declared string, head []byte) (detected string, ok bool) {
	declared, _, err := mime.ParseMediaType(declared)
	found := mimetype.Detect(head)
	if err != nil || declared == "application/octet-stream" {
		return found.String(), true
	}
	for m := found; m != nil; m = m.Parent() {
		if m.Is(declared) {
			return found.String(), true
		}
	}
	known := mimetype.Lookup(declared)
	if known == nil {
		// The library has no signature for the declared type: only a type that it is sure of,
		// and that cannot be a container of others, speaks against it.
		return found.String(), found.Is("application/octet-stream") || found.Is("text/plain") || found.Is("application/zip")
	}
	if found.Is("application/octet-stream") {
		return found.String(), false // a known type would have shown
	}
	for m := known.Parent(); m != nil; m = m.Parent() {
		if m.Is(found.String()) {
			return found.String(), true
		}
	}
	return found.String(), false
}
