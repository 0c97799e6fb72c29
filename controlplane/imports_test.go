package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// lay puts an object into the bucket past Berth, with a SHA-256 that the store attests.
func lay(t *testing.T, s *stack.Stack, key string, body []byte) (version string) {
	t.Helper()
	out, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &key, Body: bytes.NewReader(body),
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.VersionId)
}

func importing(key string, change ...func(*controlplane.ImportRequest)) controlplane.ImportRequest {
	req := controlplane.ImportRequest{Key: key, Owner: "ann", Collection: "default", Name: "old.pdf", ContentType: "application/pdf"}
	for _, f := range change {
		f(&req)
	}
	return req
}

func TestImport(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 1000)
	lay(t, s, "b/old/a b+ü.pdf", stack.Bytes(2, 10))
	version := lay(t, s, "b/old/a b+ü.pdf", body)
	req := importing("b/old/a b+ü.pdf", func(r *controlplane.ImportRequest) {
		size := int64(len(body))
		r.Size, r.Metadata = &size, []byte(`{"from":"before"}`)
		r.Checksum = &models.Checksum{Value: models.SHA256.Sum(body)}
	})
	admin := stack.Caller("the admin")
	f, before, err := s.Service.Import(t.Context(), admin, req)
	if err != nil || before {
		t.Fatalf("before %v, %v", before, err)
	}
	stored, err := s.Service.File(t.Context(), stack.Caller("ann"), f.ID)
	if err != nil || stored.State != models.FileActive || stored.VersionID != version || stored.Size != 1000 || !stored.Declared ||
		stored.Checksum != (models.Checksum{Algorithm: models.SHA256, Type: models.FullObject, Value: models.SHA256.Sum(body)}) ||
		stored.UploadID != "" || stored.ActivatedAt.IsZero() || string(stored.Metadata) != `{"from": "before"}` {
		t.Errorf("%+v, %v", stored, err)
	}
	if !bytes.Equal(readBack(t, s, f.ID), body) {
		t.Error("other bytes are read")
	}
	for q, want := range map[string]int64{
		"SELECT count(*) FROM tasks": 0, "SELECT count(*) FROM uploads": 0, "SELECT count(*) FROM quotas": 0,
		"SELECT count(*) FROM outbox WHERE type = 'file.active'": 1, "SELECT count(*) FROM outbox": 1,
		"SELECT replicas FROM store_usage": 1, "SELECT bytes FROM store_usage": 1000,
		"SELECT count(*) FROM history WHERE why = 'imported' AND version_id <> '' AND actor LIKE '%the admin'": 2,
	} {
		if n := stack.Query[int64](t, s, q); n != want {
			t.Errorf("%s: %d, want %d", q, n, want)
		}
	}
	snapshot := s.Snapshot(t)
	again, before, err := s.Service.Import(t.Context(), admin, req)
	if err != nil || !before || again.ID != f.ID {
		t.Errorf("again: %s, before %v, %v", again.ID, before, err)
	}
	if after := s.Snapshot(t); after != snapshot {
		t.Errorf("a repetition changed\nfrom %s\nto   %s", snapshot, after)
	}
}

// An object of which the store attests no checksum is a file without one, and nothing that
// demands one takes it.
func TestImportSaysWhatIsAttested(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := s.NewService(t, s.Store, mute{s.Objects})
	lay(t, s, "b/old/mute", stack.Bytes(1, 10))
	admin := stack.Caller("admin")
	for _, change := range []func(*controlplane.ImportRequest){
		func(r *controlplane.ImportRequest) { r.Collection = "pinned" },
		func(r *controlplane.ImportRequest) {
			r.Checksum = &models.Checksum{Value: models.SHA256.Sum(stack.Bytes(1, 10))}
		},
	} {
		_, _, err := v.Import(t.Context(), admin, importing("b/old/mute", change))
		wantCode(t, err, models.CodeChecksumMismatch)
	}
	f, _, err := v.Import(t.Context(), admin, importing("b/old/mute", func(r *controlplane.ImportRequest) { r.Collection = "instant" }))
	if err != nil || f.Checksum != (models.Checksum{Algorithm: models.SHA256, Type: models.FullObject}) || f.Declared {
		t.Errorf("%+v, %v", f, err)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM files WHERE identity IS NOT NULL"); n != 0 {
		t.Error("nothing is attested, and it has an identity")
	}
}

func TestImportRefuses(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 100)
	lay(t, s, "b/old/a.pdf", body)
	lay(t, s, "elsewhere/a.pdf", body)
	mine := open(t, s, "default", 10)
	stack.MustSend(t, mine.Parts[0], stack.Bytes(1, 10))
	complete(t, s, mine.ID)
	lay(t, s, "b/old/theirs.pdf", body)
	other := stack.Caller("their admin")
	other.Tenant = "other"
	if _, _, err := s.Service.Import(t.Context(), other, importing("b/old/theirs.pdf")); err != nil {
		t.Fatal(err)
	}
	admin := stack.Caller("admin")
	plain := admin
	plain.Scopes = []models.Scope{models.ScopeUpload, models.ScopeRead, models.ScopeDelete}
	granted := admin
	granted.Grant = &models.Grant{Collection: "default"}
	type change = func(*controlplane.ImportRequest)
	key := func(k string) change { return func(r *controlplane.ImportRequest) { r.Key = k } }
	size := int64(99)
	before := s.Snapshot(t)
	for name, c := range map[string]struct {
		caller models.Caller
		change change
		code   models.Code
	}{
		"no admin":             {plain, func(*controlplane.ImportRequest) {}, models.CodeForbidden},
		"a grant":              {granted, func(*controlplane.ImportRequest) {}, models.CodeForbidden},
		"no such object":       {admin, key("b/old/none.pdf"), models.CodeNotFound},
		"no such version":      {admin, func(r *controlplane.ImportRequest) { r.VersionID = "01ARZ3NDEKTSV4RRFFQ69G5FAV" }, models.CodeNotFound},
		"a version with space": {admin, func(r *controlplane.ImportRequest) { r.VersionID = "a b" }, models.CodeInvalidRequest},
		"outside the prefix":   {admin, key("elsewhere/a.pdf"), models.CodeInvalidRequest},
		"no key":               {admin, key(""), models.CodeInvalidRequest},
		"a long key":           {admin, key("b/" + strings.Repeat("a", 1023)), models.CodeInvalidRequest},
		"a key with dots":      {admin, key("b/old/../old/a.pdf"), models.CodeInvalidRequest},
		"a key with newline":   {admin, key("b/old\na.pdf"), models.CodeInvalidRequest},
		"a key not UTF-8":      {admin, key("b/\xff"), models.CodeInvalidRequest},
		"a store that is not":  {admin, func(r *controlplane.ImportRequest) { r.Store = "none" }, models.CodeInvalidRequest},
		"no collection":        {admin, func(r *controlplane.ImportRequest) { r.Collection = "none" }, models.CodeInvalidRequest},
		"a bad name":           {admin, func(r *controlplane.ImportRequest) { r.Name = "a/b" }, models.CodeInvalidRequest},
		"bad metadata":         {admin, func(r *controlplane.ImportRequest) { r.Metadata = []byte("[]") }, models.CodeMetadataInvalid},
		"another size":         {admin, func(r *controlplane.ImportRequest) { r.Size = &size }, models.CodeSizeMismatch},
		"other bytes": {admin, func(r *controlplane.ImportRequest) {
			r.Checksum = &models.Checksum{Algorithm: models.SHA256, Value: models.SHA256.Sum(body[1:])}
		}, models.CodeChecksumMismatch},
		"another algorithm": {admin, func(r *controlplane.ImportRequest) {
			r.Checksum = &models.Checksum{Algorithm: models.CRC64NVME, Value: models.CRC64NVME.Sum(body)}
		}, models.CodeChecksumMismatch},
		"a checksum of nothing": {admin, func(r *controlplane.ImportRequest) { r.Checksum = &models.Checksum{Algorithm: "md5", Value: "x"} }, models.CodeInvalidRequest},
		"a type not taken":      {admin, func(r *controlplane.ImportRequest) { r.Collection, r.Name = "resume", "a.exe" }, models.CodeTypeNotAllowed},
		"a file's key":          {admin, key(mine.Key), models.CodeDuplicateFile},
		"another tenant's key":  {admin, key("b/old/theirs.pdf"), models.CodeNotFound},
	} {
		req := importing("b/old/a.pdf", c.change)
		f, _, err := s.Service.Import(t.Context(), c.caller, req)
		if models.ErrorCode(err) != c.code || f.ID != "" {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if strings.HasPrefix(name, "another tenant") && strings.Contains(err.Error(), "fil_") {
			t.Errorf("%s: tells %v", name, err)
		}
	}
	if after := s.Snapshot(t); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
}

// F5: imports and opens race for the places of one owner, on three servers.
func TestImportsRaceOpensForTheLastPlace(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	services := []*controlplane.Service{s.Service, s.NewService(t, s.Store, s.Objects), s.NewService(t, s.Store, s.Objects)}
	for i := range 15 {
		lay(t, s, fmt.Sprintf("b/old/%d.pdf", i), stack.Bytes(byte(i+1), 10))
	}
	var mu sync.Mutex
	codes := map[models.Code]int{}
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		codes[models.ErrorCode(err)]++
	}
	var wg sync.WaitGroup
	for i := range 15 {
		wg.Go(func() {
			_, err := services[i%3].Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "resume", Name: fmt.Sprintf("%d.pdf", i), Size: 10})
			note(err)
		})
		wg.Go(func() {
			_, _, err := services[(i+1)%3].Import(t.Context(), stack.Caller("admin"), importing(fmt.Sprintf("b/old/%d.pdf", i),
				func(r *controlplane.ImportRequest) { r.Collection = "resume" }))
			note(err)
		})
	}
	wg.Wait()
	if codes[""] != 5 || codes[models.CodeQuotaExceeded] != 25 {
		t.Errorf("outcomes %v, want 5 and 25", codes)
	}
	if n := stack.Query[int64](t, s, `SELECT count(*) FROM quotas q WHERE q.files = 5 AND q.bytes = 50
		AND q.files = (SELECT count(*) FROM files f WHERE f.guarded) AND q.open = (SELECT count(*) FROM uploads)`); n != 1 {
		t.Error("the owner's row is not what the rows say")
	}
}

// One object is one file and one event, however many register it at once; the same bytes
// under another key are a duplicate where the collection says so.
func TestRacingImports(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	services := []*controlplane.Service{s.Service, s.NewService(t, s.Store, s.Objects), s.NewService(t, s.Store, s.Objects)}
	body := stack.Bytes(1, 10)
	race := func(n int, req func(i int) controlplane.ImportRequest) (made, before int, ids map[models.FileID]bool, codes map[models.Code]int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		ids, codes = map[models.FileID]bool{}, map[models.Code]int{}
		for i := range n {
			wg.Go(func() {
				f, was, err := services[i%3].Import(t.Context(), stack.Caller("admin"), req(i))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					codes[models.ErrorCode(err)]++
					return
				case was:
					before++
				default:
					made++
				}
				ids[f.ID] = true
			})
		}
		wg.Wait()
		return
	}
	for _, collection := range []string{"default", "instant"} {
		key := "b/old/one-" + collection
		lay(t, s, key, body)
		made, before, ids, codes := race(12, func(int) controlplane.ImportRequest {
			return importing(key, func(r *controlplane.ImportRequest) { r.Collection = collection })
		})
		if made != 1 || before != 11 || len(ids) != 1 {
			t.Errorf("%s: %d made, %d before, %d files, %v", collection, made, before, len(ids), codes)
		}
	}
	for i := range 6 {
		lay(t, s, fmt.Sprintf("b/old/same-%d.pdf", i), body)
	}
	made, _, _, codes := race(6, func(i int) controlplane.ImportRequest {
		return importing(fmt.Sprintf("b/old/same-%d.pdf", i), func(r *controlplane.ImportRequest) { r.Collection = "resume" })
	})
	if made != 1 || codes[models.CodeDuplicateFile] != 5 {
		t.Errorf("of the same bytes %d were made, %v", made, codes)
	}
	if files, told := stack.Query[int64](t, s, "SELECT count(*) FROM files"), stack.Query[int64](t, s, "SELECT count(*) FROM outbox"); files != 3 || told != 3 {
		t.Errorf("%d files, %d events", files, told)
	}
	// What was imported stands in for an upload of the same bytes.
	v := open(t, s, "instant", 10, func(r *controlplane.OpenRequest) { r.Checksum = &models.Checksum{Value: models.SHA256.Sum(body)} })
	if !v.Instant || v.File == nil || v.File.UploadID != "" {
		t.Errorf("%+v", v)
	}
	_, err := s.Service.Open(t.Context(), stack.Caller("ann"), controlplane.OpenRequest{Collection: "resume", Name: "a.pdf", Size: 10,
		Checksum: &models.Checksum{Value: models.SHA256.Sum(body)}})
	wantCode(t, err, models.CodeDuplicateFile)
}

// mute is a store that attests no checksum.
type mute struct{ controlplane.Objects }

func (m mute) Head(ctx context.Context, key, version string) (models.Object, error) {
	o, err := m.Objects.Head(ctx, key, version)
	o.Checksums = nil
	return o, err
}

// A version that is written over an imported file is foreign, as under any other key.
func TestForeignVersionOverAnImport(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	lay(t, s, "b/old/a.pdf", stack.Bytes(1, 10))
	f, _, err := s.Service.Import(t.Context(), stack.Caller("admin"), importing("b/old/a.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	other := lay(t, s, "b/old/a.pdf", stack.Bytes(2, 10))
	settleAll := func(version string) {
		for _, err := range s.Service.Settle(t.Context(), []models.ObjectEvent{{Store: stack.Main, Key: "b/old/a.pdf", VersionID: version, Created: true}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	settleAll(f.VersionID)
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM tasks"); n != 0 {
		t.Errorf("its own version made %d tasks", n)
	}
	settleAll(other)
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM foreign_versions WHERE version_id = $1", other); n != 1 {
		t.Errorf("%d foreign versions noted, want 1", n)
	}
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM tasks WHERE kind = 'reap' AND state = 'pending'"); n != 1 {
		t.Errorf("%d reap tasks, want 1", n)
	}
}
