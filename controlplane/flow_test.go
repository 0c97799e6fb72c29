package controlplane_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

const mib = 1 << 20

func open(t *testing.T, s *stack.Stack, collection string, size int64, change ...func(*controlplane.OpenRequest)) controlplane.UploadView {
	t.Helper()
	req := controlplane.OpenRequest{Collection: collection, Name: "a file.bin", Size: size}
	for _, f := range change {
		f(&req)
	}
	v, err := s.Service.Open(t.Context(), stack.Caller("ann"), req)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// send pins and sends the parts of body with the given numbers, all if none.
func send(t *testing.T, s *stack.Stack, v controlplane.UploadView, body []byte, numbers ...int) {
	t.Helper()
	req := controlplane.SignRequest{}
	for n := 1; n <= v.PartCount; n++ {
		if len(numbers) == 0 || slices.Contains(numbers, n) {
			req.Parts = append(req.Parts, controlplane.PartRequest{Number: n, Checksum: v.Checksum.Algorithm.Sum(part(v, body, n))})
		}
	}
	signed, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range signed.Parts {
		stack.MustSend(t, p, part(v, body, p.Number))
	}
}

func part(v controlplane.UploadView, body []byte, n int) []byte {
	from := int64(n-1) * v.PartSize
	return body[from : from+v.PartLength(v.Size, n)]
}

func complete(t *testing.T, s *stack.Stack, id models.UploadID) controlplane.UploadView {
	t.Helper()
	v, err := s.Service.Complete(t.Context(), stack.Caller("ann"), id, controlplane.CompleteRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func wantCode(t *testing.T, err error, code models.Code) {
	t.Helper()
	if models.ErrorCode(err) != code {
		t.Fatalf("error %v, want %s", err, code)
	}
}

// readBack fetches a file by its read URL.
func readBack(t *testing.T, s *stack.Stack, id models.FileID) []byte {
	t.Helper()
	u, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), id)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("reading answered %d", resp.StatusCode)
	}
	b := make([]byte, 0, u.File.Size)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		b = append(b, buf[:n]...)
		if err != nil {
			return b
		}
	}
}

func TestSentVerifiedActive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		collection string
		size       int
		method     models.Method
	}{
		{"default", 0, models.MethodSingle},
		{"default", 1, models.MethodSingle},
		{"default", 5 * mib, models.MethodSingle},
		{"default", 5*mib + 1, models.MethodMultipart},
		{"default", 12*mib + 17, models.MethodMultipart},
		{"crc64", 1000, models.MethodSingle},
		{"crc64", 11*mib + 3, models.MethodMultipart},
		{"crc32c", 1000, models.MethodSingle},
		{"crc32c", 11*mib + 3, models.MethodMultipart},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.collection, c.size), func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			body := stack.Bytes(1, c.size)
			v := open(t, s, c.collection, int64(c.size))
			if v.Method != c.method {
				t.Fatalf("method %s, want %s", v.Method, c.method)
			}
			send(t, s, v, body)
			done := complete(t, s, v.ID)
			if done.State != models.UploadCommitted || done.File == nil || done.File.State != models.FileActive {
				t.Fatalf("upload %s, file %+v", done.State, done.File)
			}
			f := *done.File
			if !f.Declared || f.Checksum.IsZero() || f.Checksum.Algorithm != v.Checksum.Algorithm || f.Checksum.Type != v.Checksum.Type {
				t.Errorf("checksum %+v, declared %v", f.Checksum, f.Declared)
			}
			if f.VersionID == "" || f.VersionID == models.NullVersion {
				t.Errorf("version id %q", f.VersionID)
			}
			if got := readBack(t, s, f.ID); string(got) != string(body) {
				t.Errorf("read %d bytes that differ from the %d sent", len(got), len(body))
			}
			for _, q := range []struct {
				sql  string
				want int64
			}{
				{"SELECT count(*) FROM outbox WHERE type = 'file.active'", 1},
				{"SELECT count(*) FROM tasks WHERE state = 'cancelled' AND kind = 'reap'", 1},
				{"SELECT count(*) FROM tasks WHERE state IN ('pending', 'running')", 0},
				{"SELECT count(*) FROM pins", 0},
				{"SELECT bytes FROM store_usage", int64(c.size)},
				{"SELECT replicas FROM store_usage", 1},
			} {
				if got := stack.Query[int64](t, s, q.sql); got != q.want {
					t.Errorf("%s: %d, want %d", q.sql, got, q.want)
				}
			}
			again := complete(t, s, v.ID)
			if again.State != done.State || again.VersionID != done.VersionID {
				t.Errorf("repeated: %s %s", again.State, again.VersionID)
			}
		})
	}
}

func TestDeclaredChecksumIsHeldAgainstS3s(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(2, 6*mib)
	sum := models.CompositeOf(models.SHA256, [][]byte{digest(body[:5*mib]), digest(body[5*mib:])})
	v := open(t, s, "default", int64(len(body)), func(r *controlplane.OpenRequest) { r.Checksum = &sum })
	send(t, s, v, body)
	if f := complete(t, s, v.ID).File; f.Checksum != sum {
		t.Errorf("checksum %+v, want %+v", f.Checksum, sum)
	}

	// The same declaration, other bytes, pinned as they are: the pins already tell.
	v = open(t, s, "default", int64(len(body)), func(r *controlplane.OpenRequest) { r.Checksum = &sum })
	send(t, s, v, stack.Bytes(3, 6*mib))
	_, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	wantCode(t, err, models.CodeDigestMismatch)

	// Unpinned, with an algorithm that S3 can check over the whole: it refuses the sum,
	// and the session stays open for mending.
	crc := models.Checksum{Algorithm: models.CRC64NVME, Value: models.CRC64NVME.Sum(body)}
	v = open(t, s, "crc64", int64(len(body)), func(r *controlplane.OpenRequest) { r.Checksum = &crc })
	if len(v.Parts) != 2 {
		t.Fatalf("the answer to open carries %d URLs", len(v.Parts))
	}
	other := stack.Bytes(3, 6*mib)
	for _, p := range v.Parts {
		stack.MustSend(t, p, part(v, other, p.Number))
	}
	_, err = s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	wantCode(t, err, models.CodeChecksumMismatch)
	send(t, s, v, body)
	if got := complete(t, s, v.ID); got.File == nil || got.File.Checksum.Value != crc.Value {
		t.Errorf("after mending: %+v", got.File)
	}
}

// A wrong claim at complete changes nothing: the right one, or none, goes through after it.
func TestWrongClaimPoisonsNothing(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 6*mib)
	for _, c := range []struct {
		collection string
		pinned     bool
		code       models.Code
	}{{"default", true, models.CodeDigestMismatch}, {"crc64", true, models.CodeDigestMismatch}, {"crc64", false, models.CodeChecksumMismatch}} {
		v := open(t, s, c.collection, 6*mib)
		wrong := &models.Checksum{Value: v.Checksum.Algorithm.Sum([]byte("other"))}
		for _, claim := range []bool{true, false} {
			// Before any part is there, and after.
			_, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{Checksum: wrong})
			if claim {
				wantCode(t, err, models.CodeMissingParts)
				if c.pinned {
					send(t, s, v, body)
				} else {
					for _, p := range v.Parts {
						stack.MustSend(t, p, part(v, body, p.Number))
					}
				}
				continue
			}
			wantCode(t, err, c.code)
		}
		if got := complete(t, s, v.ID); got.State != models.UploadCommitted {
			t.Errorf("%s: %s", c.collection, got.State)
		}
	}
}

func TestPartsOfACompositeMustBePinned(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	for collection, size := range map[string]int64{"default": 6 * mib, "pinned": 10} {
		v := open(t, s, collection, size)
		if len(v.Parts) != 0 {
			t.Errorf("%s: a URL was given for bytes of which nothing is known", collection)
		}
		_, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{From: 1, To: 1})
		wantCode(t, err, models.CodeInvalidRequest)
	}
}

func digest(b []byte) []byte {
	d, _ := models.SHA256.ParseDigest(models.SHA256.Sum(b))
	return d
}

func TestS3RefusesOtherBytesUnderOurURL(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	for _, collection := range []string{"default", "crc64", "crc32c"} {
		for _, size := range []int{100, 6 * mib} {
			v := open(t, s, collection, int64(size))
			body := stack.Bytes(4, size)
			good := part(v, body, 1)
			signed, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{
				Parts: []controlplane.PartRequest{{Number: 1, Checksum: v.Checksum.Algorithm.Sum(good)}}})
			if err != nil {
				t.Fatal(err)
			}
			p := signed.Parts[0]
			for what, bad := range map[string][]byte{
				"other bytes": stack.Bytes(5, len(good)),
				"shorter":     good[:len(good)-1],
				"longer":      append(slices.Clone(good), 0),
			} {
				status, err := stack.Send(t.Context(), p, bad)
				if err == nil && (status < 400 || status > 499) {
					t.Errorf("%s %d: %s: S3 answered %d", collection, size, what, status)
				}
			}
			bare := p
			bare.Headers = models.Headers{{Name: "content-type", Value: p.Headers.Get("content-type")}}
			if status, err := stack.Send(t.Context(), bare, good); err == nil && status < 400 {
				t.Errorf("%s %d: without the signed headers S3 answered %d", collection, size, status)
			}
			stack.MustSend(t, p, good)
			if size == 100 {
				if status, _ := stack.Send(t.Context(), p, good); status != http.StatusPreconditionFailed {
					t.Errorf("%s: a replayed PUT was answered %d", collection, status)
				}
			}
		}
	}
}

func TestPinnedOnce(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 6*mib)
	body := stack.Bytes(6, 6*mib)
	send(t, s, v, body, 1)
	_, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{Parts: []controlplane.PartRequest{
		{Number: 2, Checksum: models.SHA256.Sum(part(v, body, 2))}, {Number: 1, Checksum: models.SHA256.Sum([]byte("other"))}}})
	wantCode(t, err, models.CodePartConflict)
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM pins"); n != 1 {
		t.Errorf("%d pins after a conflict, want 1: the request was not all or nothing", n)
	}
	send(t, s, v, body, 1) // the same value again is no conflict
}

func TestIncompleteNamesThePartsAndStaysOpen(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 21*mib)
	body := stack.Bytes(7, 21*mib)
	send(t, s, v, body, 1, 3)
	_, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	wantCode(t, err, models.CodeMissingParts)
	if got := fmt.Sprint(err.(*models.Error).Details["parts"]); got != "[2 4 5]" {
		t.Errorf("names %s", got)
	}
	list, err := s.Service.Parts(t.Context(), stack.Caller("ann"), v.ID)
	if err != nil || len(list.Parts) != 2 || fmt.Sprint(list.Missing) != "[[2 2] [4 5]]" {
		t.Errorf("listed %d, missing %v, error %v", len(list.Parts), list.Missing, err)
	}
	send(t, s, v, body, 2, 4, 5)
	if got := complete(t, s, v.ID); got.State != models.UploadCommitted {
		t.Errorf("state %s", got.State)
	}
}

// Bytes that are all there when the session's end comes are taken by whoever looks first,
// repair or the client; where some are not, the session is over, and no complete revives it.
func TestCompleteAfterTheEnd(t *testing.T) {
	t.Parallel()
	type parts = []models.Part
	all := []int{1, 2, 3, 4, 5}
	for name, c := range map[string]struct {
		collection string
		size       int64
		sent       []int
		list       parts
		code       models.Code
	}{
		"single": {"default", 100, []int{1}, nil, ""}, "single, not sent": {"default", 100, nil, nil, models.CodeSessionExpired},
		"multipart":                 {"default", 21 * mib, all, nil, ""},
		"multipart, a part missing": {"default", 21 * mib, []int{1, 2, 4, 5}, nil, models.CodeSessionExpired},
		// Repair would take it all the same.
		"multipart, another list": {"default", 21 * mib, all, parts{{Number: 1, ETag: `"x"`}, {Number: 2}, {Number: 3}, {Number: 4}, {Number: 5}}, models.CodePartCorrupt},
		// Nobody may commit it any more.
		"single, for a commit": {"draft", 100, []int{1}, nil, models.CodeSessionExpired}, "multipart, for a commit": {"draft", 21 * mib, all, nil, models.CodeSessionExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			v := open(t, s, c.collection, c.size)
			if len(c.sent) > 0 {
				send(t, s, v, stack.Bytes(7, int(c.size)), c.sent...)
			}
			s.Clock.Advance(stack.Query[time.Time](t, s, "SELECT expires_at FROM uploads").Sub(s.Clock.Now()))
			if c.code == "" {
				if got := complete(t, s, v.ID); got.State != models.UploadCommitted {
					t.Errorf("state %s", got.State)
				}
				return
			}
			before := stack.Query[string](t, s, "SELECT state || expires_at FROM uploads")
			for range 2 {
				_, err := s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{Parts: c.list})
				wantCode(t, err, c.code)
			}
			if now := stack.Query[string](t, s, "SELECT state || expires_at FROM uploads"); now != before {
				t.Errorf("was %s, is %s", before, now)
			}
		})
	}
}

func TestTwoCompletesDoOne(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 11*mib)
	send(t, s, v, stack.Bytes(8, 11*mib))
	others := []*controlplane.Service{s.Service, s.NewService(t, s.Store, s.Objects), s.NewService(t, s.Store, s.Objects)}
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			got, err := others[i%3].Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
			if err != nil || got.State != models.UploadCommitted {
				t.Errorf("state %s, error %v", got.State, err)
			}
		})
	}
	// The event is the third side of the same door.
	wg.Go(func() {
		for range 5 {
			for _, err := range s.Service.Settle(t.Context(), []models.ObjectEvent{{Store: stack.Main, Key: v.Key, Created: true}}) {
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	wg.Wait()
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM outbox WHERE type = 'file.active'"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM history WHERE what = 'upload' AND to_state = 'completed'"); n != 1 {
		t.Errorf("%d completions in the history, want 1", n)
	}
}

func TestTheEventAloneActivates(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 1000)
	stack.MustSend(t, v.Parts[0], stack.Bytes(9, 1000))
	for range 3 { // at least once
		for _, err := range s.Service.Settle(t.Context(), []models.ObjectEvent{
			{Store: stack.Main, Key: "b/default/unknown", Created: true},
			{Store: stack.Main, Key: v.Key, Created: true},
			{Store: stack.Main, Key: v.Key, Created: false},
		}) {
			if err != nil {
				t.Error(err)
			}
		}
	}
	f, err := s.Service.File(t.Context(), stack.Caller("ann"), v.FileID)
	if err != nil || f.State != models.FileActive {
		t.Fatalf("file %s, error %v", f.State, err)
	}
	if f.Declared {
		t.Error("nothing was declared, and the record says it was")
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM outbox"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestDeferredRestsUntilCommitted(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "draft", 100)
	_, err := s.Service.Commit(t.Context(), stack.Caller("ann"), v.ID, controlplane.CommitRequest{Name: "x"})
	wantCode(t, err, models.CodeSessionNotCompleted)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	if got := complete(t, s, v.ID); got.State != models.UploadCompleted {
		t.Fatalf("state %s", got.State)
	}
	_, err = s.Service.ContentURL(t.Context(), stack.Caller("ann"), v.FileID)
	wantCode(t, err, models.CodeNotReady)
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM tasks WHERE state = 'pending'"); n != 1 {
		t.Errorf("%d open tasks: the cleanup intent must stand until the commit", n)
	}
	for range 2 {
		f, err := s.Service.Commit(t.Context(), stack.Caller("ann"), v.ID, controlplane.CommitRequest{Name: "report.pdf", ContentType: "application/pdf", Metadata: []byte(`{"a": 1}`)})
		if err != nil || f.State != models.FileActive || f.Name != "report.pdf" || f.ContentType != "application/pdf" {
			t.Fatalf("file %+v, error %v", f, err)
		}
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM outbox"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestAbortFailsTheFileAndBringsTheReapForward(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "resume", 6*mib, func(r *controlplane.OpenRequest) { r.Name = "cv.pdf" })
	if got := stack.Query[int64](t, s, "SELECT files FROM quotas"); got != 1 {
		t.Fatalf("reserved %d", got)
	}
	for range 2 {
		got, err := s.Service.Abort(t.Context(), stack.Caller("ann"), v.ID)
		if err != nil || got.State != models.UploadAborted {
			t.Fatalf("state %s, error %v", got.State, err)
		}
	}
	if got := stack.Query[int64](t, s, "SELECT files + bytes FROM quotas"); got != 0 {
		t.Errorf("quota holds %d after the abort", got)
	}
	if late := stack.Query[bool](t, s, "SELECT run_at > $1 FROM tasks WHERE kind = 'reap'", s.Clock.Now()); late {
		t.Error("the reap task was not brought forward")
	}
	if st := stack.Query[string](t, s, "SELECT state FROM replicas"); st != string(models.ReplicaDeletePending) {
		t.Errorf("replica %s", st)
	}
	_, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{From: 1, To: 1})
	wantCode(t, err, models.CodeSessionClosed)
	_, err = s.Service.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	wantCode(t, err, models.CodeSessionClosed)
}

func TestAnotherOwnersIsAbsent(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 100)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	w := open(t, s, "default", 6*mib)
	complete(t, s, v.ID)
	before := s.Snapshot(t)
	eve := stack.Caller("eve")
	twin := stack.Caller("ann")
	twin.Tenant = "other"
	for _, c := range []models.Caller{eve, twin} {
		ctx := t.Context()
		checks := map[string]error{}
		_, checks["show"] = s.Service.Upload(ctx, c, w.ID)
		_, checks["sign"] = s.Service.Sign(ctx, c, w.ID, controlplane.SignRequest{From: 1, To: 1})
		_, checks["parts"] = s.Service.Parts(ctx, c, w.ID)
		_, checks["complete"] = s.Service.Complete(ctx, c, w.ID, controlplane.CompleteRequest{})
		_, checks["commit"] = s.Service.Commit(ctx, c, w.ID, controlplane.CommitRequest{Name: "x"})
		_, checks["abort"] = s.Service.Abort(ctx, c, w.ID)
		_, checks["file"] = s.Service.File(ctx, c, v.FileID)
		_, checks["url"] = s.Service.ContentURL(ctx, c, v.FileID)
		_, checks["history"] = s.Service.History(ctx, c, v.FileID, "", 0)
		name := "x"
		_, checks["patch"] = s.Service.Patch(ctx, c, v.FileID, controlplane.PatchRequest{Name: &name})
		_, checks["delete"] = s.Service.Delete(ctx, c, v.FileID)
		for what, err := range checks {
			if models.ErrorCode(err) != models.CodeNotFound {
				t.Errorf("%s %s/%s: %v, want NOT_FOUND", what, c.Tenant, c.Owner, err)
			}
		}
		page, err := s.Service.Files(ctx, c, controlplane.FileQuery{})
		if err != nil || len(page.Files) != 0 {
			t.Errorf("lists %d files, error %v", len(page.Files), err)
		}
	}
	if after := s.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
}

func TestRacingForTheLastPlace(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	services := []*controlplane.Service{s.Service, s.NewService(t, s.Store, s.Objects), s.NewService(t, s.Store, s.Objects)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[models.Code]int{}
	for i := range 40 {
		wg.Go(func() {
			_, err := services[i%3].Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "resume", Name: fmt.Sprintf("%d.pdf", i), Size: 10})
			mu.Lock()
			defer mu.Unlock()
			codes[models.ErrorCode(err)]++
		})
	}
	wg.Wait()
	if codes[""] != 5 || codes[models.CodeQuotaExceeded] != 35 {
		t.Errorf("outcomes %v, want 5 and 35", codes)
	}
	if n := stack.Query[int64](t, s, "SELECT files FROM quotas"); n != 5 {
		t.Errorf("quota counts %d", n)
	}
}

func TestSameFileTwice(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 100)
	sum := &models.Checksum{Algorithm: models.SHA256, Value: models.SHA256.Sum(body)}
	declared := func(r *controlplane.OpenRequest) { r.Checksum = sum; r.Name = "cv.pdf" }

	first := open(t, s, "instant", 100, declared)
	second := open(t, s, "instant", 100, declared)
	if !second.Resumed || second.ID != first.ID || len(second.Parts) != 1 {
		t.Errorf("an open upload was not continued: %+v", second)
	}
	stack.MustSend(t, second.Parts[0], body)
	complete(t, s, first.ID)
	third := open(t, s, "instant", 100, declared)
	if !third.Instant || third.File == nil || third.File.ID != first.FileID || len(third.Parts) != 0 {
		t.Errorf("not instant: %+v", third)
	}

	a := open(t, s, "resume", 100, declared)
	stack.MustSend(t, a.Parts[0], body)
	complete(t, s, a.ID)
	_, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "resume", Name: "cv.pdf", Size: 100, Checksum: sum})
	wantCode(t, err, models.CodeDuplicateFile)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), a.FileID); err != nil {
		t.Fatal(err)
	}
	open(t, s, "resume", 100, declared) // its place is free again

	x := open(t, s, "default", 100, declared)
	y := open(t, s, "default", 100, declared)
	if x.ID == y.ID {
		t.Error("nothing dedupes here, and the upload was continued unasked")
	}
	z := open(t, s, "default", 100, declared, func(r *controlplane.OpenRequest) { r.Continue = true })
	if z.ID != y.ID || !z.Resumed {
		t.Error("continue did not continue")
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	keyed := func(hash string) func(*controlplane.OpenRequest) {
		return func(r *controlplane.OpenRequest) { r.IdempotencyKey, r.RequestHash = "k1", []byte(hash) }
	}
	var wg sync.WaitGroup
	ids := make([]models.UploadID, 8)
	for i := range ids {
		wg.Go(func() {
			for {
				v, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "default", Name: "x", Size: 6 * mib,
					IdempotencyKey: "k1", RequestHash: []byte("one")})
				if models.ErrorCode(err) == models.CodeIdempotencyInProgress {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				ids[i] = v.ID
				return
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("one key, several uploads: %v", ids)
		}
	}
	if got := stack.Query[string](t, s, `SELECT format('%s uploads, %s files, %s replicas, %s tasks, %s beginnings', (SELECT count(*) FROM uploads),
			(SELECT count(*) FROM files), (SELECT count(*) FROM replicas), (SELECT count(*) FROM tasks),
			(SELECT count(*) FROM history WHERE to_state IN ('preparing', 'writing', 'init')))`); got != "1 uploads, 1 files, 1 replicas, 1 tasks, 3 beginnings" {
		t.Error(got)
	}
	sum := &models.Checksum{Value: models.SHA256.Sum(stack.Bytes(1, 10))}
	again := func(key string) controlplane.UploadView {
		return open(t, s, "instant", 10, func(r *controlplane.OpenRequest) {
			r.Checksum, r.IdempotencyKey, r.RequestHash = sum, key, []byte("same")
		})
	}
	var resumed []bool
	for _, key := range []string{"a", "a", "b", "b"} {
		resumed = append(resumed, again(key).Resumed)
	}
	if !slices.Equal(resumed, []bool{false, false, true, true}) {
		t.Errorf("resumed %v: a repeated answer is not the first one", resumed)
	}
	_, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "default", Name: "x", Size: 7, IdempotencyKey: "k1", RequestHash: []byte("two")})
	wantCode(t, err, models.CodeIdempotencyConflict)
	s.Clock.Advance(25 * time.Hour)
	if v := open(t, s, "default", 7, keyed("two")); v.ID == ids[0] {
		t.Error("an expired key still stands for its answer")
	}
}

// An answer that sent no byte is an answer too: the key stands for it as for any other.
func TestIdempotencyKeyOfAnInstantUpload(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 100)
	sum := &models.Checksum{Value: models.SHA256.Sum(body)}
	first := open(t, s, "instant", 100, func(r *controlplane.OpenRequest) { r.Checksum = sum })
	stack.MustSend(t, first.Parts[0], body)
	complete(t, s, first.ID)
	again := func(hash byte) (controlplane.UploadView, error) {
		return s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "instant", Name: "a", Size: 100,
			Checksum: sum, IdempotencyKey: "k", RequestHash: []byte{hash}})
	}
	for n := range 3 {
		v, err := again(1)
		if err != nil || !v.Instant || v.Replayed != (n > 0) || v.File.ID != first.FileID {
			t.Fatalf("time %d: instant %v, replayed %v, error %v", n, v.Instant, v.Replayed, err)
		}
		if n == 1 { // what became of the file does not make the repetition another request
			if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), first.FileID); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := again(2)
	wantCode(t, err, models.CodeIdempotencyConflict)
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM uploads"); n != 1 {
		t.Errorf("%d uploads, want 1", n)
	}
}

func TestHistoryTellsTheWholeLife(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 10)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 10))
	complete(t, s, v.ID)
	var got []string
	cursor := ""
	for {
		page, err := s.Service.History(t.Context(), stack.Caller("ann"), v.FileID, cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			got = append(got, e.What+":"+e.From+">"+e.To)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	want := []string{"file:>preparing", "replica:>writing", "upload:>uploading", "upload:uploading>completed",
		"replica:writing>ready", "upload:completed>committed", "file:preparing>active", "task:pending>cancelled"}
	if !slices.Equal(got, want) {
		t.Errorf("history\n%v, want\n%v", got, want)
	}
}

func TestHugeUploadsArePlanned(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", models.MaxObjectSize)
	if v.PartCount != 10_000 || v.PartSize != 5<<30 {
		t.Errorf("%d parts of %d", v.PartCount, v.PartSize)
	}
	w := open(t, s, "crc64", models.MaxObjectSize)
	begun := time.Now()
	signed, err := s.Service.Sign(t.Context(), stack.Caller("ann"), w.ID, controlplane.SignRequest{From: 1, To: 10_000})
	if err != nil || len(signed.Parts) != 10_000 {
		t.Fatalf("%d parts, error %v", len(signed.Parts), err)
	}
	t.Logf("10,000 parts: %v", time.Since(begun))
	all := controlplane.SignRequest{}
	for n := 1; n <= 10_000; n++ {
		all.Parts = append(all.Parts, controlplane.PartRequest{Number: n, Checksum: base64.StdEncoding.EncodeToString(digest([]byte{byte(n), byte(n >> 8)}))})
	}
	begun = time.Now()
	if _, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, all); err != nil {
		t.Fatal(err)
	}
	t.Logf("10,000 pinned parts: %v", time.Since(begun))
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM pins"); n != 10_000 {
		t.Errorf("%d pins", n)
	}
	_, err = s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "default", Name: "x", Size: models.MaxObjectSize + 1})
	wantCode(t, err, models.CodeTooLarge)
}
