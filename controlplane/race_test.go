package controlplane_test

import (
	"context"
	"testing"
	"time"

	"berth/controlplane"
	"berth/controlplane/objects"
	"berth/controlplane/store"
	"berth/internal/stack"
	"berth/models"
)

// meanwhile changes what is declared of an upload between the look at S3 and the record.
type meanwhile struct {
	*store.Store
	once func()
}

func (m *meanwhile) do() {
	if f := m.once; f != nil {
		m.once = nil
		f()
	}
}

func (m *meanwhile) Attest(ctx context.Context, a models.Attestation) (models.AttestOutcome, error) {
	m.do()
	return m.Store.Attest(ctx, a)
}

func (m *meanwhile) AttestMany(ctx context.Context, as []models.Attestation, now time.Time) (map[models.UploadID]models.AttestOutcome, error) {
	m.do()
	return m.Store.AttestMany(ctx, as, now)
}

// F1: what is pinned after the object was looked at is held against it all the same.
func TestPinnedBetweenLookAndRecord(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} { // by itself, and in a batch
		s := stack.New(t)
		var events []models.ObjectEvent
		var v controlplane.UploadView
		for range n {
			v = open(t, s, "default", 10)
			stack.MustSend(t, v.Parts[0], stack.Bytes(1, 10))
			events = append(events, models.ObjectEvent{Store: stack.Main, Key: v.Key, Created: true})
		}
		m := &meanwhile{Store: s.Store, once: func() {
			if _, err := s.Service.Sign(t.Context(), stack.Caller("ann"), v.ID, controlplane.SignRequest{
				Parts: []controlplane.PartRequest{{Number: 1, Checksum: models.SHA256.Sum([]byte("other bytes"))}}}); err != nil {
				t.Error(err)
			}
		}}
		for _, err := range s.NewService(t, m, s.Objects).Settle(t.Context(), events) {
			if err != nil {
				t.Error(err)
			}
		}
		if st := stack.Query[string](t, s, "SELECT state FROM files WHERE id = $1", string(v.FileID)); st != "failed" {
			t.Errorf("%d: a file of other bytes than were pinned is %s", n, st)
		}
	}
}

// busy says once that another operation on the key is in progress.
type busy struct {
	*objects.Store
	left int
}

func (b *busy) CompleteMultipart(ctx context.Context, spec models.CompleteSpec) (models.Object, error) {
	if b.left--; b.left >= 0 {
		return models.Object{}, &models.ObjectError{Kind: models.ObjectConflict, Op: "CompleteMultipartUpload", Code: "OperationAborted", Err: context.Canceled}
	}
	return b.Store.CompleteMultipart(ctx, spec)
}

func TestConflictingCompleteKeepsTheSession(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 6*mib)
	send(t, s, v, stack.Bytes(1, 6*mib))
	svc := s.NewService(t, s.Store, &busy{s.Objects, 1})
	_, err := svc.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{})
	wantCode(t, err, models.CodeBusy)
	if got, err := svc.Complete(t.Context(), stack.Caller("ann"), v.ID, controlplane.CompleteRequest{}); err != nil || got.State != models.UploadCommitted {
		t.Errorf("state %s, error %v", got.State, err)
	}
}

// An upload whose parts are all there at its deadline is not thrown away because the store
// is busy with its Complete.
func TestConflictingCompleteAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 6*mib)
	send(t, s, v, stack.Bytes(1, 6*mib))
	svc := s.NewService(t, s.Store, &busy{s.Objects, 1})
	s.Clock.Advance(25 * time.Hour)
	for range 2 {
		_, _ = svc.Repair(t.Context(), time.Minute, 10)
		s.Clock.Advance(time.Minute)
	}
	if got := stack.Query[string](t, s, "SELECT state FROM files"); got != "active" {
		t.Errorf("file %s, want active", got)
	}
}
