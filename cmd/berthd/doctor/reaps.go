package doctor

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// reapQueue looks at the queue of due deletions. A bad one costs time only: the net below
// it does the work, so that nothing here is worse than a warning.
func (d *doctor) reapQueue(ctx context.Context) {
	const check = "reap queue"
	if d.Reaps == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := d.Reaps.Client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &d.Reaps.URL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameRedrivePolicy}})
	switch {
	case err != nil:
		d.add(check, Warning, "cannot be reached: "+short(err)+"; deletions wait for reap.net", "Look at reap.queue_url, and at the rights on the queue.",
			`module "events" { reap_queue = true }`)
	case out.Attributes["RedrivePolicy"] == "":
		d.add(check, Warning, "has no redrive policy: what can never be read is received for ever", "Give it a dead-letter queue.",
			`module "events" { reap_queue = true } makes both`)
	default:
		d.ok(check, "answers, and has a queue for what cannot be read")
	}
}
