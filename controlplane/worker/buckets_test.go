package worker_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"berth/controlplane/objects"
	"berth/controlplane/worker"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// putRaw writes under a key as somebody with the bucket's credentials does.
func putRaw(t *testing.T, s *stack.Stack, key, body string) (version string) {
	t.Helper()
	out, err := s.S3.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &s.S3.Bucket, Key: &key, Body: strings.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.VersionId)
}

// hide deletes without a version id.
func hide(t *testing.T, s *stack.Stack, key string) {
	t.Helper()
	if _, err := s.S3.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &s.S3.Bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
}

func settle(t *testing.T, s *stack.Stack, key, version string) {
	t.Helper()
	for _, err := range s.Service.Settle(t.Context(), []models.ObjectEvent{{Store: stack.Main, Key: key, VersionID: version, Created: true}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Where a bucket makes no versions the null version is named, and exactly the key is
// emptied: of objects, of markers where there can be any, of multiparts, and again of what
// a URL let in late.
func TestReapWhereNoVersionsAreMade(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]testkit.Versions{"suspended": testkit.Suspended, "unversioned": testkit.Unversioned} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.On(t, testkit.Bucket(t, kind))
			v := active(t, s, 11*mib)
			one(t, s, models.NullVersion, "SELECT version_id FROM files")
			neighbour := v.Key + ".not"
			putRaw(t, s, neighbour, "x")
			if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
				t.Fatal(err)
			}
			if c := reap(t, s); c.Reaped != 1 || c.Versions != 1 {
				t.Errorf("counts %+v, want one reaped of one version", c)
			}
			wantHeld(t, s, 1, 0)
			one(t, s, "deleted", "SELECT state FROM files")
			one(t, s, int64(1), "SELECT count(*) FROM history WHERE what = 'object' AND to_state = 'deleted' AND version_id = 'null'")

			// A late PUT, and then somebody's delete: a marker of its own where there can be one.
			late := open(t, s, "default", 100)
			if _, err := s.Service.Abort(t.Context(), stack.Caller("ann"), late.ID); err != nil {
				t.Fatal(err)
			}
			if c := reap(t, s); c.Reaped != 1 || c.Versions != 0 {
				t.Errorf("counts %+v, want one reaped of nothing", c)
			}
			stack.MustSend(t, late.Parts[0], stack.Bytes(1, 100))
			s.Clock.Advance(25 * time.Minute)
			if c := reap(t, s); c.Reaped != 1 || c.Versions != 1 {
				t.Errorf("late PUT: counts %+v, want one reaped of one version", c)
			}
			wantHeld(t, s, 1, 0)
			one(t, s, int64(0), "SELECT count(*) FROM replicas WHERE state <> 'deleted'")

			hidden := active(t, s, 10)
			hide(t, s, hidden.Key)
			held, _ := held(t, s) // the neighbour, and a marker of the suspended bucket
			if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), hidden.FileID); err != nil {
				t.Fatal(err)
			}
			if c := reap(t, s); c.Reaped != 1 || c.Versions != held-1 {
				t.Errorf("hidden: counts %+v, want one reaped of %d", c, held-1)
			}
			wantHeld(t, s, 1, 0)
		})
	}
}

// A file that was verified while the bucket made versions keeps its own when they are
// suspended; what is written over it is the null version, foreign and reaped.
func TestSuspendedUnderALivingFile(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := active(t, s, 100)
	s.S3.Suspend(t)
	putRaw(t, s, v.Key, "evil")
	settle(t, s, v.Key, "")
	wantHeld(t, s, 2, 0)
	if c := reap(t, s); c.Reaped != 1 || c.Versions != 1 {
		t.Errorf("counts %+v", c)
	}
	wantHeld(t, s, 1, 0)
	if _, err := s.Objects.Head(t.Context(), v.Key, v.VersionID); err != nil {
		t.Errorf("the file's own version: %v", err)
	}
	if _, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Error(err)
	}
}

// The null version is whatever lies there. A file whose bytes were overwritten is not
// read, and what it references is not deleted, whoever's it is.
func TestOverwrittenNullVersionIsNotServed(t *testing.T) {
	t.Parallel()
	s := stack.On(t, testkit.Bucket(t, testkit.Unversioned))
	v := active(t, s, 100)
	if _, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	putRaw(t, s, v.Key, string(stack.Bytes(1, 100))) // the same bytes, and not ours
	settle(t, s, v.Key, "")
	if _, err := s.Service.ContentURL(t.Context(), stack.Caller("ann"), v.FileID); models.ErrorCode(err) != models.CodeBlobCorrupt {
		t.Errorf("read: %v", err)
	}
	one(t, s, int64(0), "SELECT count(*) FROM foreign_versions")
	reap(t, s)
	wantHeld(t, s, 1, 0)
}

// A version under a legal hold stays, its file is delete_failed and says why; what is not
// held is gone. When the hold is over, a retry by hand ends it.
func TestLockedVersionIsDeleteFailed(t *testing.T) {
	t.Parallel()
	s := stack.On(t, testkit.Bucket(t, testkit.Locked))
	v := active(t, s, 100)
	putRaw(t, s, v.Key, "x")
	hide(t, s, v.Key)
	hold := func(on types.ObjectLockLegalHoldStatus) {
		t.Helper()
		if _, err := s.S3.Client().PutObjectLegalHold(t.Context(), &s3.PutObjectLegalHoldInput{Bucket: &s.S3.Bucket, Key: &v.Key,
			VersionId: &v.VersionID, LegalHold: &types.ObjectLockLegalHold{Status: on}}); err != nil {
			t.Fatal(err)
		}
	}
	hold(types.ObjectLockLegalHoldStatusOn)
	if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
		t.Fatal(err)
	}
	if c := reap(t, s); c.Failed != 1 || c.Versions != 2 {
		t.Errorf("counts %+v, want one failed after two versions", c)
	}
	wantHeld(t, s, 1, 0)
	refused(t, s, "locked: ", v.VersionID)
	if c := reap(t, s); c.Claimed != 0 {
		t.Errorf("tried again by itself: %+v", c)
	}
	one(t, s, int64(1), "SELECT replicas FROM store_usage")

	hold(types.ObjectLockLegalHoldStatusOff)
	id := models.TaskID(stack.Query[string](t, s, "SELECT id FROM tasks WHERE state = 'failed'"))
	if _, err := s.Service.RetryTask(t.Context(), stack.Caller("admin"), id); err != nil {
		t.Fatal(err)
	}
	if c := reap(t, s); c.Reaped != 1 || c.Versions != 1 {
		t.Errorf("counts %+v", c)
	}
	wantHeld(t, s, 0, 0)
	s.Clock.Advance(25 * time.Minute) // the URL's life and the grace
	reap(t, s)
	one(t, s, "deleted", "SELECT state FROM files")
}

// refused asserts that file, replica and task say why a version was not deleted.
func refused(t *testing.T, s *stack.Stack, why, version string) {
	t.Helper()
	one(t, s, "delete_failed", "SELECT state FROM files")
	one(t, s, "delete_failed", "SELECT state FROM replicas")
	for _, q := range []string{"SELECT reason FROM files", "SELECT last_error FROM tasks WHERE state = 'failed'",
		"SELECT why FROM history WHERE what = 'file' AND to_state = 'delete_failed'"} {
		if got := stack.Query[string](t, s, q); !strings.HasPrefix(got, why) || !strings.Contains(got, version) {
			t.Errorf("%s: %q, want %q of %s", q, got, why, version)
		}
	}
}

// Denied by a policy, locked, and not answered for, each of a version in one batch: the
// rest of the batch is gone, and the history says so of each.
func TestDeleteRefusedForSomeVersions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code, message, why string
		final              bool
	}{
		"denied":      {"AccessDenied", "User is not authorized to perform: s3:DeleteObjectVersion", "denied: AccessDenied", true},
		"locked":      {"AccessDenied", "Access Denied because object protected by object lock.", "locked: AccessDenied", true},
		"unavailable": {"InternalError", "We encountered an internal error. Please try again.", "unavailable: InternalError", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.New(t)
			v := active(t, s, 100)
			putRaw(t, s, v.Key, "x")
			refusing := &refusing{version: v.VersionID, code: c.code, message: c.message, on: true}
			st, err := objects.New(objects.Config{Name: stack.Main, Bucket: s.S3.Bucket, Region: s.S3.Region, Endpoint: s.S3.Endpoint, PathStyle: true,
				Credentials: credentials.NewStaticCredentialsProvider(s.S3.AccessKey, s.S3.SecretKey, ""), HTTPClient: &http.Client{Transport: refusing}})
			if err != nil {
				t.Fatal(err)
			}
			refusing.client = s.S3.Client()
			r := reaper(s, "one")
			r.Stores = func(models.StoreName) (worker.ReapObjects, bool) { return st, true }
			if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
				t.Fatal(err)
			}
			if n, err := r.RunOnce(t.Context()); err != nil || n.Failed != 1 || n.Versions != 1 {
				t.Errorf("counts %+v, error %v", n, err)
			}
			wantHeld(t, s, 1, 0)
			one(t, s, int64(1), "SELECT count(*) FROM history WHERE what = 'object' AND to_state = 'deleted'")
			if c.final {
				refused(t, s, c.why, v.VersionID)
				return
			}
			one(t, s, "pending", "SELECT state FROM tasks WHERE kind = 'reap' AND state <> 'cancelled'")
			one(t, s, "deleting", "SELECT state FROM files")
			refusing.on = false
			s.Clock.Advance(time.Minute)
			if n, err := r.RunOnce(t.Context()); err != nil || n.Reaped != 1 {
				t.Errorf("counts %+v, error %v", n, err)
			}
			wantHeld(t, s, 0, 0)
		})
	}
}

// refusing is a store that refuses to delete one version and deletes the others.
type refusing struct {
	client                 *s3.Client
	version, code, message string
	on                     bool
}

func (f *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.on || r.Method != http.MethodPost || !r.URL.Query().Has("delete") {
		return http.DefaultTransport.RoundTrip(r)
	}
	var req struct {
		Objects []struct {
			Key     string `xml:"Key"`
			Version string `xml:"VersionId"`
		} `xml:"Object"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := xml.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	bucket := strings.Trim(r.URL.Path, "/")
	var out bytes.Buffer
	out.WriteString(`<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	for _, o := range req.Objects {
		if o.Version == f.version {
			fmt.Fprintf(&out, "<Error><Key>%s</Key><VersionId>%s</VersionId><Code>%s</Code><Message>%s</Message></Error>", o.Key, o.Version, f.code, f.message)
			continue
		}
		if _, err := f.client.DeleteObject(r.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &o.Key, VersionId: &o.Version}); err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "<Deleted><Key>%s</Key><VersionId>%s</VersionId></Deleted>", o.Key, o.Version)
	}
	out.WriteString("</DeleteResult>")
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/xml"}}, Body: io.NopCloser(&out),
		ContentLength: int64(out.Len()), Request: r}, nil
}

// A PUT that took long lands after the last sweep of a deleted file. Where a bucket makes no
// versions it has the name that the file's had, and is reaped all the same.
func TestLateObjectOfADeletedFileWithoutVersions(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]testkit.Versions{"suspended": testkit.Suspended, "unversioned": testkit.Unversioned} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.On(t, testkit.Bucket(t, kind))
			v := open(t, s, "default", 100)
			stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
			settle(t, s, v.Key, "")
			one(t, s, "active", "SELECT state FROM files")
			if _, err := s.Service.Delete(t.Context(), stack.Caller("ann"), v.FileID); err != nil {
				t.Fatal(err)
			}
			reap(t, s)
			s.Clock.Advance(2 * time.Hour)
			reap(t, s)
			one(t, s, "deleted", "SELECT state FROM files")
			stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
			settle(t, s, v.Key, "")
			reap(t, s)
			wantHeld(t, s, 0, 0)
		})
	}
}
