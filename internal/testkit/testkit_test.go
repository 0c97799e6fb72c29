package testkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
)

func TestDatabasesAreFreshMigratedAndOwn(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			DB(t) // the template may still have to be made
			begun := time.Now()
			dsn := DB(t)
			t.Logf("clone: %v", time.Since(begun).Round(time.Millisecond))
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			var tables int
			err = conn.QueryRow(t.Context(), "SELECT count(*) FROM information_schema.tables WHERE table_name IN ('uploads', 'files', 'tasks')").Scan(&tables)
			if err != nil || tables != 3 {
				t.Errorf("%d of the tables, error %v; want 3: not migrated", tables, err)
			}
			// Fails if another test's database is this one.
			if _, err := conn.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDatabaseIsDroppedThoughConnected(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("user", func(t *testing.T) {
		dsn = DB(t)
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn // left open
	})
	if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
		conn.Close(t.Context())
		t.Error("the database is there after its test")
	}
}

func TestBucketsAndTheirNotifications(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := S3(t)
			n := Notifications(t, b)
			client := b.Client()
			key := fmt.Sprintf("key-%d", i)
			if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &b.Bucket, Key: &key, Body: strings.NewReader("x")}); err != nil {
				t.Fatal(err)
			}
			v, err := client.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &b.Bucket})
			if err != nil || v.Status != types.BucketVersioningStatusEnabled {
				t.Errorf("versioning %v, %v; want Enabled", v, err)
			}
			Eventually(t, 10*time.Second, func() error {
				out, err := n.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &n.QueueURL, MaxNumberOfMessages: 10, WaitTimeSeconds: 5})
				if err != nil {
					return err
				}
				if len(out.Messages) == 0 {
					return errors.New("no message yet")
				}
				for _, m := range out.Messages {
					if !strings.Contains(*m.Body, b.Bucket) || !strings.Contains(*m.Body, key) {
						t.Errorf("message %s, want only those of %s", *m.Body, b.Bucket)
					}
				}
				return nil
			})
		})
	}
}

func TestBucketIsRemovedWithItsContent(t *testing.T) {
	t.Parallel()
	var b S3Info
	t.Run("user", func(t *testing.T) {
		b = S3(t)
		for range 2 {
			if _, err := b.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &b.Bucket, Key: aws.String("k"), Body: strings.NewReader("x")}); err != nil {
				t.Fatal(err)
			}
		}
	})
	_, err := b.Client().ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &b.Bucket})
	var none *types.NoSuchBucket
	if err == nil || !errors.As(err, &none) && !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("after its test: %v; want NoSuchBucket", err)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	c := NewClock()
	begun := c.Now()
	c.Advance(time.Hour)
	if got := c.Now().Sub(begun); got != time.Hour {
		t.Errorf("advanced by %v, want 1h", got)
	}
}
