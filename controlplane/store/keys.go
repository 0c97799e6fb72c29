package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"time"

	"berth/models"
)

// TakeKey takes an idempotency key for a request, or tells what became of the request
// that has it. A key whose answer is no longer kept is free; one whose holder died can be
// taken again for the same request only.
//
// Taking and finishing do not wait for the disk. What a crash of the database takes back of
// them is the answer's words, not the work: the work is committed as ever, and takes what
// was written before it along.
func (s *Store) TakeKey(ctx context.Context, k models.KeyTaking) (models.KeyOutcome, models.KeptAnswer, error) {
	var row struct {
		RequestHash []byte
		State       string
		Subject     string
		Status      int
		Location    string
		Body        []byte
		LockedUntil time.Time
	}
	for range 3 {
		taken, err := s.alone(ctx).one(`WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS off)
			INSERT INTO idempotency AS i (tenant, owner, key, request_hash, state, locked_until, expires_at)
			SELECT @tenant, @owner, @key, decode(@hash, 'hex'), 'running', CAST(@lease AS timestamptz), CAST(@expires AS timestamptz)
			  FROM lazy WHERE lazy.off = 'off'
			ON CONFLICT (tenant, owner, key) DO UPDATE
			   SET request_hash = EXCLUDED.request_hash, state = 'running', subject = NULL, status = NULL, location = '', body = NULL,
			       locked_until = EXCLUDED.locked_until, expires_at = EXCLUDED.expires_at
			 WHERE i.expires_at <= @now
			    OR (i.state = 'running' AND i.locked_until <= @now AND i.request_hash = EXCLUDED.request_hash)`, keyArgs(k))
		if err != nil {
			return "", models.KeptAnswer{}, wrap("take an idempotency key", err)
		}
		if taken {
			return models.KeyTaken, models.KeptAnswer{}, nil
		}
		n, err := s.alone(ctx).read(&row, `SELECT request_hash, state, COALESCE(subject, '') AS subject, COALESCE(status, 0) AS status, location, body, locked_until
			FROM idempotency WHERE tenant = @tenant AND owner = @owner AND key = @key`, keyArgs(k))
		if err != nil {
			return "", models.KeptAnswer{}, wrap("look at an idempotency key", err)
		}
		if n == 1 {
			break
		} // else its holder gave it back between the two statements
	}
	switch {
	case row.State == "":
		return models.KeyRunning, models.KeptAnswer{}, nil
	case !bytes.Equal(row.RequestHash, k.Hash) || row.Subject != "":
		return models.KeyConflict, models.KeptAnswer{}, nil
	case row.State == "done":
		return models.KeyAnswered, models.KeptAnswer{Status: row.Status, Location: row.Location, Body: row.Body}, nil
	}
	return models.KeyRunning, models.KeptAnswer{RunsUntil: row.LockedUntil}, nil
}

// FinishKey keeps the answer of the request that took the key. ok is false if the key is
// another's by now, who came after the lease had ended.
func (s *Store) FinishKey(ctx context.Context, k models.KeyTaking, a models.KeptAnswer) (ok bool, err error) {
	p := keyArgs(k)
	p["status"], p["location"], p["body"] = a.Status, a.Location, a.Body
	ok, err = s.alone(ctx).one(`WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS off)
		UPDATE idempotency SET state = 'done', status = @status, location = @location, body = @body
		  FROM lazy WHERE lazy.off = 'off'
		   AND tenant = @tenant AND owner = @owner AND key = @key AND state = 'running' AND locked_until = @lease`, p)
	return ok, wrap("finish an idempotency key", err)
}

// DropKey gives the key back: the request has no answer worth keeping.
func (s *Store) DropKey(ctx context.Context, k models.KeyTaking) (ok bool, err error) {
	ok, err = s.alone(ctx).one(`DELETE FROM idempotency
		WHERE tenant = @tenant AND owner = @owner AND key = @key AND state = 'running' AND locked_until = @lease`, keyArgs(k))
	return ok, wrap("drop an idempotency key", err)
}

func keyArgs(k models.KeyTaking) args {
	return args{"tenant": k.Tenant, "owner": k.Owner, "key": k.Key, "hash": hex.EncodeToString(k.Hash), "lease": k.Lease, "now": k.Now, "expires": k.Expires}
}

// ExpireIdempotency removes keys whose answers are no longer kept, at most limit.
func (s *Store) ExpireIdempotency(ctx context.Context, now time.Time, limit int) (int64, error) {
	n, err := s.alone(ctx).exec(`DELETE FROM idempotency WHERE (tenant, owner, key) IN
		(SELECT tenant, owner, key FROM idempotency WHERE expires_at <= @now LIMIT @limit)`,
		args{"now": now, "limit": limit})
	return n, wrap("expire idempotency keys", err)
}
