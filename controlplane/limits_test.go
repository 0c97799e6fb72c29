package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"berth/controlplane"
	"berth/controlplane/reconcile"
	"berth/internal/stack"
	"berth/models"
)

// limit sets how many files an owner may have in the default collection; 0: no limit.
func limit(t *testing.T, s *stack.Stack, files int64) {
	t.Helper()
	reload(t, s, "default", func(c *models.Collection) { c.MaxFiles = files })
}

// reload gives the service the stack's collections with one of them changed.
func reload(t *testing.T, s *stack.Stack, name string, change func(*models.Collection)) {
	t.Helper()
	cols := stack.Collections()
	c := cols[name]
	change(&c)
	cols[name] = c
	if err := s.Service.SetCollections(cols); err != nil {
		t.Fatal(err)
	}
}

func tryOpen(t *testing.T, s *stack.Stack, owner string) (controlplane.UploadView, error) {
	t.Helper()
	return s.Service.Open(t.Context(), stack.Caller(owner), controlplane.OpenRequest{Collection: "default", Name: "a", Size: 100})
}

// counts are what quotas says of an owner, and what the rows say.
func counts(t *testing.T, s *stack.Stack, owner string) (kept, real string) {
	t.Helper()
	kept = stack.Query[string](t, s, fmt.Sprintf("SELECT format('%%s %%s %%s', files, bytes, open) FROM quotas WHERE owner = '%s'", owner))
	real = stack.Query[string](t, s, fmt.Sprintf(`SELECT format('%%s %%s %%s', count(*), COALESCE(sum(size), 0), count(*) FILTER (WHERE state = 'preparing'))
		FROM files WHERE owner = '%s' AND state IN ('preparing', 'processing', 'active', 'blocked')`, owner))
	return kept, real
}

func sendOne(t *testing.T, s *stack.Stack, owner string) controlplane.UploadView {
	t.Helper()
	v, err := tryOpen(t, s, owner)
	if err != nil {
		t.Fatal(err)
	}
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 100))
	return v
}

// A collection that is given its first limit counts what its owners have by then, whatever
// became of it meanwhile.
func TestFirstLimitCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	ctx, ann := t.Context(), stack.Caller("ann")
	active, deleted, aborted, unfinished := sendOne(t, s, "ann"), sendOne(t, s, "ann"), sendOne(t, s, "ann"), sendOne(t, s, "ann")
	complete(t, s, active.ID)
	complete(t, s, deleted.ID)
	if _, err := s.Service.Delete(ctx, ann, deleted.FileID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.Abort(ctx, ann, aborted.ID); err != nil {
		t.Fatal(err)
	}
	limit(t, s, 3)
	if _, err := tryOpen(t, s, "ann"); err != nil {
		t.Fatalf("the third: %v", err)
	}
	_, err := tryOpen(t, s, "ann")
	wantCode(t, err, models.CodeQuotaExceeded)
	if kept, real := counts(t, s, "ann"); kept != "3 300 2" || real != kept {
		t.Errorf("kept %s, real %s", kept, real)
	}
	if _, err := tryOpen(t, s, "eve"); err != nil {
		t.Errorf("another's: %v", err)
	}
	// What was there before gives its place back like any other.
	complete(t, s, unfinished.ID)
	if _, err := s.Service.Delete(ctx, ann, active.FileID); err != nil {
		t.Fatal(err)
	}
	if kept, real := counts(t, s, "ann"); kept != "2 200 1" || real != kept {
		t.Errorf("kept %s, real %s", kept, real)
	}
	if _, err := tryOpen(t, s, "ann"); err != nil {
		t.Errorf("its place is not free: %v", err)
	}
}

// Who is beyond a first limit is refused, and counted for all that: the next open does not
// count anew. Who has nothing there leaves nothing.
func TestRefusalKeepsTheCount(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	for range 3 {
		complete(t, s, sendOne(t, s, "ann").ID)
	}
	reload(t, s, "default", func(c *models.Collection) { c.MaxFiles, c.MaxBytes = 3, 350 })
	touched := func() string {
		return stack.Query[string](t, s, "SELECT string_agg(xmin::text, ' ' ORDER BY id) FROM files")
	}
	before := touched()
	_, err := tryOpen(t, s, "ann")
	wantCode(t, err, models.CodeQuotaExceeded)
	if kept, real := counts(t, s, "ann"); kept != "3 300 0" || real != kept {
		t.Errorf("kept %s, real %s", kept, real)
	}
	once := touched()
	_, err = tryOpen(t, s, "ann")
	wantCode(t, err, models.CodeQuotaExceeded)
	if once == before || touched() != once {
		t.Errorf("files were counted at %q, then %q, then %q", before, once, touched())
	}
	_, err = s.Service.Open(t.Context(), stack.Caller("eve"), controlplane.OpenRequest{Collection: "default", Name: "a", Size: 351})
	wantCode(t, err, models.CodeQuotaExceeded)
	if n := stack.Query[int64](t, s, "SELECT count(*) FROM quotas"); n != 1 {
		t.Errorf("%d rows of owners", n)
	}
}

// What was opened while a limit was away is found by reconcile, and counted.
func TestLimitThatWasAway(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	limit(t, s, 3)
	complete(t, s, sendOne(t, s, "ann").ID)
	limit(t, s, 0)
	complete(t, s, sendOne(t, s, "ann").ID)
	r := &reconcile.Runner{Store: stack.Main, Prefix: "b/", Records: s.Store, Objects: s.Objects, Limited: s.Service.Limited, Now: s.Clock.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: reconcile.NewMetrics(nil)}
	drift := func(repair bool) []models.Drift {
		t.Helper()
		report, err := r.Run(t.Context(), reconcile.Options{Repair: repair})
		if err != nil {
			t.Fatal(err)
		}
		return report.Drift
	}
	if d := drift(true); len(d) != 0 {
		t.Errorf("no limit, and yet %+v", d)
	}
	limit(t, s, 3)
	for _, repair := range []bool{false, true} {
		if d := drift(repair); len(d) != 1 || d[0].Count != 1 || d[0].RealCount != 2 || d[0].Bytes != 100 || d[0].RealBytes != 200 {
			t.Errorf("repair %t: %+v", repair, d)
		}
	}
	if d := drift(true); len(d) != 0 {
		t.Errorf("afterwards %+v", d)
	}
	if _, err := tryOpen(t, s, "ann"); err != nil {
		t.Fatal(err)
	}
	_, err := tryOpen(t, s, "ann")
	wantCode(t, err, models.CodeQuotaExceeded)
}

// The count is right though what is counted ends in the same moment.
func TestFirstLimitRacesWithEnds(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	const owners, each = 6, 6
	ends := []func(ctx context.Context, c models.Caller, v controlplane.UploadView) error{
		func(ctx context.Context, c models.Caller, v controlplane.UploadView) error {
			_, err := s.Service.Complete(ctx, c, v.ID, controlplane.CompleteRequest{})
			return err
		},
		func(ctx context.Context, c models.Caller, v controlplane.UploadView) error {
			_, err := s.Service.Abort(ctx, c, v.ID)
			return err
		},
		func(ctx context.Context, c models.Caller, v controlplane.UploadView) error {
			if _, err := s.Service.Complete(ctx, c, v.ID, controlplane.CompleteRequest{}); err != nil {
				return err
			}
			_, err := s.Service.Delete(ctx, c, v.FileID)
			return err
		},
	}
	views := map[string][]controlplane.UploadView{}
	for i := range owners {
		owner := fmt.Sprint("owner-", i)
		for range each {
			views[owner] = append(views[owner], sendOne(t, s, owner))
		}
	}
	limit(t, s, 100)
	var wg sync.WaitGroup
	for owner, vs := range views {
		for i, v := range vs {
			wg.Go(func() {
				if err := ends[i%len(ends)](t.Context(), stack.Caller(owner), v); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if _, err := tryOpen(t, s, owner); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for owner := range views {
		if kept, real := counts(t, s, owner); kept != real || kept != "3 300 1" {
			t.Errorf("%s: kept %s, real %s", owner, kept, real)
		}
	}
}
