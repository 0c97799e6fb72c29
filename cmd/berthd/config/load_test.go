package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/models"

	"go.yaml.in/yaml/v3"
)

const secret32 = "0123456789abcdef0123456789abcdef"

// minimal is the least file that is right.
const minimal = `database: {url: "postgres://u:hunter2@h/db"}
auth: {hs256_secret: "` + secret32 + `"}
stores: {main: {bucket: bucket}}
`

func mustLoad(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	c, err := load("berth.yaml", []byte(text), environ)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExampleLoadsAndNamesEveryKey(t *testing.T) {
	t.Parallel()
	c, err := Load("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Policies()["resume"]; p.MaxSize != 10<<20 || p.Dedupe != models.DedupeReject || len(p.Steps) != 2 || p.HardDeadline != 7*24*time.Hour {
		t.Errorf("resume: %+v", p)
	}
	text, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, path string) {
		for _, f := range fieldsOf(typ) {
			if !regexp.MustCompile(`(?m)^[ #-]*\b` + f.key + `:`).Match(text) {
				t.Errorf("example.yaml lacks %s", join(path, f.key))
			}
			child := typ.Field(f.index).Type
			for child.Kind() == reflect.Map || child.Kind() == reflect.Slice {
				child = child.Elem()
			}
			if child.Kind() == reflect.Struct {
				walk(child, join(path, f.key))
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

// Every field of a policy can be configured, and every key of a collection gets there.
func TestPoliciesCarryEveryField(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `database: {url: "postgres://h/db"}
auth: {hs256_secret: "`+secret32+`"}
stores: {main: {bucket: bucket}, other: {bucket: other}, third: {bucket: third}}
collections:
  all:
    extensions: [pdf]
    content_types: [application/pdf]
    min_size: 1
    max_size: 2
    max_files: 3
    max_bytes: 4
    max_open: 5
    dedupe: reuse
    algorithm: crc32c
    checksum_required: true
    commit: deferred
    store: other
    part_size: 6MiB
    single_max: 7MiB
    deadline: 8h
    hard_deadline: 9h
    grace: 10m
    url_expiry: 11m
    storage_class: COLD
    sse_kms_key_id: key
    inline_types: [image/png]
    verify_on_read: true
    max_metadata_bytes: 12
    steps: [{name: a, kind: webhook, url: "http://h/", secret: 0123456789abcdefx, timeout: 13s, action: block}]
`)
	p := c.Policies()["all"]
	for v, i := reflect.ValueOf(p), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not set", v.Type().Field(i).Name)
		}
	}
	for v, i := reflect.ValueOf(p.Steps[0]), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("step's %s is not set", v.Type().Field(i).Name)
		}
	}
	if p.PartSize != 6<<20 || p.Grace != 10*time.Minute || p.Store != "other" || p.Algorithm != models.CRC32C {
		t.Errorf("%+v", p)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, minimal)
	p := c.Policies()["default"]
	want := models.Collection{
		Name: "default", Dedupe: models.DedupeNone, Algorithm: models.SHA256, Commit: models.CommitAuto, Store: "main",
		PartSize: 16 << 20, SingleMax: 16 << 20, Deadline: 24 * time.Hour, HardDeadline: 7 * 24 * time.Hour,
		Grace: time.Hour, URLExpiry: time.Hour, MaxMetadataBytes: models.MaxMetadataBytes,
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	if c.Worker.Interval.Std() != time.Minute || !c.Has(RoleAPI) || !c.Has(RoleEvents) || !c.Has(RoleWorker) || *c.Stores["main"].PathStyle {
		t.Errorf("%s", c)
	}
}

// A zero that is written down is not a default.
func TestGivenZeroStays(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, minimal+"collections: {a: {grace: 0s, max_metadata_bytes: 0}, b: }\n")
	if p := c.Policies()["a"]; p.Grace != 0 || p.MaxMetadataBytes != 0 {
		t.Errorf("%+v", p)
	}
	if p := c.Policies()["b"]; p.Grace != time.Hour {
		t.Errorf("%+v", p)
	}
}

func TestZeroConfigurationAgainstTheLocalCloud(t *testing.T) {
	t.Parallel()
	c, err := load("", nil, []string{
		"BERTH_URL=http://127.0.0.1:8080", "BERTH_TOKEN=x", "BERTH_TEST_PARTS={}",
		"BERTH_DATABASE_URL=postgres://u@h/d", "BERTH_JWT_SECRET=" + secret32,
		"BERTH_S3_ENDPOINT=http://127.0.0.1:7070", "BERTH_S3_BUCKET=berth",
		"BERTH_SQS_ENDPOINT=http://127.0.0.1:4566", "BERTH_SQS_QUEUE_URL=http://127.0.0.1:4566/0/q", "AWS_REGION=eu-west-9",
	})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Stores["main"]
	if len(c.Stores) != 1 || s.Endpoint != "http://127.0.0.1:7070" || s.Bucket != "berth" || s.Region != "eu-west-9" || !*s.PathStyle {
		t.Errorf("store: %+v", s)
	}
	if c.Auth.HS256Secret != secret32 || c.Events.Endpoint != "http://127.0.0.1:4566" || c.Events.QueueURL == "" || c.Policies()["default"].Store != "main" {
		t.Errorf("%s", c)
	}
}

// The local cloud's variables in a shell do not bend another configuration.
func TestShorthandsOverrideNothing(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, minimal+"events: {queue_url: \"https://aws/q\"}\n",
		"BERTH_JWT_SECRET=another", "BERTH_S3_BUCKET=another", "BERTH_S3_ENDPOINT=http://another", "BERTH_SQS_QUEUE_URL=http://another", "BERTH_SQS_ENDPOINT=http://another")
	if s := c.Stores["main"]; s.Bucket != "bucket" || s.Endpoint != "" || c.Auth.HS256Secret != secret32 || c.Events.QueueURL != "https://aws/q" || c.Events.Endpoint != "" {
		t.Errorf("%s", c)
	}
}

func TestEveryScalarHasAVariable(t *testing.T) {
	t.Parallel()
	paths := map[string]string{} // path → word
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, path string) {
		for _, f := range fieldsOf(typ) {
			child, at := typ.Field(f.index).Type, join(path, f.key)
			switch {
			case child.Kind() == reflect.Map:
				walk(child.Elem(), at+".a-b")
			case child.Kind() == reflect.Struct:
				walk(child, at)
			case isScalar(child) || isWords(child):
				paths[at] = map[reflect.Type]string{
					reflect.TypeFor[Duration](): "5s", reflect.TypeFor[Bytes](): "5MiB", reflect.TypeFor[bool](): "true", reflect.TypeFor[*bool](): "true",
				}[child]
				if paths[at] == "" {
					paths[at] = "5"
				}
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	if len(paths) < 60 {
		t.Fatalf("only %d paths", len(paths))
	}
	for path, word := range paths {
		l := &loader{at: map[string]place{}, bad: map[string]bool{}, short: map[string]bool{}}
		l.config.Stores, l.config.Collections = map[string]Store{"a-b": {}, "a": {}}, map[string]Collection{"a-b": {}, "a": {}}
		l.environment([]string{EnvName(path) + "=" + word})
		if len(l.mistakes) > 0 || l.at[path].env != EnvName(path) {
			t.Errorf("%s by %s: %v, at %v", path, EnvName(path), l.mistakes, l.at)
		}
	}
}

func TestEnvironmentWins(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, minimal+"listen: :1\nlog: {level: nonsense}\nworker: {interval: 5m}\n",
		"BERTH_LISTEN=:2", "BERTH_LOG_LEVEL=debug", "BERTH_ROLES=api, worker", "BERTH_WORKER_INTERVAL=1s",
		"BERTH_STORES_NEW_ONE_PUBLIC_ENDPOINT=http://public", "BERTH_STORES_NEW_ONE_BUCKET=new", "BERTH_CORS_ALLOWED_ORIGINS=")
	if c.Listen != ":2" || c.Log.Level != "debug" || len(c.Roles) != 2 || c.Worker.Interval.Std() != time.Second {
		t.Errorf("%s", c)
	}
	if s := c.Stores["new_one"]; s.Bucket != "new" || s.PublicEndpoint != "http://public" {
		t.Errorf("%s", c)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	_, err := load("/etc/berth.yaml", []byte(`listen: nowhere
databse: {}
database:
  url: mysql://u:hunter2@h/d
  max_conns: many
auth:
  hs256_secret: 0123456789
  leeway: 1 hour
stores:
  main:
    bucket: b!
    bucket: c
    prefix: nope
    path_style: yes
  Bad Name: {}
roles: [api, wroker]
log: 5
collections:
  resume:
    max_sise: 10MB
    max_size: 5
    min_size: 6
    store: mian
    part_size: 1MiB
    single_max: -1
    algorithm: md5
    deadline: 2d
    hard_deadline: 1d
    extensions: [.PDF]
    content_types: pdf
    # a comment counts as a line
    steps:
      - name: a
        kind: webhok
      - name: a
        kind: webhook
        url: ftp://x
        secret: short
  &anchor twice: {}
`), []string{"BERTH_STOP_DELAY=1h", "BERTH_WORKER_INTERVAL=soon", "BERTH_DATABASE_ULR=x", "BERTH_LIMITS_MAX_BODY=1B", "BERTH_WORKER_HISTORY=1d"})
	var got Mistakes
	if !errors.As(err, &got) {
		t.Fatalf("got %v", err)
	}
	want := []string{
		`/etc/berth.yaml:1:9: listen: is not host:port or :port`,
		`/etc/berth.yaml:2:1: databse: is not a key; did you mean database?`,
		`/etc/berth.yaml:4:8: database.url: is not a postgres:// URL`,
		`/etc/berth.yaml:5:14: database.max_conns: is not a whole number`,
		`/etc/berth.yaml:7:17: auth.hs256_secret: is not text to YAML; put it in quotes`,
		`/etc/berth.yaml:8:11: auth.leeway: is not a duration such as "90s", "1h30m" or "7d"`,
		`/etc/berth.yaml:12:5: stores.main.bucket: is given twice, first on line 11`,
		`/etc/berth.yaml:13:13: stores.main.prefix: has other than letters, digits, . _ - and /, or does not end with /`,
		`/etc/berth.yaml:14:17: stores.main.path_style: is neither true nor false`,
		`/etc/berth.yaml:15:3: stores.Bad Name: a name has 1 to 63 of a-z, 0-9, _ and -, and begins with a letter`,
		`/etc/berth.yaml:16:14: roles[1]: must be one of api, events, worker; did you mean worker?`,
		`/etc/berth.yaml:17:6: log: must be a mapping of keys to values`,
		`/etc/berth.yaml:20:5: collections.resume.max_sise: is not a key; did you mean max_size?`,
		`/etc/berth.yaml:22:15: collections.resume.min_size: is more than max_size`,
		`/etc/berth.yaml:23:12: collections.resume.store: no store has this name; did you mean main?`,
		`/etc/berth.yaml:24:16: collections.resume.part_size: must be from 5MiB to 5GiB`,
		`/etc/berth.yaml:25:17: collections.resume.single_max: is not a size such as 1048576 or "10MiB"`,
		`/etc/berth.yaml:26:16: collections.resume.algorithm: must be one of sha256, crc64nvme, crc32c`,
		`/etc/berth.yaml:28:20: collections.resume.hard_deadline: must be from 2d to 365d`,
		`/etc/berth.yaml:29:18: collections.resume.extensions[0]: is not 1 to 16 of a-z and 0-9, without the dot`,
		`/etc/berth.yaml:30:20: collections.resume.content_types: must be a list`,
		`/etc/berth.yaml:34:15: collections.resume.steps[0].kind: must be one of webhook, inspect; did you mean webhook?`,
		`/etc/berth.yaml:35:15: collections.resume.steps[1].name: is the name of an earlier step`,
		`/etc/berth.yaml:37:14: collections.resume.steps[1].url: is not a URL that begins with http:// or https://`,
		`/etc/berth.yaml:38:17: collections.resume.steps[1].secret: has fewer than 16 bytes; calls are signed with it`,
		`$BERTH_DATABASE_ULR: BERTH_DATABASE_ULR: is no key's variable`,
		`$BERTH_LIMITS_MAX_BODY: limits.max_body: must be from 64KiB to 16MiB`,
		`$BERTH_STOP_DELAY: stop_delay: must be from 0s to 5m0s`,
		`$BERTH_WORKER_HISTORY: worker.history: must be from 31d to 36500d`,
		`$BERTH_WORKER_INTERVAL: worker.interval: is not a duration such as "90s", "1h30m" or "7d"`,
	}
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i].Error()
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%d:\n got  %s\n want %s", i, g, w)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "0123456789") {
		t.Errorf("a secret in %v", err)
	}
}

func TestSingleMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":         {"a: [\nb: c\n", "berth.yaml:3:1: did not find expected"},
		"flow":            {minimal + "log: {level: info\nlisten: x\n", "berth.yaml:4:1: "},
		"tab":             {"listen: x\n\tfoo: bar", "berth.yaml:2:1: "},
		"a list":          {"- a", "berth.yaml:1:1: must be a mapping"},
		"two documents":   {minimal + "---\nlisten: :1\n", "second document"},
		"alias":           {minimal + "collections:\n  a: &x {}\n  b: *x\n", "berth.yaml:6:6: collections.b: anchors"},
		"number as key":   {minimal + "collections: {5: {}}", "a key must be a word"},
		"no database":     {strings.Replace(minimal, `url: "postgres://u:hunter2@h/db"`, "max_conns: 2", 1), "berth.yaml:1:11: database.url: is missing"},
		"no auth":         {strings.Replace(minimal, "hs256_secret", "audience", 1), "berth.yaml:2:7: auth: needs hs256_secret or jwks_url"},
		"short secret":    {strings.Replace(minimal, secret32, "short", 1), "fewer than 32 bytes"},
		"no store":        {strings.Replace(minimal, "stores", "#", 1), "stores: there is none"},
		"no bucket":       {strings.Replace(minimal, "bucket: bucket", "", 1), "berth.yaml:3:10: stores.main.bucket: is missing"},
		"half a key pair": {strings.Replace(minimal, "bucket: bucket", "bucket: bucket, access_key_id: x", 1), "secret_access_key: is missing"},
		"same bucket":     {strings.Replace(minimal, "bucket}", "bucket, prefix: a/}, two: {bucket: bucket, prefix: a/b/}", 1), "stores.two.bucket: is the one of store main"},
		"which store":     {strings.Replace(minimal, "main: {bucket: bucket}", "a: {bucket: aaa}, b: {bucket: bbb}", 1), "collections.default.store: is missing"},
		"http jwks":       {minimal + "x: 1\n", "x: is not a key"},
		"jwks":            {strings.Replace(minimal, "hs256_secret: \""+secret32, "jwks_url: \"http://id.example.com/", 1), "is not https"},
		"user in URL":     {minimal + "public_url: https://u:hunter2@h\n", "has a user in it"},
		"only events":     {minimal + "roles: [events]\n", "events.queue_url: is missing, and this process has no other role"},
		"origin":          {minimal + "cors: {allowed_origins: [\"https://a/b\"]}\n", "berth.yaml:4:26: cors.allowed_origins[0]: is not an origin"},
		"no receiver":     {minimal + "telemetry: {otlp_endpoint: \"collector:4318\"}\n", "telemetry.otlp_endpoint: is not a URL"},
		"its token":       {minimal + "telemetry: {otlp_endpoint: \"http://me:hunter2@collector:4318\"}\n", "has a user in it"},
		"ratio over all":  {minimal + "telemetry: {sample_ratio: 1.5}\n", "telemetry.sample_ratio: is not from 0 to 1"},
		"no number":       {minimal + "telemetry: {sample_ratio: NaN}\n", "telemetry.sample_ratio: is not from 0 to 1"},
		"ratio in words":  {minimal + "telemetry: {sample_ratio: half}\n", "telemetry.sample_ratio: is not a number"},
		"reap way":        {minimal + "reap: {dispatch: sns}\n", "reap.dispatch: must be one of poll, sqs"},
		"reap no queue":   {minimal + "reap: {dispatch: sqs}\n", "reap.queue_url: is missing, since reap.dispatch is sqs"},
		"reap FIFO":       {minimal + "reap: {dispatch: sqs, queue_url: \"https://q/1/a.fifo\"}\n", "berth.yaml:4:34: reap.queue_url: is a FIFO queue"},
		"reap on events":  {minimal + "events: {queue_url: \"https://q/1/a\"}\nreap: {queue_url: \"https://q/1/a\"}\n", "reap.queue_url: is events.queue_url"},
		"reap on outbox":  {minimal + "outbox: {queue_url: \"https://q/1/a\"}\nreap: {queue_url: \"https://q/1/a\"}\n", "reap.queue_url: is outbox.queue_url"},
		"reap net":        {minimal + "reap: {net: 1h}\n", "reap.net: must be from 1s to 10m"},
		"empty item":      {minimal + "collections: {a: {extensions: [ ~, a]}}\n", "berth.yaml:4:33: collections.a.extensions[0]: is empty"},
		"secret and file": {minimal[:strings.Index(minimal, "}\nstores")] + ", hs256_secret_file: x}\n" + minimal[strings.Index(minimal, "stores"):], "auth.hs256_secret: is given together with hs256_secret_file"},
		"no secret file":  {strings.Replace(minimal, "hs256_secret: ", "hs256_secret_file: /nowhere/", 1), "auth.hs256_secret_file: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load("berth.yaml", []byte(c.text), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant …%s…", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret in %v", err)
			}
		})
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"jwt": secret32 + "\n",
		"berth.yaml": `database: {url: "postgres://h/d"}
auth: {hs256_secret_file: jwt}
stores: {main: {bucket: bucket}}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(filepath.Join(dir, "berth.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Auth.HS256Secret != secret32 {
		t.Errorf("got %q", c.Auth.HS256Secret.Reveal())
	}
	// A variable wins over the file that the configuration names.
	text, _ := os.ReadFile(filepath.Join(dir, "berth.yaml"))
	other := strings.ToUpper(secret32)
	c, err = load(filepath.Join(dir, "berth.yaml"), text, []string{"BERTH_AUTH_HS256_SECRET=" + other})
	if err != nil || c.Auth.HS256Secret.Reveal() != other {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestNothingPrintsSecrets(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, strings.Replace(minimal, "bucket: bucket", "bucket: bucket, access_key_id: id, secret_access_key: hunter2, notification_token: hunter2hunter2hunter2", 1)+
		"collections: {a: {steps: [{name: a, kind: webhook, url: 'http://h', secret: hunter2hunter2hunter2}]}}\n")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "auth", c.Auth, "secret", c.Auth.HS256Secret)
	j, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{c.String(), log.String(), string(j), fmt.Sprintf("%v %+v %#v %v", *c, c.Auth, c.Auth, c.Stores)} {
		if strings.Contains(s, "hunter2") || strings.Contains(s, secret32) {
			t.Errorf("a secret in %s", s)
		}
		if !strings.Contains(s, redacted) {
			t.Errorf("no mark in %s", s)
		}
	}
}

// A configuration that a program makes and marshals loads as what it was.
func TestMarshalled(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, minimal+"collections: {a: {deadline: 36h, max_size: 10MB}}\n")
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, string(text))
	if !reflect.DeepEqual(c, again) {
		t.Errorf("got  %s\nwant %s\nfrom\n%s", again, c, text)
	}
}

func TestStoreOf(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, strings.Replace(minimal, "bucket}", "bucket, prefix: a/}, two: {bucket: bucket, prefix: b/}", 1))
	for _, x := range []struct {
		bucket, key string
		want        models.StoreName
	}{{"bucket", "a/x", "main"}, {"bucket", "b/x", "two"}, {"bucket", "c/x", ""}, {"other", "a/x", ""}} {
		if got, ok := c.StoreOf(x.bucket, x.key); got != x.want || ok != (x.want != "") {
			t.Errorf("%v: got %q, %t", x, got, ok)
		}
	}
}

func FuzzLoad(f *testing.F) {
	example, err := os.ReadFile("example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example), "BERTH_LISTEN", "x")
	f.Add(minimal, "BERTH_STORES_A_B_BUCKET", "x")
	f.Add("a: &a [*a]", "BERTH_COLLECTIONS_RESUME_MAX_SIZE", "1")
	f.Add("collections: {a: {steps: [{secret_file: /dev/null}]}}", "BERTH_ROLES", ",,")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		if strings.Contains(text, "_file") || strings.Contains(name, "_FILE") {
			t.Skip("would read files of this machine")
		}
		c, err := load("fuzz.yaml", []byte(text), []string{name + "=" + value})
		if err != nil {
			_ = err.Error()
			return
		}
		for name, p := range c.Policies() {
			if p.PartSize < models.MinPartSize || p.Deadline <= 0 || c.Stores[string(p.Store)].Bucket == "" {
				t.Errorf("%s: accepted %+v", name, p)
			}
		}
	})
}
