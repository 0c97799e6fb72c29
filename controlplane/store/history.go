package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"berth/models"
)

// moved writes one transition into the history, in the transaction that made it.
func (t tx) moved(file models.FileID, e models.HistoryEntry) error {
	_, err := t.exec(`INSERT INTO history (at, file_id, what, subject, from_state, to_state, actor, why, version_id)
		VALUES (@at, @file, @what, @subject, @from, @to, @actor, @why, @version)`,
		args{"at": e.At, "file": file, "what": e.What, "subject": e.ID, "from": e.From, "to": e.To,
			"actor": e.Actor, "why": e.Why, "version": e.VersionID})
	return err
}

// step is one transition of the history.
func step[S ~string](now time.Time, what, id string, from, to S, actor, why string) models.HistoryEntry {
	return models.HistoryEntry{At: now, What: what, ID: id, From: string(from), To: string(to), Actor: actor, Why: why}
}

// History reads the timeline of a file, oldest first, after an opaque cursor.
func (s *Store) History(ctx context.Context, w models.Whose, id models.FileID, cursor string, limit int) ([]models.HistoryEntry, string, error) {
	after, afterID, err := parseHistoryCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if _, err := s.File(ctx, w, id); err != nil {
		return nil, "", err
	}
	var rows []struct {
		ID                                                       int64
		At                                                       time.Time
		What, Subject, FromState, ToState, Actor, Why, VersionID string
	}
	if _, err := s.alone(ctx).read(&rows, `SELECT id, at, what, subject, from_state, to_state, actor, why, version_id
		FROM history WHERE file_id = @file AND (at, id) > (@at, @after) ORDER BY at, id LIMIT @limit`,
		args{"file": id, "at": after, "after": afterID, "limit": limit + 1}); err != nil {
		return nil, "", wrap("history", err)
	}
	next := ""
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		next = strconv.FormatInt(last.At.UnixMicro(), 36) + "." + strconv.FormatInt(last.ID, 36)
	}
	out := make([]models.HistoryEntry, len(rows))
	for i, r := range rows {
		out[i] = models.HistoryEntry{At: r.At.UTC(), What: r.What, ID: r.Subject, From: r.FromState, To: r.ToState,
			Actor: r.Actor, Why: r.Why, VersionID: r.VersionID}
	}
	return out, next, nil
}

func parseHistoryCursor(c string) (time.Time, int64, error) {
	if c == "" {
		return time.Unix(0, 0).UTC(), 0, nil
	}
	a, b, ok := strings.Cut(c, ".")
	us, err1 := strconv.ParseInt(a, 36, 64)
	id, err2 := strconv.ParseInt(b, 36, 64)
	if !ok || err1 != nil || err2 != nil || us < 0 || us > 1<<56 {
		return time.Time{}, 0, models.Errorf(models.CodeInvalidRequest, "cursor: not one of ours").With("field", "cursor")
	}
	return time.UnixMicro(us).UTC(), id, nil
}
