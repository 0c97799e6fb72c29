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
// wrong one is answered as a task that does not exist; a stale one changes nothing.
//
// Codes: NOT_FOUND, SESSION_CLOSED.
func (s *Service) StepResult(ctx context.Context, id models.TaskID, token string, a models.StepAnswer) error {
	w, err := s.records.Wait(ctx, id)
	hash := sha256.Sum256([]byte(token))
	if err != nil || subtle.ConstantTimeCompare(hash[:], w.TokenHash) != 1 {
		if err != nil && models.ErrorCode(err) != models.CodeNotFound {
			return err
		}
		return models.NotFound("task")
	}
	f, err := s.records.File(ctx, models.Whose{}, models.FileID(w.Task.Target))
	if err != nil {
		return err
	}
	out, err := s.records.RecordStep(ctx, w.Task, models.StepResult{Step: w.Step, Name: w.Name, Verdict: a.Verdict, Reason: a.Reason},
		len(s.Steps(f.Collection)), s.utc())
	if err != nil {
		return err
	}
	if out == models.VerdictStale {
		return models.Errorf(models.CodeSessionClosed, "the lease that this token was given under is over")
	}
	return nil
}
