package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/parts"
	"berth/internal/testkit"
	"berth/migrations"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
)

// putAll sends n files through a running API and returns their ids.
func putAll(t *testing.T, p *process, n int) []string {
	t.Helper()
	tok := token(t)
	ids := make([]string, n)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := w; i < n; i += 4 {
				ids[i] = put(t, p, tok, fmt.Sprintf("%d.txt", i), fmt.Sprintf("content %d", i)).FileID
			}
		})
	}
	all.Wait()
	return ids
}

// settled tells how many files are active, and how often that was told.
func settled(t *testing.T, dsn config.Secret) (active, told int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn.Reveal())
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM files WHERE state = 'active'), (SELECT count(*) FROM outbox WHERE type = 'file.active')`).Scan(&active, &told)
	return active, told, err
}

// tellAll tells of every upload once more: versitygw gives up on an event after three
// seconds, and a loaded machine loses some. Making up for those is repair's work, not
// the consumer's.
func tellAll(t *testing.T, c config.Config) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.Database.URL.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), "SELECT key FROM uploads")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		body := fmt.Sprintf(`{"Records":[{"eventVersion":"2.2","eventSource":"aws:s3","eventName":"s3:ObjectCreated:Put","s3":{"bucket":{"name":%q},"object":{"key":%q}}}]}`,
			c.Stores["main"].Bucket, key)
		if _, err := parts.SQSClient(c.Events.Endpoint).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &c.Events.QueueURL, MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
	}
}

func awaitActive(t *testing.T, dsn config.Secret, n int, meanwhile func(active int)) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() error {
		active, told, err := settled(t, dsn)
		if err != nil {
			return err
		}
		if meanwhile != nil {
			meanwhile(active)
		}
		if active != n || told != n {
			return fmt.Errorf("%d active, %d told, of %d", active, told, n)
		}
		return nil
	})
}

// receiveLimit sets after how many receives the queue gives a message up.
func receiveLimit(t *testing.T, c config.Config, limit int) (dead func() string) {
	t.Helper()
	client := parts.SQSClient(c.Events.Endpoint)
	attrs, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &c.Events.QueueURL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameRedrivePolicy},
	})
	if err != nil {
		t.Fatal(err)
	}
	var policy map[string]any
	if err := json.Unmarshal([]byte(attrs.Attributes["RedrivePolicy"]), &policy); err != nil {
		t.Fatal(err)
	}
	policy["maxReceiveCount"] = fmt.Sprint(limit)
	text, err := json.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &c.Events.QueueURL, Attributes: map[string]string{"RedrivePolicy": string(text)}}); err != nil {
		t.Fatal(err)
	}
	deadURL := c.Events.QueueURL + "-dlq"
	return func() string {
		out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: aws.String(deadURL), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Attributes["ApproximateNumberOfMessages"]
	}
}

// The consumer is killed again and again while it works: nothing is lost, nothing is
// told twice.
func TestKilledConsumersLoseNothing(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	c.Events.Visibility = config.Duration(2 * time.Second) // what a killed process held
	dead := receiveLimit(t, c, 50)
	api := start(t, c, "--role", "api")
	const n = 1200 // many batches: one may carry a hundred
	putAll(t, api, n)
	tellAll(t, c)
	consumer := start(t, c, "--role", "events")
	kills, last := 0, 0
	awaitActive(t, c.Database.URL, n, func(active int) {
		// Whenever some work is done. What each held stays hidden for its visibility.
		if kills < 4 && active >= last+n/12 {
			_ = consumer.cmd.Process.Kill()
			<-consumer.done
			kills++
			last = active
			consumer = start(t, c, "--role", "events")
		}
	})
	if kills < 3 {
		t.Errorf("killed only %d times", kills)
	}
	if d := dead(); d != "0" {
		t.Errorf("%s messages died", d)
	}
	t.Logf("killed %d times", kills)
}

// The database goes away in the middle for a minute, longer than the receives that the
// queue allows would last, and comes back: all is settled, nothing died.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	dir, err := parts.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	options := parts.PostgresOptions{Dir: dir, Volatile: true}
	db, err := parts.StartPostgres(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := db.EnsureDatabase(ctx, "berth"); err != nil {
		t.Fatal(err)
	}
	c := realConfig(t)
	c.Database.URL = config.Secret(db.DSN("berth"))
	if err := migrations.Up(ctx, db.DSN("berth")); err != nil {
		t.Fatal(err)
	}
	dead := receiveLimit(t, c, 3)
	api := start(t, c, "--role", "api")
	const n = 1200
	putAll(t, api, n)
	tellAll(t, c)
	start(t, c, "--role", "events")
	testkit.Eventually(t, 30*time.Second, func() error {
		active, _, err := settled(t, c.Database.URL)
		switch {
		case err != nil:
		case active == 0:
			err = errors.New("none is active")
		case active > n/2:
			t.Fatalf("%d of %d are active before the database goes away", active, n)
		}
		return err
	})
	if err := db.Stop(); err != nil {
		t.Fatal(err)
	}
	away := time.NewTimer(time.Minute)
	<-away.C
	if code := call(t, "GET", api.url+"/readyz", "", nil, nil); code != 503 {
		t.Errorf("ready without a database: %d", code)
	}
	options.Port = db.Port
	if db, err = parts.StartPostgres(ctx, options); err != nil {
		t.Fatal(err)
	}
	awaitActive(t, c.Database.URL, n, nil)
	if d := dead(); d != "0" {
		t.Errorf("%s messages died", d)
	}
}
