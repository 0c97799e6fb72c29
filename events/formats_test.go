package events

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/models"
)

var update = flag.Bool("update", false, "write what Parse says into testdata; then read it")

// golden is a Batch as its file has it.
type golden struct {
	Events  []models.ObjectEvent `json:",omitempty"`
	Test    bool                 `json:",omitempty"`
	Skipped int                  `json:",omitempty"`
	Bad     []string             `json:",omitempty"`
}

// Every shape of every store, in its own file, beside what is to be understood of it.
func TestParseGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Parse(body)
			if err != nil {
				t.Fatal(err)
			}
			g := golden{Events: b.Events, Test: b.Test, Skipped: b.Skipped}
			for _, bad := range b.Bad {
				g.Bad = append(g.Bad, bad.Error())
			}
			got, err := json.MarshalIndent(g, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			path := strings.TrimSuffix(file, ".json") + ".golden"
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	sns := func(inner string) string {
		m, _ := json.Marshal(inner)
		return `{"Type":"Notification","Message":` + string(m) + `}`
	}
	for name, c := range map[string]struct{ body, reason string }{
		"nothing":       {"", "is not a JSON object"},
		"no JSON":       {"hello", "is not a JSON object"},
		"cut off":       {`{"Records":[`, "is not a JSON object"},
		"a list":        {`[]`, "is not a JSON object"},
		"something":     {`{"a":1}`, "no notification that is known"},
		"null":          {`null`, "no notification that is known"},
		"records":       {`{"Records":{}}`, "records that are not a list"},
		"too large":     {`{"Records":[` + strings.Repeat(" ", MaxBody) + `]}`, "more than 1048576"},
		"too deep":      {`{"Records":` + deep + `}`, "nested deeper"},
		"too many":      {`{"Records":[` + strings.TrimSuffix(strings.Repeat("1,", maxRecords+1), ",") + `]}`, "more than 10000 records"},
		"SNS of SNS":    {sns(sns(sns(`{"Records":[]}`))), "envelope in an envelope"},
		"SNS confirm":   {`{"Type":"SubscriptionConfirmation","Message":"x","SubscribeURL":"https://h/?Token=secret"}`, `of type "SubscriptionConfirmation"`},
		"SNS not text":  {`{"Type":"Notification","Message":{}}`, "message is not text"},
		"SNS of none":   {sns("hello"), "is not a JSON object"},
		"EC2":           {`{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{}}`, `of "aws.ec2"`},
		"EventBridge":   {`{"source":"aws.s3","detail-type":"Object Created","detail":{"bucket":{"name":"b"},"object":{}}}`, "has no key"},
		"EventBridge 2": {`{"source":"aws.s3","detail-type":"Object Created","detail":[]}`, "has a detail that is not S3's"},
		"R2":            {`{"action":"PutObject","object":{"key":"k"}}`, "has no bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := Parse([]byte(c.body))
			if err == nil || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %+v, %v", b, err)
			}
			if len(b.Events) > 0 {
				t.Errorf("and yet %+v", b.Events)
			}
		})
	}
}

// Whoever writes the names, the versions and the keys.
func TestRecordForms(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"aws:s3", "minio:s3", "ceph:s3", "other", ""} {
		for _, prefix := range []string{"", "s3:"} {
			for i, version := range []string{"", `,"versionId":""`, `,"versionId":null`, `,"versionId":"null"`, `,"versionId":"v1"`} {
				for minor := range 7 {
					// Berth's own kind of key reads the same, however it is encoded.
					body := fmt.Sprintf(`{"Records":[{"eventVersion":"2.%d","eventSource":%q,"eventName":"%sObjectCreated:Put",
						"s3":{"bucket":{"name":"b"},"object":{"key":"p/default/0af._-9.pdf"%s}}}]}`, minor, source, prefix, version)
					b, err := Parse([]byte(body))
					if err != nil || len(b.Events) != 1 {
						t.Fatalf("%s: %+v, %v", body, b, err)
					}
					want := models.ObjectEvent{Bucket: "b", Key: "p/default/0af._-9.pdf", Created: true, Name: "ObjectCreated:Put"}
					if i == 4 {
						want.VersionID = "v1"
					}
					if b.Events[0] != want {
						t.Errorf("%s: %+v", body, b.Events[0])
					}
				}
			}
		}
	}
}

// A good record is never lost, whatever stands beside it, and nothing panics.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"eventVersion":"2.1","s3":5}`))
	f.Add([]byte(`"\u0000"`))
	const good = `{"eventVersion":"2.1","eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":"good","versionId":"v"}}}`
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, data)
		if !json.Valid(data) || len(data) > MaxBody/2 || depth(data) > maxDepth-2 {
			return
		}
		b := check(t, []byte(`{"Records":[`+good+`,`+string(data)+`,`+good+`]}`))
		if n := len(b.Events); n < 2 || b.Events[0].Key != "good" || b.Events[n-1].Key != "good" {
			t.Errorf("a good record is lost beside %q: %+v", data, b)
		}
		if n := len(b.Events) + b.Skipped + len(b.Bad); n != 3 && !(n == 2 && b.Test) {
			t.Errorf("beside %q: %+v", data, b)
		}
	})
}

func check(t *testing.T, body []byte) Batch {
	t.Helper()
	b, err := Parse(body)
	if err != nil && len(reason(err)) > 310 {
		t.Errorf("a long reason: %v", err)
	}
	for _, e := range b.Events {
		if e.Key == "" || e.Bucket == "" || e.Name == "" || len(e.Key) > maxKey || strings.Contains(e.Key, "\x00") || e.VersionID == models.NullVersion {
			t.Errorf("%q: %+v", body, e)
		}
	}
	return b
}
