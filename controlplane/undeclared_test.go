package controlplane_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"testing"
	"time"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

func unknown(m models.Method) func(*controlplane.OpenRequest) {
	return func(r *controlplane.OpenRequest) { r.SizeUnknown, r.Method, r.Name = true, m, "a.pdf" }
}

// post sends a form as a browser does and returns S3's status.
func post(t *testing.T, f models.SignedForm, body []byte) int {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for k, v := range f.Fields {
		if err := w.WriteField(k, v); err != nil {
			t.Fatal(err)
		}
	}
	part, err := w.CreateFormFile("file", "a.pdf")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(body)
	_ = w.Close()
	resp, err := http.Post(f.URL, w.FormDataContentType(), &b)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func TestUndeclaredFormIsSettledAtTheEnd(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "resume", 0, unknown(models.MethodSingle))
	form, _, err := s.Service.Form(t.Context(), stack.Caller("ann"), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if status := post(t, form, stack.Bytes(1, 10*mib+1)); status < 400 {
		t.Errorf("a form took more than the collection does: %d", status)
	}
	body := stack.Bytes(1, 12345)
	if status := post(t, form, body); status >= 300 {
		t.Fatalf("the form was answered %d", status)
	}
	got := complete(t, s, v.ID)
	if got.File == nil || got.File.State != models.FileActive || got.File.Size != 12345 || got.File.Declared {
		t.Fatalf("file %+v", got.File)
	}
	if n := stack.Query[int64](t, s, "SELECT bytes FROM quotas"); n != 12345 {
		t.Errorf("quota counts %d bytes", n)
	}
	if n := stack.Query[int64](t, s, "SELECT open FROM quotas"); n != 0 {
		t.Errorf("quota counts %d open sessions", n)
	}
	if n := stack.Query[int64](t, s, "SELECT bytes FROM store_usage"); n != 12345 {
		t.Errorf("the store's usage counts %d bytes", n)
	}
}

func TestUndeclaredMultipart(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 0, unknown(models.MethodMultipart))
	signed, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{From: 1, To: 3})
	if err != nil {
		t.Fatal(err)
	}
	body := stack.Bytes(2, 11*mib)
	for i, p := range signed.Parts[:2] {
		stack.MustSend(t, p, body[i*6*mib:min((i+1)*6*mib, len(body))])
	}
	if id, err := s.Service.UploadOf(t.Context(), stack.Caller("ann"), v.Key, v.S3UploadID); err != nil || id != v.ID {
		t.Errorf("found %q, error %v", id, err)
	}
	for _, c := range []struct{ owner, key, s3 string }{{"eve", v.Key, v.S3UploadID}, {"ann", v.Key + "x", v.S3UploadID}, {"ann", v.Key, "other"}, {"ann", v.Key, ""}} {
		_, err := s.Service.UploadOf(t.Context(), stack.Caller(c.owner), c.key, c.s3)
		wantCode(t, err, models.CodeNotFound)
	}
	_, err = s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{Parts: []models.Part{{Number: 1}}})
	wantCode(t, err, models.CodePartCorrupt) // S3 holds a part that the client does not know of
	got := complete(t, s, v.ID)
	if got.File == nil || got.File.Size != int64(len(body)) || string(readBack(t, s, got.File.ID)) != string(body) {
		t.Fatalf("file %+v", got.File)
	}
}

func TestUndeclaredOverrunIsRejected(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "resume", 0, unknown(models.MethodMultipart))
	signed, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{From: 1, To: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range signed.Parts {
		stack.MustSend(t, p, stack.Bytes(1, 6*mib))
	}
	for range 2 {
		_, err = s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
		wantCode(t, err, models.CodeTooLarge)
	}
	if n := stack.Query[int64](t, s, "SELECT files + bytes + open FROM quotas"); n != 0 {
		t.Errorf("quota still counts %d", n)
	}
	if st := stack.Query[string](t, s, "SELECT state FROM uploads"); st != string(models.UploadRejected) {
		t.Errorf("upload %s", st)
	}
}

// Parts without a gap are not all parts where nobody told the size: a client that went
// away in the middle leaves no file.
func TestUndeclaredHalfExpires(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 0, unknown(models.MethodMultipart))
	signed, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{From: 1, To: 2})
	if err != nil {
		t.Fatal(err)
	}
	stack.MustSend(t, signed.Parts[0], stack.Bytes(1, 6*mib))
	s.Clock.Advance(25 * time.Hour)
	if _, err := s.Service.Repair(t.Context(), 0, 10); err != nil {
		t.Fatal(err)
	}
	if st := stack.Query[string](t, s, "SELECT u.state || ' ' || f.state FROM uploads u JOIN files f ON f.id = u.file_id"); st != "expired failed" {
		t.Errorf("upload and file are %s", st)
	}
}

func TestUndeclaredOverGrantIsRejected(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	c := stack.Caller("ann")
	c.Grant = &models.Grant{ID: "g", MaxBytes: 99, Expires: s.Clock.Now().Add(time.Hour)}
	for size, want := range map[int]models.Code{99: "", 100: models.CodeTooLarge} {
		v, err := s.Service.Open(t.Context(), c, controlplane.OpenRequest{Collection: "default", Name: "a", SizeUnknown: true, Method: models.MethodMultipart})
		if err != nil {
			t.Fatal(err)
		}
		signed, err := s.Service.Sign(t.Context(), c, v.ID, controlplane.SignRequest{From: 1, To: 1})
		if err != nil {
			t.Fatal(err)
		}
		stack.MustSend(t, signed.Parts[0], stack.Bytes(1, size))
		for range 2 {
			_, err = s.Service.Complete(t.Context(), c, v.ID, controlplane.CompleteRequest{})
			wantCode(t, err, want)
		}
	}
}

// Where the digest is only known at the end, the duplicate is settled then.
func TestStreamedDuplicate(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 100)
	streamed := func(collection string) controlplane.UploadView {
		v := open(t, s, collection, 100, func(r *controlplane.OpenRequest) { r.Name = "a.pdf" })
		send(t, s, v, body)
		return v
	}
	first := complete(t, s, streamed("instant").ID)
	v := streamed("instant")
	for range 2 {
		got := complete(t, s, v.ID)
		if !got.Instant || got.State != models.UploadCommitted || got.File.ID != first.File.ID {
			t.Fatalf("not handed over: %s, instant %v, file %+v", got.State, got.Instant, got.File)
		}
	}
	complete(t, s, streamed("resume").ID)
	_, err := s.Service.Complete(t.Context(), stack.Caller("ann"), streamed("resume").ID, controlplane.CompleteRequest{})
	wantCode(t, err, models.CodeDuplicateFile)
	for _, c := range []string{"instant", "resume"} {
		if n := stack.Query[int64](t, s, "SELECT files * 1000 + bytes + open * 1000000 FROM quotas WHERE collection = $1", c); n != 1100 {
			t.Errorf("%s: quota %d, want one file of 100 bytes and no session", c, n)
		}
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM tasks WHERE kind = 'reap' AND state = 'pending' AND run_at <= $1", s.Clock.Now()); n != 2 {
		t.Errorf("%d reaps due, want 2", n)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM outbox WHERE type = 'file.active'"); n != 2 {
		t.Errorf("%d files became active, want 2", n)
	}
}

// To its owner it is committed as the older file: a commit that was to come says the same.
func TestStreamedDuplicateIsCommitted(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 100)
	streamed := func(mode models.CommitMode) controlplane.UploadView {
		v := open(t, s, "instant", 100, func(r *controlplane.OpenRequest) { r.Commit = mode })
		send(t, s, v, body)
		return complete(t, s, v.ID)
	}
	first, v := streamed(models.CommitAuto), streamed(models.CommitDeferred)
	for range 2 {
		f, err := s.Service.Commit(t.Context(), stack.Caller("ann"), v.ID, controlplane.CommitRequest{Name: "x"})
		if err != nil || f.ID != first.File.ID {
			t.Fatalf("committed as %s, error %v", f.ID, err)
		}
	}
}

func TestOpenSessionsAreLimited(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	var last controlplane.UploadView
	for i := range 2 {
		last = open(t, s, "few", 10, func(r *controlplane.OpenRequest) { r.Name = fmt.Sprint(i) })
	}
	_, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "few", Name: "x", Size: 10})
	wantCode(t, err, models.CodeQuotaExceeded)
	stack.MustSend(t, last.Parts[0], stack.Bytes(1, 10))
	complete(t, s, last.ID)
	open(t, s, "few", 10)
}
