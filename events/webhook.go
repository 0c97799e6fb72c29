package events

import (
	"context"
	"errors"

	"berth/models"
)

// Webhook takes notifications of stores that call instead of using a queue.
type Webhook struct {
	Settler Settler
}

// Notify takes one body of a store and returns when the work that it caused is
// committed. INVALID_REQUEST means that the body, or a record of it, will never be
// understood; its good records are settled all the same. Every other error asks to send
// it again, which is harmless.
func (w Webhook) Notify(ctx context.Context, store models.StoreName, body []byte) error {
	b, err := Parse(body)
	if err != nil {
		return models.Errorf(models.CodeInvalidRequest, "the notification is not understood").Because(err)
	}
	for i := range b.Events {
		b.Events[i].Store = store // whatever the bucket is called: the token said who speaks
	}
	for start := 0; start < len(b.Events); start += chunkSize {
		chunk := b.Events[start:min(start+chunkSize, len(b.Events))]
		if err := errors.Join(w.Settler.Settle(ctx, chunk)...); err != nil {
			return models.Errorf(models.CodeStoreUnavailable, "not all of it is settled; send it again").Because(err)
		}
	}
	if len(b.Bad) > 0 {
		return models.Errorf(models.CodeInvalidRequest, "%d records are not understood", len(b.Bad)).Because(errors.Join(b.Bad...))
	}
	return nil
}
