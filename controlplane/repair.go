package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/models"
	"berth/tracing"
)

// Repair is one pass of the sweep that makes up for what was lost: an event, an answer, a
// process. Sessions past their end are closed, or taken if all of their bytes are there;
// sessions gone quiet are verified; reap tasks that are missing are made. At most limit
// records of each kind, each its own transaction; one that fails does not keep the rest.
func (s *Service) Repair(ctx context.Context, quiet time.Duration, limit int) (models.SweepCounts, error) {
	var c models.SweepCounts
	var errs []error
	overdue, err := s.records.Overdue(ctx, s.utc(), limit)
	if err != nil {
		return c, err
	}
	for i := range overdue {
		taken, closed, err := s.overdue(ctx, &overdue[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("overdue %s: %w", overdue[i].ID, err))
		}
		if taken {
			c.Finished++
		}
		if closed {
			c.Expired++
		}
	}
	still, err := s.records.Quiet(ctx, quiet, s.utc(), limit)
	if err != nil {
		return c, errors.Join(append(errs, err)...)
	}
	for i := range still {
		c.Rechecked++
		taken, returned, err := s.recheck(ctx, &still[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("quiet %s: %w", still[i].ID, err))
		}
		if taken {
			c.Finished++
		}
		if returned {
			c.Returned++
		}
	}
	n, err := s.records.EnsureReaps(ctx, s.utc(), limit)
	c.Ensured = n
	if err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

// overdue ends a session that is past its end: with the file, if all of its bytes are
// there, without it otherwise.
func (s *Service) overdue(ctx context.Context, u *models.Upload) (taken, closed bool, err error) {
	ctx, span := s.trace.Continue(ctx, u.Traceparent, tracing.Internal, "close overdue upload", tracing.String(attrUpload, string(u.ID)))
	defer func() { span.End(err) }()
	switch {
	case u.State == models.UploadCompleted || u.State == models.UploadInit:
		// Nothing to look for: the commit never came, or nothing was ever begun.
	case u.Method == models.MethodSingle:
		out, err := s.verify(ctx, u, "", models.ActorRepair)
		if err != nil && !s.hopeless(u) {
			return false, false, err
		}
		if err == nil && out != settledAbsent && out != settledForeign {
			return out == settledDone, out == settledRejected, nil
		}
	default:
		done, err := s.takeOverdue(ctx, u)
		if done || (err != nil && !s.hopeless(u)) {
			return done, false, err
		}
	}
	closed, err = s.records.CloseUpload(ctx, models.Closing{ID: u.ID, To: models.UploadExpired, Code: models.CodeSessionExpired,
		Reason: "the upload has expired", PastDeadline: true, Actor: models.ActorRepair, Now: s.utc()})
	return false, closed, err
}

// hopeless says that a store has refused to tell what it holds for so long after a
// session's last end that the session is closed without knowing. The reaper looks by
// itself, and takes what is there.
func (s *Service) hopeless(u *models.Upload) bool {
	return s.utc().After(u.HardExpires.Add(24 * time.Hour))
}

// takeOverdue completes a multipart whose parts have all arrived, or whose Complete was
// done by an attempt that died.
func (s *Service) takeOverdue(ctx context.Context, u *models.Upload) (bool, error) {
	if u.State == models.UploadCompleting {
		out, err := s.verify(ctx, u, "", models.ActorRepair)
		if err != nil || (out != settledAbsent && out != settledForeign) {
			return err == nil, err
		}
	}
	if u.Undeclared {
		return false, nil // what is there may be the half of it: only its client knows
	}
	listed, err := s.listed(ctx, u)
	if err != nil {
		return false, err
	}
	pins, err := s.records.Pins(ctx, u.ID)
	if err != nil {
		return false, err
	}
	if models.CheckParts(u, listed, pins, nil) != nil {
		if len(listed) > 0 {
			return false, nil
		}
		// Not a part: never sent, or put together by a Complete that came late.
		out, err := s.verify(ctx, u, "", models.ActorRepair)
		return err == nil && out != settledAbsent && out != settledForeign, err
	}
	now := s.utc()
	began, ok, err := s.records.BeginComplete(ctx, *u, now.Add(completeLease), now, models.ActorRepair)
	if err != nil || !ok {
		return false, err
	}
	if err := s.holding(ctx, &began, func() error { return s.assemble(ctx, &began, models.Checksum{}, nil, nil) }); err != nil {
		switch models.ErrorCode(err) {
		case models.CodeStoreUnavailable, models.CodeInternal, models.CodeBusy: // it says nothing of the bytes
			return false, err
		}
		return false, nil // the bytes are not those that were declared: it expires
	}
	return true, nil
}

// listed is S3's list of an upload's parts, empty where S3 no longer has the multipart.
func (s *Service) listed(ctx context.Context, u *models.Upload) ([]models.Part, error) {
	as := *u
	as.State = models.UploadUploading
	return s.parts(ctx, &as)
}

// recheck looks at a session of which nothing was heard. A Complete whose attempt died
// without effect is given back to the client.
func (s *Service) recheck(ctx context.Context, u *models.Upload) (taken, returned bool, err error) {
	ctx, span := s.trace.Continue(ctx, u.Traceparent, tracing.Internal, "look at quiet upload", tracing.String(attrUpload, string(u.ID)))
	defer func() { span.End(err) }()
	out, err := s.verify(ctx, u, "", models.ActorRepair)
	if err != nil || u.Method == models.MethodSingle || (out != settledAbsent && out != settledForeign) {
		return out == settledDone, false, err
	}
	now := s.utc()
	returned, err = s.records.Yield(ctx, *u, "the attempt died", u.ExpiresAt, now)
	return false, returned, err
}
