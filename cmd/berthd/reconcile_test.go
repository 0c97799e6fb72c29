package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"
)

func TestReconcileCommand(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	c.Worker.Reconcile = config.Duration(24 * time.Hour)
	p := start(t, c)

	// The loop of the server has its first run at once, and shows it.
	testkit.Eventually(t, time.Minute, func() error {
		resp, err := http.Get(p.url + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(text), `berth_reconcile_last_success_timestamp_seconds{store="main"}`) {
			err = fmt.Errorf("no run has succeeded")
		}
		return err
	})

	u := put(t, p, token(t), "a.txt", "hello")
	testkit.Eventually(t, time.Minute, func() error {
		if s := fileState(t, p, token(t), u.FileID); s != "active" {
			return fmt.Errorf("the file is %s", s)
		}
		return nil
	})
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	reconcile := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, msgs bytes.Buffer
		if code := run(t.Context(), append([]string{"reconcile", "--config", file}, args...), streams{&out, &msgs}); code != want {
			t.Fatalf("%v: exit %d, want %d: %s%s", args, code, want, out.String(), msgs.String())
		}
		return out.String(), msgs.String()
	}
	if out, _ := reconcile(0, "--repair"); !strings.Contains(out, "nothing is wrong") {
		t.Errorf("of a store in order it says %s", out)
	}

	// Somebody deletes the object behind Berth's back.
	store := c.Stores["main"]
	client := s3.New(s3.Options{BaseEndpoint: &store.Endpoint, Region: store.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(store.AccessKeyID, store.SecretAccessKey.Reveal(), "")})
	list, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &store.Bucket})
	if err != nil || len(list.Versions) != 1 {
		t.Fatalf("%+v, error %v", list, err)
	}
	key := aws.ToString(list.Versions[0].Key)
	if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &store.Bucket, Key: &key, VersionId: list.Versions[0].VersionId}); err != nil {
		t.Fatal(err)
	}
	out, msgs := reconcile(0, "--json", "--store", "main")
	var report models.ReconcileReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if f := report.Count(models.FindMissingObject); f.Found != 1 || f.Examples[0].Key != key || f.Examples[0].FileID != models.FileID(u.FileID) {
		t.Errorf("%s", out)
	}
	if !strings.Contains(msgs, u.FileID) {
		t.Errorf("a missing object is not said loudly: %s", msgs)
	}
	if out, _ := reconcile(0); !strings.Contains(out, "missing_object") || !strings.Contains(out, key) {
		t.Errorf("%s", out)
	}

	reconcile(exitUsage, "--older-than", "59m")
	reconcile(exitUsage, "--older-than", "0")
	reconcile(exitUsage, "--most", "0")
	reconcile(exitUsage, "--store", "nowhere")
	reconcile(exitFailed, "--inventory", "nothing/manifest.json")
}

// What worker.history says reaches the sweep: an old month of history goes.
func TestHistoryIsKeptAsConfigured(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	c.Worker.History = config.Duration(60 * 24 * time.Hour)
	conn, err := pgx.Connect(t.Context(), c.Database.URL.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // dropped with its database
	for _, q := range []string{
		`SELECT berth_history_partitions(now() - interval '100 days', 0)`,
		`INSERT INTO history (at, file_id, what, subject, to_state, actor)
			SELECT now() - d * interval '1 day', 'fil_x', 'file', 'fil_x', 'active', 'test' FROM unnest(ARRAY[0, 100]) AS d`,
	} {
		if _, err := conn.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	start(t, c)
	testkit.Eventually(t, time.Minute, func() error {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM history`).Scan(&n)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows", n)
		}
		return err
	})
}
