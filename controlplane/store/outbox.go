package store

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"berth/models"
	"berth/tracing"
)

// tell writes an event for others, in the transaction that caused it.
func (t tx) tell(typ models.EventType, f models.File, now time.Time) error {
	payload, err := eventPayload(f, now)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO outbox (id, type, file_id, tenant, payload, state, not_before, traceparent, created_at)
		VALUES (@id, @type, @file, @tenant, @payload, 'pending', @now, @traceparent, @now)`,
		args{"id": models.NewEventID(), "type": typ, "file": f.ID, "tenant": f.Tenant, "payload": string(payload),
			"traceparent": null(tracing.Traceparent(t.db.Statement.Context)), "now": now})
	return err
}

const eventColumns = `o.id, o.type, o.file_id, o.tenant, o.payload, o.state, o.not_before, array_to_json(o.sent_to) AS sent_to,
	o.attempts, COALESCE(o.lease_owner, '') AS lease_owner, o.lease_version, COALESCE(o.last_error, '') AS last_error,
	COALESCE(o.traceparent, '') AS traceparent, o.created_at`

type eventRow struct {
	ID, Type, FileID, Tenant string
	Payload                  []byte
	State                    string
	NotBefore                time.Time
	SentTo                   []byte
	Attempts                 int
	LeaseOwner               string
	LeaseVersion             int64
	LastError, Traceparent   string
	CreatedAt                time.Time
}

func eventModels(rows []eventRow) []models.Event {
	out := make([]models.Event, len(rows))
	for i, r := range rows {
		out[i] = models.Event{ID: models.EventID(r.ID), Type: models.EventType(r.Type), FileID: models.FileID(r.FileID),
			Tenant: models.Tenant(r.Tenant), Payload: r.Payload, State: models.OutboxState(r.State), NotBefore: r.NotBefore.UTC(),
			Attempts: r.Attempts, LeaseOwner: r.LeaseOwner, LeaseVersion: r.LeaseVersion, LastError: r.LastError, Traceparent: r.Traceparent,
			CreatedAt: r.CreatedAt.UTC()}
		_ = json.Unmarshal(r.SentTo, &out[i].SentTo) // made by the database a line above
	}
	return out
}

// ClaimEvents takes events that are due, under a lease: of each file only the oldest that
// is pending, so that a file's events are told in their order. One that was left as a dead
// letter does not hold up those after it.
func (s *Store) ClaimEvents(ctx context.Context, owner string, until time.Time, limit int, now time.Time) ([]models.Event, error) {
	var rows []eventRow
	_, err := s.alone(ctx).read(&rows, `UPDATE outbox o SET lease_owner = @owner, lease_until = @until,
			lease_version = o.lease_version + 1, attempts = o.attempts + 1
		WHERE o.id IN (
			SELECT c.id FROM outbox c WHERE c.state = 'pending' AND c.not_before <= @now
			   AND (c.lease_until IS NULL OR c.lease_until <= @now)
			   AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.file_id = c.file_id AND e.state = 'pending' AND e.seq < c.seq)
			 ORDER BY c.not_before, c.seq LIMIT @limit FOR UPDATE SKIP LOCKED)
		RETURNING `+eventColumns, args{"owner": owner, "until": until, "limit": limit, "now": now})
	return eventModels(rows), wrap("claim events", err)
}

// FinishEvents ends attempts to send, each guarded by its lease. ok says of each whether it
// was still ours: false when the lease was lost, or the event was withdrawn meanwhile.
func (s *Store) FinishEvents(ctx context.Context, events []models.Event, results []models.SendResult, now time.Time) (ok []bool, err error) {
	ids, owners, fences := make([]string, len(events)), make([]string, len(events)), make([]string, len(events))
	to, notBefore, sent, errs := make([]string, len(events)), make([]string, len(events)), make([]string, len(events)), make([]string, len(events))
	for i, e := range events {
		r := results[i]
		ids[i], owners[i], fences[i] = string(e.ID), e.LeaseOwner, strconv.FormatInt(e.LeaseVersion, 10)
		to[i], sent[i], errs[i] = string(r.To), textArray(r.SentTo), r.Err
		if !r.NotBefore.IsZero() {
			notBefore[i] = r.NotBefore.UTC().Format(time.RFC3339Nano)
		}
	}
	var finished []string
	_, err = s.alone(ctx).read(&finished, `UPDATE outbox o SET state = x."to", not_before = COALESCE(CAST(NULLIF(x.not_before, '') AS timestamptz), o.not_before),
			sent_to = CAST(x.sent AS text[]), last_error = NULLIF(x.err, ''), lease_owner = NULL, lease_until = NULL,
			closed_at = CASE x."to" WHEN 'pending' THEN NULL ELSE CAST(@now AS timestamptz) END
		FROM unnest(CAST(@ids AS text[]), CAST(@owners AS text[]), CAST(@fences AS bigint[]), CAST(@to AS text[]), CAST(@not_before AS text[]),
			CAST(@sent AS text[]), CAST(@errs AS text[])) AS x (id, owner, fence, "to", not_before, sent, err)
		WHERE o.id = x.id AND o.state = 'pending' AND o.lease_owner = x.owner AND o.lease_version = x.fence
		RETURNING o.id`,
		args{"ids": textArray(ids), "owners": textArray(owners), "fences": textArray(fences), "to": textArray(to), "not_before": textArray(notBefore),
			"sent": textArray(sent), "errs": textArray(errs), "now": now})
	ok = make([]bool, len(events))
	for i, e := range events {
		ok[i] = slices.Contains(finished, string(e.ID))
	}
	return ok, wrap("finish events", err)
}

// NextEvent is when the next event that may be claimed is due; ok is false when there is none.
func (s *Store) NextEvent(ctx context.Context) (at time.Time, ok bool, err error) {
	var row struct{ At *time.Time }
	_, err = s.alone(ctx).read(&row, `SELECT min(GREATEST(c.not_before, c.lease_until)) AS at FROM outbox c WHERE c.state = 'pending'
		AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.file_id = c.file_id AND e.state = 'pending' AND e.seq < c.seq)`, args{})
	return timeOf(row.At), row.At != nil, wrap("next event", err)
}

// Events lists a tenant's events of a state, newest first.
func (s *Store) Events(ctx context.Context, tenant models.Tenant, state models.OutboxState, before models.EventID, limit int) ([]models.Event, error) {
	var rows []eventRow
	_, err := s.alone(ctx).read(&rows, `SELECT `+eventColumns+` FROM outbox o WHERE o.tenant = @tenant AND o.state = @state
		AND (CAST(@before AS text) = '' OR o.id < @before) ORDER BY o.id DESC LIMIT @limit`,
		args{"tenant": tenant, "state": state, "before": before, "limit": limit})
	return eventModels(rows), wrap("events", err)
}

// ChangeEvent moves an event by hand: a dead letter back to pending, or what was not sent
// to cancelled. It returns the state that the event is in then: another than to where the
// guard said no.
func (s *Store) ChangeEvent(ctx context.Context, tenant models.Tenant, id models.EventID, to models.OutboxState, now time.Time) (state models.OutboxState, err error) {
	err = s.within(ctx, "change event", func(t tx) error {
		a := args{"id": id, "tenant": tenant, "to": to, "now": now}
		set := `closed_at = @now`
		if to == models.OutboxPending {
			set = `closed_at = NULL, not_before = @now, attempts = 0`
		}
		if _, err := t.one(`UPDATE outbox SET state = @to, lease_owner = NULL, lease_until = NULL, `+set+`
			WHERE id = @id AND tenant = @tenant AND state IN `+from(models.Outbox, to), a); err != nil {
			return err
		}
		var row struct{ State string }
		n, err := t.read(&row, `SELECT state FROM outbox WHERE id = @id AND tenant = @tenant`, a)
		if err == nil && n == 0 {
			err = models.NotFound("event")
		}
		state = models.OutboxState(row.State)
		return err
	})
	return state, err
}
