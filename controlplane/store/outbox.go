package store

import (
	"encoding/json"
	"time"

	"berth/models"
)

// tell writes an event for others, in the transaction that caused it.
func (t tx) tell(typ models.EventType, f models.File, now time.Time) error {
	payload, err := json.Marshal(map[string]any{
		"file_id": f.ID, "tenant": f.Tenant, "owner": f.Owner, "collection": f.Collection, "name": f.Name,
		"size": f.Size, "content_type": f.ContentType, "version_id": f.VersionID,
		"checksum": map[string]any{"algorithm": f.Checksum.Algorithm, "type": f.Checksum.Type, "value": f.Checksum.Value},
		"reason":   f.ReasonCode, "at": now.UTC(),
	})
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO outbox (id, type, file_id, tenant, payload, state, not_before, created_at)
		VALUES (@id, @type, @file, @tenant, @payload, 'pending', @now, @now)`,
		args{"id": models.NewEventID(), "type": typ, "file": f.ID, "tenant": f.Tenant, "payload": string(payload), "now": now})
	return err
}
