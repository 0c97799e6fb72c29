package controlplane

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"

	"berth/models"
)

// Steps is the processing chain of a collection, as it is configured now.
func (s *Service) Steps(collection string) []models.Step { return s.policy(collection).Steps }

// StepResult takes the verdict of a step that answers later. The lease token is its only
// credential: it is good for one task while the lease that it was given under lasts. A
// wrong one, and one of a lease that is over, is answered as a task that does not exist. A
// verdict that is said again is taken again, and changes nothing; another one with the same
// token is SESSION_CLOSED.
//
// Codes: NOT_FOUND, SESSION_CLOSED.
func (s *Service) StepResult(ctx context.Context, id models.TaskID, token string, a models.StepAnswer) error {
	w, f, err := s.leased(ctx, id, token)
	if models.ErrorCode(err) == models.CodeNotFound {
		return s.answered(ctx, id, token, a, err)
	}
	if err != nil {
		return err
	}
	out, err := s.records.RecordStep(ctx, w.Task, models.StepResult{Step: w.Step, Name: w.Name, Verdict: a.Verdict, Reason: a.Reason},
		models.StepNames(s.Steps(f.Collection)), s.utc())
	if err != nil {
		return err
	}
	if out == models.VerdictStale {
		return s.answered(ctx, id, token, a, models.Errorf(models.CodeSessionClosed, "the lease that this token was given under is over"))
	}
	return nil
}

// answered holds a verdict against the one that was taken with the same token: nil if it is
// the same, otherwise if there is none.
func (s *Service) answered(ctx context.Context, id models.TaskID, token string, a models.StepAnswer, otherwise error) error {
	said, err := s.records.Answered(ctx, id)
	if err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(token))
	for _, r := range said {
		if subtle.ConstantTimeCompare(hash[:], r.TokenHash) != 1 {
			continue
		}
		if r.Verdict != a.Verdict || r.Reason != a.Reason {
			return models.Errorf(models.CodeSessionClosed, "the step has answered already, and not this")
		}
		return nil
	}
	return otherwise
}

// LeaseCaller is who a step is while its lease lasts: the owner of the file that it looks
// at, who may do nothing but send files derived from that one.
//
// Codes: NOT_FOUND.
func (s *Service) LeaseCaller(ctx context.Context, id models.TaskID, token string) (models.Caller, error) {
	w, f, err := s.leased(ctx, id, token)
	if err != nil {
		return models.Caller{}, err
	}
	return models.Caller{Tenant: f.Tenant, Owner: f.Owner, Scopes: []models.Scope{models.ScopeUpload}, Grant: &models.Grant{
		Collection: f.Collection, Derive: &models.Derivation{Parent: f.ID, Task: w.Task.ID, Fence: w.Task.LeaseVersion},
	}}, nil
}

// leased holds a lease token against the step that a task waits for.
func (s *Service) leased(ctx context.Context, id models.TaskID, token string) (models.StepWait, models.File, error) {
	w, err := s.records.Wait(ctx, id)
	if err != nil && models.ErrorCode(err) != models.CodeNotFound {
		return w, models.File{}, err
	}
	hash := sha256.Sum256([]byte(token))
	if err != nil || subtle.ConstantTimeCompare(hash[:], w.TokenHash) != 1 {
		return w, models.File{}, models.NotFound("task")
	}
	f, err := s.records.File(ctx, models.Whose{}, models.FileID(w.Task.Target))
	return w, f, err
}
