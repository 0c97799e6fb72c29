package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/events"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
)

const (
	// alone is how long a running berthd is given to say that it heard, before the doctor
	// looks into the queue itself.
	alone = 5 * time.Second
	// mostHeld bounds how many messages of others are held while the probe's is looked for.
	mostHeld = 200
	// minRetention is the least time that a queue should keep what nobody fetches.
	minRetention = 4 * day
)

const policyTerraform = `module "events" { bucket_arn = module.bucket.arn … } writes the queue's policy`

// queue looks at the queue's own attributes.
func (d *doctor) queue(ctx context.Context) {
	const check = "queue"
	if d.Queue == nil {
		return // said by each store, which may call by webhook instead
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := d.Queue.Client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &d.Queue.URL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		mend := "Look at events.queue_url, events.region and the network between here and there."
		if denied(err) {
			mend = "Allow sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:DeleteMessage and sqs:ChangeMessageVisibility on the queue."
		}
		d.add(check, Failure, "cannot be reached: "+short(err), mend, `module "service": roles "events" and "operator"`)
		return
	}
	a := out.Attributes
	d.queueARN = a["QueueArn"]
	d.backlog, _ = strconv.Atoi(a["ApproximateNumberOfMessages"])
	d.policy = parsePolicy(a["Policy"])
	d.ok(check, "answers, with about %d messages waiting", d.backlog)

	if strings.HasSuffix(d.Queue.URL, ".fifo") {
		d.add(check, Failure, "is a FIFO queue, which S3 cannot notify", "Use a standard queue.", `module "events" makes a standard one`)
	}
	if a["RedrivePolicy"] == "" {
		d.add("dead letters", Warning, "the queue has no redrive policy: what can never be read is received for ever", "Give it a dead-letter queue.", `module "events" makes one, with its alarm in module "alarms"`)
	} else {
		d.ok("dead letters", "what cannot be read moves to a queue of its own")
	}
	if n, err := strconv.Atoi(a["MessageRetentionPeriod"]); err == nil && time.Duration(n)*time.Second < minRetention {
		d.add(check, Warning, fmt.Sprintf("keeps messages for %s only: a longer outage loses them, and repair alone finds what they told", time.Duration(n)*time.Second),
			"Let it keep them for 14 days.", `module "events" { retention_seconds = 1209600 }`)
	}
	if strings.HasSuffix(a["KmsMasterKeyId"], "alias/aws/sqs") {
		d.add(check, Failure, "is encrypted with alias/aws/sqs, a key that S3 can never use: no notification arrives",
			"Use SSE-SQS, or a key of your own that grants s3.amazonaws.com kms:GenerateDataKey and kms:Decrypt.", `module "events" { kms_key_arn = … } or leave it out for SSE-SQS`)
	}
}

// sendPolicy is who a queue's policy lets send to it.
type sendPolicy struct {
	given    bool
	s3       []string // patterns of bucket ARNs
	loose    bool     // a service may send for any account's bucket
	services []string // sns, events: they may come between
}

// parsePolicy reads what is needed of a queue's policy. It does not judge Deny
// statements: the probe does that in earnest.
func parsePolicy(text string) sendPolicy {
	type statement struct {
		Effect    string
		Principal json.RawMessage
		Action    list
		Condition map[string]map[string]list
	}
	var doc struct{ Statement json.RawMessage }
	if text == "" || json.Unmarshal([]byte(text), &doc) != nil {
		return sendPolicy{}
	}
	statements := make([]statement, 1) // one may stand without its list
	if json.Unmarshal(doc.Statement, &statements) != nil && json.Unmarshal(doc.Statement, &statements[0]) != nil {
		return sendPolicy{given: true}
	}
	p := sendPolicy{given: true}
	for _, s := range statements {
		sends := slices.ContainsFunc(s.Action, func(a string) bool {
			return slices.Contains([]string{"sqs:sendmessage", "sqs:*", "*", "sqs:send*"}, strings.ToLower(a))
		})
		if s.Effect != "Allow" || !sends {
			continue
		}
		var principal struct{ Service, AWS list }
		if json.Unmarshal(s.Principal, &principal) != nil {
			principal.Service = list{strings.Trim(string(s.Principal), `"`)}
		}
		arns, bounded := list(nil), false
		for _, keys := range s.Condition {
			for key, values := range keys {
				switch strings.ToLower(key) {
				case "aws:sourcearn":
					arns, bounded = append(arns, values...), true
				case "aws:sourceaccount", "aws:sourceorgid":
					bounded = true
				}
			}
		}
		for _, service := range append(principal.Service, principal.AWS...) {
			switch {
			case service == "*" || service == "s3.amazonaws.com":
				if arns == nil {
					p.s3 = append(p.s3, "*")
				}
				p.s3 = append(p.s3, arns...)
				p.loose = p.loose || !bounded
			case service == "sns.amazonaws.com" || service == "events.amazonaws.com":
				p.services = append(p.services, service)
			}
		}
	}
	return p
}

// list is a JSON string or a list of them.
type list []string

func (l *list) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*l = list{one}
		return nil
	}
	var many []string
	err := json.Unmarshal(b, &many)
	*l = many
	return err
}

// notifications looks whether the bucket is told to notify, and the queue to let it. It
// returns what is likely wrong if nothing arrives.
func (d *doctor) notifications(ctx context.Context, s *Store) (likely string) {
	const check = "notification"
	if !s.Primary {
		return ""
	}
	if d.Queue == nil {
		if !s.Webhook {
			d.add(check, Warning, "there is neither a queue nor a webhook's token: S3 is not heard, and an upload whose client never calls complete waits for repair",
				"Set events.queue_url, or notification_token of the store for stores that call webhooks.", `module "events" makes the queue`)
		}
		return "the webhook is not set, or sends to another address or with another token"
	}
	likely = d.mayS3Send(s)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := s.S3.GetBucketNotificationConfiguration(ctx, &s3.GetBucketNotificationConfigurationInput{Bucket: &s.Bucket, ExpectedBucketOwner: optional(s.Owner)})
	if err != nil {
		if s.AWS {
			d.cannot(check, "notification configuration", "s3:GetBucketNotification", err)
		}
		return likely // elsewhere it is told otherwise; the probe says whether it works
	}
	by, fault := notified(out, d.queueARN, s.Prefix)
	switch {
	case fault == "":
		d.ok(check, "the bucket notifies %s", by)
	case s.AWS:
		d.add(check, Failure, fault, "Let the bucket send s3:ObjectCreated:* for the prefix to the queue, with no suffix filter.", `module "events" { filter_prefix = "`+s.Prefix+`" … } writes it`)
		likely = fault
	case likely == "":
		likely = fault
	}
	return likely
}

// mayS3Send looks at the queue's policy for one bucket.
func (d *doctor) mayS3Send(s *Store) (likely string) {
	const check = "queue policy"
	const mend = "Let the queue's policy allow s3.amazonaws.com sqs:SendMessage, with aws:SourceArn of the bucket and aws:SourceAccount of its account."
	p := d.policy
	arn := "arn:aws:s3:::" + s.Bucket
	lets := slices.ContainsFunc(p.s3, func(pattern string) bool {
		return matchAny([]string{partitionless(pattern)}, partitionless(arn), false)
	})
	status := Warning
	if s.AWS {
		status = Failure
	}
	elsewhere := ""
	if !s.AWS {
		elsewhere = ". Whatever brings this store's notifications with credentials of its own does not need it"
	}
	switch {
	case lets && p.loose:
		d.add(check, Warning, "lets S3 send for any account's bucket: others can fill the queue", mend, policyTerraform)
	case lets:
		d.ok(check, "lets S3 send for this bucket")
	case len(p.services) > 0:
		d.ok(check, "lets %s send", strings.Join(p.services, " and "))
	case !p.given:
		d.add(check, status, "the queue has no policy: S3 may not send to it"+elsewhere, mend, policyTerraform)
		return "the queue has no policy that lets S3 send"
	default:
		d.add(check, status, "the queue's policy does not let S3 send for this bucket"+elsewhere, mend, policyTerraform)
		return "the queue's policy does not let S3 send for this bucket"
	}
	return ""
}

// partitionless is an ARN without its partition: aws, aws-cn, aws-us-gov.
func partitionless(arn string) string {
	if rest, ok := strings.CutPrefix(arn, "arn:"); ok {
		if _, tail, ok := strings.Cut(rest, ":"); ok {
			return tail
		}
	}
	return arn
}

// notified judges a bucket's notification configuration.
func notified(c *s3.GetBucketNotificationConfigurationOutput, queueARN, prefix string) (by, fault string) {
	fault = "the bucket notifies nobody"
	if c.EventBridgeConfiguration != nil {
		return "EventBridge, whose rule must reach the queue", ""
	}
	for _, t := range c.TopicConfigurations {
		if f := covers(t.Events, t.Filter, prefix); f == "" {
			return "an SNS topic, whose subscription must reach the queue", ""
		}
	}
	for _, q := range c.QueueConfigurations {
		if queueARN != "" && aws.ToString(q.QueueArn) != queueARN {
			fault = "the bucket notifies another queue than events.queue_url"
			continue
		}
		f := covers(q.Events, q.Filter, prefix)
		if f == "" {
			return "the queue", ""
		}
		fault = f
	}
	return "", fault
}

// covers tells what of the created objects under the prefix a rule leaves out.
func covers(on []s3types.Event, filter *s3types.NotificationConfigurationFilter, prefix string) string {
	has := func(name string) bool { return slices.Contains(on, s3types.Event("s3:ObjectCreated:"+name)) }
	if !has("*") {
		for _, name := range []string{"Put", "Post", "CompleteMultipartUpload"} {
			if !has(name) {
				return "the bucket does not notify s3:ObjectCreated:" + name
			}
		}
	}
	if filter == nil || filter.Key == nil {
		return ""
	}
	for _, r := range filter.Key.FilterRules {
		switch {
		case strings.EqualFold(string(r.Name), "suffix") && aws.ToString(r.Value) != "":
			return fmt.Sprintf("the bucket notifies only keys that end in %q; Berth's end in anything", aws.ToString(r.Value))
		case strings.EqualFold(string(r.Name), "prefix") && !strings.HasPrefix(prefix, aws.ToString(r.Value)):
			return fmt.Sprintf("the bucket notifies only keys under %q, not all under %q", aws.ToString(r.Value), prefix)
		}
	}
	return ""
}

// listener hears from running berthds which keys they were notified of.
type listener struct {
	keys  chan string
	close func()
}

// listen begins before the probes are written. Without a database it hears nothing, and
// the queue alone is looked into.
func (d *doctor) listen(ctx context.Context) listener {
	l := listener{keys: make(chan string, 256), close: func() {}}
	start, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := pgx.Connect(start, d.Database)
	if err != nil {
		return l
	}
	if _, err := conn.Exec(start, "LISTEN "+Channel); err != nil {
		conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
		return l
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			select {
			case l.keys <- n.Payload:
			case <-ctx.Done():
				return
			}
		}
	}()
	l.close = func() { stop(); <-ended }
	return l
}

// arrival waits for the notification of any of the probes. A berthd that reads the queue takes
// the message and says so through the database; where none does, the doctor looks into
// the queue itself: it takes out its own message only, looks at each of the others once,
// and makes them visible again.
func (d *doctor) arrival(ctx context.Context, s *Store, l listener, folder, likely string) {
	const check = "events"
	if d.Queue == nil && !s.Webhook {
		return // said already
	}
	begun := d.Now()
	ctx, cancel := context.WithTimeout(ctx, d.Wait)
	defer cancel()
	if l.waits(ctx, folder, min(alone, d.Wait/4)) {
		d.ok(check, "a running berthd heard of a probe after %s", d.Now().Sub(begun).Round(100*time.Millisecond))
		return
	}
	blind := ""
	if d.Queue != nil {
		if d.backlog > mostHeld {
			blind = fmt.Sprintf(" (the queue was not looked into: %d messages wait before the probe's)", d.backlog)
		} else {
			found, err := d.seek(ctx, l, folder)
			if found != "" {
				d.ok(check, "%s after %s", found, d.Now().Sub(begun).Round(100*time.Millisecond))
				return
			}
			if err != nil {
				blind = " (the queue cannot be looked into: " + short(err) + ")"
			}
		}
	}
	if l.waits(ctx, folder, d.Wait) {
		d.ok(check, "a running berthd heard of a probe after %s", d.Now().Sub(begun).Round(100*time.Millisecond))
		return
	}
	switch {
	case d.Queue == nil:
		d.add(check, Failure, fmt.Sprintf("no running berthd was called for a probe within %s", d.Wait),
			"Start a berthd with the role api, and let the store call POST /v1/notifications/"+string(s.Name)+" with the store's notification_token as bearer; see infra/stores/.", "")
	case blind != "" && d.backlog > mostHeld:
		d.add(check, Warning, fmt.Sprintf("no running berthd heard of a probe within %s%s", d.Wait, blind),
			"Run berthd with the role events until the queue is empty, then try again.", `module "service" { roles = { events = { max = … } … } }`)
	default:
		if likely == "" {
			likely = "the store's notifications go elsewhere, are filtered, or its sender does not run"
		}
		d.add(check, Failure, fmt.Sprintf("the notification of a probe did not arrive within %s%s; likely: %s", d.Wait, blind, likely),
			"Follow the way: the bucket's notification configuration (s3:ObjectCreated:*, the prefix, no suffix), what is between (SNS, EventBridge, a bridge), "+
				"the queue's policy, its key. S3 sends a test message when the configuration is written. "+
				"A berthd of a release before this one, or behind a pooler that breaks LISTEN, takes the message and cannot say so: stop it and try again.",
			`module "events" { bucket = …, bucket_arn = …, filter_prefix = "`+s.Prefix+`" } makes all of it`)
	}
}

// waits tells whether a key of the folder is heard of within the time.
func (l listener) waits(ctx context.Context, folder string, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case k := <-l.keys:
			if strings.HasPrefix(k, folder) {
				return true
			}
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// seek looks for a message of the probes, and gives all others back.
func (d *doctor) seek(ctx context.Context, l listener, folder string) (found string, err error) {
	var held []types.Message
	defer func() { d.giveBack(ctx, held) }()
	hide := int32((d.Wait + callTimeout) / time.Second) // #nosec G115 -- minutes
	for ctx.Err() == nil && len(held) < mostHeld {
		out, err := d.Queue.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &d.Queue.URL, MaxNumberOfMessages: 10, WaitTimeSeconds: 2, VisibilityTimeout: hide})
		if err != nil {
			if ctx.Err() != nil {
				return "", nil
			}
			return "", err
		}
		for _, m := range out.Messages {
			if !about(m, folder) {
				held = append(held, m)
				continue
			}
			_, err := d.Queue.Client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &d.Queue.URL, ReceiptHandle: m.ReceiptHandle})
			if err != nil {
				held = append(held, m)
			}
			return "the notification of a probe lay in the queue", nil
		}
		if l.waits(ctx, folder, time.Millisecond) {
			return "a running berthd heard of a probe", nil
		}
	}
	return "", nil
}

// about tells whether a message is of the folder, and of nothing else.
func about(m types.Message, folder string) bool {
	b, err := events.Parse([]byte(aws.ToString(m.Body)))
	if err != nil || len(b.Events) == 0 || len(b.Bad) > 0 {
		return false
	}
	return !slices.ContainsFunc(b.Events, func(e models.ObjectEvent) bool { return !strings.HasPrefix(e.Key, folder) })
}

// giveBack makes messages visible again at once.
func (d *doctor) giveBack(ctx context.Context, held []types.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	for batch := range slices.Chunk(held, 10) {
		entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(batch))
		for i, m := range batch {
			entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0}
		}
		// What is not given back comes by itself when its visibility ends.
		_, _ = d.Queue.Client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &d.Queue.URL, Entries: entries})
	}
}
