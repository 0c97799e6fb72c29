package config

import (
	"strings"
	"time"
)

func (l *loader) checkReap() {
	r, c := l.config.Reap, l.config
	oneOf(l, "reap.dispatch", r.Dispatch, DispatchPoll, DispatchSQS)
	switch {
	case r.QueueURL != "":
		l.url("reap.queue_url", r.QueueURL)
		if strings.HasSuffix(r.QueueURL, ".fifo") {
			l.wrong("reap.queue_url", "is a FIFO queue: one message that waits would hold up the others")
		}
		if r.QueueURL == c.Events.QueueURL {
			l.wrong("reap.queue_url", "is events.queue_url: each consumer would take the other's messages for poison")
		}
		if r.QueueURL == c.Outbox.QueueURL {
			l.wrong("reap.queue_url", "is outbox.queue_url, which others read")
		}
	case r.Dispatch == DispatchSQS:
		l.wrong("reap.queue_url", "is missing, since reap.dispatch is sqs")
	}
	l.count("reap.pollers", r.Pollers, 64)
	l.between("reap.visibility", r.Visibility, 2*time.Second, 12*time.Hour)
	l.between("reap.again", r.Again, time.Second, 12*time.Hour)
	// Above it, the alarms of loops that stand still and of old tasks would ring.
	l.between("reap.net", r.Net, time.Second, 10*time.Minute)
}
