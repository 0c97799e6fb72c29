package controlplane

import (
	"context"

	"berth/models"
)

// TaskQuery selects a page of tasks of the caller's tenant, newest first.
type TaskQuery struct {
	Kind   models.TaskKind
	State  models.TaskState
	Cursor string
	Limit  int // 1 to 1000; 0 is 100
}

// TaskPage is one page of tasks.
type TaskPage struct {
	Tasks      []models.Task
	NextCursor string
}

// admin holds a call to the admins of a tenant, whom no grant narrows.
func admin(c models.Caller) error {
	if err := c.Require(models.ScopeAdmin); err != nil {
		return err
	}
	if c.Grant != nil {
		return models.Errorf(models.CodeForbidden, "a grant does not reach so far")
	}
	return nil
}

// Tasks lists work in the background of the caller's tenant.
func (s *Service) Tasks(ctx context.Context, c models.Caller, q TaskQuery) (TaskPage, error) {
	if err := admin(c); err != nil {
		return TaskPage{}, err
	}
	limit, err := pageLimit(q.Limit)
	if err != nil {
		return TaskPage{}, err
	}
	switch q.Kind {
	case "", models.TaskReap, models.TaskProcess, models.TaskReplicate:
	default:
		return TaskPage{}, models.Errorf(models.CodeInvalidRequest, "kind: there is no such kind").With("field", "kind")
	}
	if _, ok := models.Tasks.Next[q.State]; !ok && q.State != "" {
		return TaskPage{}, models.Errorf(models.CodeInvalidRequest, "state: there is no such state").With("field", "state")
	}
	before := models.TaskID("")
	if q.Cursor != "" {
		if before, err = models.ParseTaskID(q.Cursor); err != nil {
			return TaskPage{}, models.Errorf(models.CodeInvalidRequest, "cursor: not one of ours").With("field", "cursor")
		}
	}
	tasks, err := s.records.Tasks(ctx, c.Tenant, q.Kind, q.State, before, limit+1)
	if err != nil {
		return TaskPage{}, err
	}
	page := TaskPage{Tasks: tasks}
	if len(tasks) > limit {
		page.Tasks, page.NextCursor = tasks[:limit], string(tasks[limit-1].ID)
	}
	return page, nil
}

// RetryTask puts a failed task back to work, by hand: one attempt, its count kept.
func (s *Service) RetryTask(ctx context.Context, c models.Caller, id models.TaskID) (models.Task, error) {
	if err := admin(c); err != nil {
		return models.Task{}, err
	}
	if err := s.records.TaskOf(ctx, c.Tenant, id); err != nil {
		return models.Task{}, err
	}
	return s.records.Retry(ctx, id, c.Actor(), s.utc())
}

// EventPage is one page of outbox events.
type EventPage struct {
	Events     []models.Event
	NextCursor string
}

// Events lists what was or is to be told to others of the caller's tenant, newest first.
// Without a state, the dead letters.
func (s *Service) Events(ctx context.Context, c models.Caller, state models.OutboxState, cursor string, limit int) (EventPage, error) {
	if err := admin(c); err != nil {
		return EventPage{}, err
	}
	limit, err := pageLimit(limit)
	if err != nil {
		return EventPage{}, err
	}
	if state == "" {
		state = models.OutboxFailed
	}
	if _, ok := models.Outbox.Next[state]; !ok {
		return EventPage{}, models.Errorf(models.CodeInvalidRequest, "state: there is no such state").With("field", "state")
	}
	before := models.EventID("")
	if cursor != "" {
		if before, err = models.ParseEventID(cursor); err != nil {
			return EventPage{}, models.Errorf(models.CodeInvalidRequest, "cursor: not one of ours").With("field", "cursor")
		}
	}
	events, err := s.records.Events(ctx, c.Tenant, state, before, limit+1)
	if err != nil {
		return EventPage{}, err
	}
	page := EventPage{Events: events}
	if len(events) > limit {
		page.Events, page.NextCursor = events[:limit], string(events[limit-1].ID)
	}
	return page, nil
}

// RetryEvent sends a dead letter again; CancelEvent withdraws what was not sent. Both are
// NOT_READY where the event is in no state for it.
func (s *Service) RetryEvent(ctx context.Context, c models.Caller, id models.EventID) error {
	return s.changeEvent(ctx, c, id, models.OutboxPending)
}

// CancelEvent is the opposite of RetryEvent.
func (s *Service) CancelEvent(ctx context.Context, c models.Caller, id models.EventID) error {
	return s.changeEvent(ctx, c, id, models.OutboxCancelled)
}

func (s *Service) changeEvent(ctx context.Context, c models.Caller, id models.EventID, to models.OutboxState) error {
	if err := admin(c); err != nil {
		return err
	}
	state, err := s.records.ChangeEvent(ctx, c.Tenant, id, to, s.utc())
	if err == nil && state != to {
		err = models.Errorf(models.CodeNotReady, "the event is %s", state)
	}
	return err
}
