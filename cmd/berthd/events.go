package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"berth/events"
)

// eventsCmd is the care of the queues that berthd reads.
type eventsCmd struct {
	DLQ dlqCmd `cmd:"" name:"dlq" help:"Care for the dead-letter queue: messages that were given up on."`
}

type dlqCmd struct {
	List    dlqListCmd    `cmd:"" help:"Show what is in it, and why. A look hides messages from others while it lasts."`
	Redrive dlqRedriveCmd `cmd:"" help:"Send messages back to their queue. What was settled meanwhile does no harm."`
	Drop    dlqDropCmd    `cmd:"" help:"Delete messages for good."`
}

type dlqListCmd struct {
	queueFlag
	Limit int  `default:"100" help:"How many to look at."`
	JSON  bool `name:"json" help:"One JSON object a line, with the bodies."`
}

type dlqRedriveCmd struct {
	queueFlag
	IDs []string `arg:"" optional:"" name:"id" help:"Message ids; all without any."`
}

type dlqDropCmd struct {
	queueFlag
	IDs []string `arg:"" optional:"" name:"id" help:"Message ids."`
	All bool     `help:"All of them."`
}

// queueFlag says whose dead letters.
type queueFlag struct {
	configFlag
	Queue string `default:"events" enum:"events,reap" help:"Whose: events, of S3's notifications, or reap, of announced deletions."`
}

func (f queueFlag) openDLQ(ctx context.Context) (*events.DLQ, error) {
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	queue := c.Events.QueueURL
	if f.Queue == "reap" {
		queue = c.Reap.QueueURL
	}
	if queue == "" {
		return nil, usageError(f.Queue + ".queue_url is not configured: there is no dead-letter queue")
	}
	client, err := sqsClient(ctx, c)
	if err != nil {
		return nil, err
	}
	d, err := events.OpenDLQ(ctx, client, queue)
	if err != nil {
		return nil, err
	}
	d.Reaps = f.Queue == "reap"
	return d, nil
}

// Run prints the letters.
func (l dlqListCmd) Run(ctx context.Context, s streams) error {
	d, err := l.openDLQ(ctx)
	if err != nil {
		return err
	}
	letters, err := d.List(ctx, l.Limit)
	if err != nil {
		return err
	}
	if l.JSON {
		e := json.NewEncoder(s.out)
		e.SetEscapeHTML(false)
		for _, x := range letters {
			if err := e.Encode(map[string]any{
				"id": x.ID, "sent": x.Sent.UTC().Format(time.RFC3339), "receives": x.Receives, "reason": x.Reason, "objects": x.Objects, "body": x.Body,
			}); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSENT\tREASON\tOBJECTS")
	for _, x := range letters {
		// Quoted: keys are anybody's.
		fmt.Fprintf(w, "%s\t%s\t%s\t%q\n", x.ID, x.Sent.UTC().Format(time.RFC3339), x.Reason, strings.Join(x.Objects, " "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(s.err, "berthd: %d messages\n", len(letters))
	return nil
}

// Run redrives.
func (r dlqRedriveCmd) Run(ctx context.Context, s streams) error {
	d, err := r.openDLQ(ctx)
	if err != nil {
		return err
	}
	n, err := d.Redrive(ctx, r.IDs...)
	if n < 0 {
		fmt.Fprintln(s.err, "berthd: SQS moves the messages from now on")
	} else {
		fmt.Fprintf(s.err, "berthd: %d messages sent back\n", n)
	}
	return missing(err, n, r.IDs)
}

// Run drops.
func (r dlqDropCmd) Run(ctx context.Context, s streams) error {
	if (len(r.IDs) == 0) != r.All {
		return usageError("say which messages, by id, or --all")
	}
	d, err := r.openDLQ(ctx)
	if err != nil {
		return err
	}
	n, err := d.Drop(ctx, r.IDs...)
	fmt.Fprintf(s.err, "berthd: %d messages deleted\n", n)
	return missing(err, n, r.IDs)
}

func missing(err error, n int, ids []string) error {
	if err == nil && n >= 0 && n < len(ids) {
		return fmt.Errorf("%d of the %d messages are not in the dead-letter queue, or hidden now", len(ids)-n, len(ids))
	}
	return err
}
