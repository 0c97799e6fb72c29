package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/testkit"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is an OTLP receiver over HTTP: a collector that keeps all.
type receiver struct {
	url   string
	mu    sync.Mutex
	raw   bytes.Buffer
	spans []*tracepb.Span
	self  map[string]string // the resource's attributes
	odd   []string
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{self: map[string]string{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body := io.Reader(req.Body)
		if req.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(req.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		var in collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &in)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil || req.URL.Path != "/v1/traces" || req.Method != http.MethodPost {
			r.odd = append(r.odd, fmt.Sprint(req.Method, req.URL.Path, err))
			http.Error(w, "odd", http.StatusBadRequest)
			return
		}
		r.raw.Write(b)
		for _, rs := range in.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				r.self[a.Key] = text(a.Value)
			}
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func text(v *common.AnyValue) string {
	if s, ok := v.Value.(*common.AnyValue_StringValue); ok {
		return s.StringValue
	}
	return v.String()
}

func attr(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return text(a.Value)
		}
	}
	return ""
}

// hooked answers webhooks and keeps what their Traceparent was, by the type of the body.
func hooked(t *testing.T) (url string, heard func(typ string) string) {
	t.Helper()
	var mu sync.Mutex
	got := map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var b struct{ Type string }
		if err := json.NewDecoder(req.Body).Decode(&b); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		got[b.Type] = req.Header.Get("Traceparent")
		mu.Unlock()
		fmt.Fprint(w, `{"verdict":"pass"}`)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/hook?token=a-receivers-secret", func(typ string) string {
		mu.Lock()
		defer mu.Unlock()
		return got[typ]
	}
}

// One trace runs from the client's request over S3's event, through a real queue, and the
// step's webhook to activation and to what others are told of it.
func TestOneTraceFromTheRequestToTheOutbox(t *testing.T) {
	t.Parallel()
	const traceID, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	const stepSecret, hookSecret = "the-secret-of-the-step", "the-secret-of-the-outbox"
	r := receive(t)
	hook, heard := hooked(t)
	told := testkit.SQS(t)
	c := realConfig(t)
	c.Telemetry = config.Telemetry{OTLPEndpoint: r.url, ServiceName: "berthd-under-test"}
	c.Worker.Interval = config.Duration(time.Second)
	c.Webhooks.AllowPrivate = true
	c.Outbox = config.Outbox{QueueURL: told.QueueURL, WebhookURL: hook, WebhookSecret: hookSecret}
	c.Collections = map[string]config.Collection{
		"default": {}, "checked": {Steps: []config.Step{{Name: "scan", Kind: "webhook", URL: hook, Secret: stepSecret}}},
	}
	p := start(t, c)
	tok := token(t)

	u := openTraced(t, p, tok, "checked", "00-"+traceID+"-"+parent+"-01")
	sendPart(t, u, "hello")
	testkit.Eventually(t, 60*time.Second, func() error {
		if s := fileState(t, p, tok, u.FileID); s != "active" {
			return fmt.Errorf("is %s", s)
		}
		if heard("file.active") == "" {
			return fmt.Errorf("nobody was told")
		}
		return nil
	})
	attribute := toldOf(t, told, u.FileID)
	// Of another trace: linked with the upload's. The grant and the token are looked for below.
	var view upload
	call(t, http.MethodGet, p.url+"/v1/uploads/"+u.ID, tok, nil, &view)
	narrow := token(t, "--scope", "upload")
	call(t, http.MethodGet, p.url+"/uppy/"+narrow+"/s3/params?filename=a.txt&type=text/plain", tok, nil, nil)
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.odd) > 0 {
		t.Errorf("odd calls: %v", r.odd)
	}
	if r.self["service.name"] != "berthd-under-test" || !strings.Contains(r.self["berth.roles"], "worker") || r.self["service.instance.id"] == "" {
		t.Errorf("resource: %v", r.self)
	}
	of := map[string]*tracepb.Span{} // of the trace
	byID := map[string]*tracepb.Span{}
	for _, s := range r.spans {
		byID[hex.EncodeToString(s.SpanId)] = s
		if hex.EncodeToString(s.TraceId) == traceID {
			of[s.Name] = s
		}
	}
	for _, name := range []string{"POST /v1/uploads", "open", "settle upload", "S3/HeadObject", "process", "record step", "send sqs", "send webhook"} {
		if of[name] == nil {
			t.Errorf("the trace lacks %q", name)
		}
	}
	if t.Failed() {
		t.Fatalf("the trace has %d spans of %d: %v", len(of), len(r.spans), of)
	}
	id := func(s *tracepb.Span) string { return hex.EncodeToString(s.SpanId) }
	under := func(child, parent string) {
		t.Helper()
		if got := hex.EncodeToString(of[child].ParentSpanId); got != id(of[parent]) {
			t.Errorf("%q is under %v, not under %q", child, byID[got].GetName(), parent)
		}
	}
	if got := hex.EncodeToString(of["POST /v1/uploads"].ParentSpanId); got != parent {
		t.Errorf("the request is under %s", got)
	}
	under("open", "POST /v1/uploads")
	under("settle upload", "POST /v1/uploads")
	under("S3/HeadObject", "settle upload")
	under("process", "POST /v1/uploads")
	for typ, span := range map[string]string{"file.process": "process", "file.active": "send webhook"} {
		if want := "00-" + traceID + "-" + id(of[span]) + "-01"; heard(typ) != want {
			t.Errorf("%s came with %q, not with %q", typ, heard(typ), want)
		}
	}
	if want := "00-" + traceID + "-" + id(of["send sqs"]) + "-01"; attribute != want {
		t.Errorf("the message came with %q, not with %q", attribute, want)
	}
	linked(t, r.spans, of["settle upload"], traceID)
	for _, s := range r.spans {
		if s.Name == "GET /v1/uploads/:id" && (len(s.Links) != 1 || hex.EncodeToString(s.Links[0].TraceId) != traceID || attr(s, "berth.upload.id") != u.ID) {
			t.Errorf("a later request: links %v, upload %q", s.Links, attr(s, "berth.upload.id"))
		}
	}
	for name, secret := range map[string]string{
		"token": tok, "grant": narrow, "any token": "eyJ", "signature": "X-Amz-Signature", "credential": "X-Amz-Credential", "step": stepSecret,
		"outbox": hookSecret, "receiver": "a-receivers-secret", "S3": c.Stores["main"].SecretAccessKey.Reveal(), "JWT": testSecret, "lease": "lease_token",
		"statement": "SELECT", "key": "default/",
	} {
		if bytes.Contains(r.raw.Bytes(), []byte(secret)) {
			t.Errorf("%s: a span holds %q", name, secret)
		}
	}
	if !strings.Contains(p.output(), `"trace_id":"`+traceID+`"`) {
		t.Error("no line of the log names the trace")
	}
}

// linked holds the span of an upload and that of the batch against each other.
func linked(t *testing.T, spans []*tracepb.Span, part *tracepb.Span, traceID string) {
	t.Helper()
	if len(part.Links) != 1 {
		t.Fatalf("the upload's part has %d links", len(part.Links))
	}
	attested := false // with whatever else came in that batch
	for _, s := range spans {
		attested = attested || s.Name == "attest many" && bytes.Equal(s.ParentSpanId, part.Links[0].SpanId)
	}
	if !attested {
		t.Error("nothing under the batch's span records what was verified")
	}
	for _, s := range spans {
		if !bytes.Equal(s.SpanId, part.Links[0].SpanId) {
			continue
		}
		if s.Kind != tracepb.Span_SPAN_KIND_CONSUMER || !strings.HasPrefix(s.Name, "process ") || attr(s, "messaging.system") != "aws_sqs" {
			t.Errorf("the upload's part is linked to %s", s)
		}
		for _, l := range s.Links {
			if hex.EncodeToString(l.TraceId) == traceID {
				return
			}
		}
		t.Errorf("the batch is not linked to the upload: %s", s)
		return
	}
	t.Error("the batch is no span")
}

// What is off says nothing and keeps nothing; what is malformed begins a trace of its own.
func TestTracesAreOffByDefault(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	p := start(t, c)
	tok := token(t)
	u := openTraced(t, p, tok, "default", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	sendPart(t, u, "hello")
	testkit.Eventually(t, 30*time.Second, func() error {
		if s := fileState(t, p, tok, u.FileID); s != "active" {
			return fmt.Errorf("is %s", s)
		}
		return nil
	})
	n := scalar[int](t, c.Database.URL, "SELECT (SELECT count(*) FROM uploads WHERE traceparent IS NOT NULL) + (SELECT count(*) FROM outbox WHERE traceparent IS NOT NULL)")
	if n != 0 || strings.Contains(p.output(), "trace_id") {
		t.Errorf("%d rows keep a trace", n)
	}
}

// A receiver that is away costs its spans, and nothing else: neither a request nor the end.
func TestTheReceiverIsAway(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c := realConfig(t)
	c.Telemetry = config.Telemetry{OTLPEndpoint: gone.URL}
	p := start(t, c)
	tok := token(t)
	u := openTraced(t, p, tok, "default", "nonsense")
	sendPart(t, u, "hello")
	testkit.Eventually(t, 30*time.Second, func() error {
		if s := fileState(t, p, tok, u.FileID); s != "active" {
			return fmt.Errorf("is %s", s)
		}
		return nil
	})
	if got := scalar[string](t, c.Database.URL, "SELECT traceparent FROM uploads"); len(got) != 55 || strings.Contains(got, "nonsense") {
		t.Errorf("kept %q", got)
	}
	if err := p.stop(t); err != nil {
		t.Errorf("%v\n%s", err, p.output())
	}
}

func openTraced(t *testing.T, p *process, tok, collection, traceparent string) upload {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/uploads",
		strings.NewReader(`{"collection":"`+collection+`","name":"a.txt","size":5,"content_type":"text/plain"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tok)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", traceparent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var u upload
	if err := json.NewDecoder(resp.Body).Decode(&u); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("open: %d %v", resp.StatusCode, err)
	}
	return u
}

// toldOf waits for a file's event in the outbox's queue and returns its traceparent.
func toldOf(t *testing.T, q testkit.SQSInfo, file string) (traceparent string) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() error {
		out, err := q.Client().ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &q.QueueURL, MaxNumberOfMessages: 10,
			WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"}})
		if err != nil {
			return err
		}
		for _, m := range out.Messages {
			if strings.Contains(*m.Body, file) && m.MessageAttributes["traceparent"].StringValue != nil {
				traceparent = *m.MessageAttributes["traceparent"].StringValue
				return nil
			}
		}
		return fmt.Errorf("%d messages, none of them of %s with a traceparent", len(out.Messages), file)
	})
	return traceparent
}

// scalar is the one value that a query gives.
func scalar[T any](t *testing.T, dsn config.Secret, query string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
