package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"berth/cmd/berthd/config"
	"berth/cmd/berthd/doctor"
	"berth/events"
	"berth/models"

	"github.com/jackc/pgx/v5"
)

// heard hands events on, and tells a doctor that waits which of its probes were among
// them: the doctor competes for the queue's messages with every consumer, and would
// otherwise not learn of those that others took.
type heard struct {
	events.Settler
	prefix func(models.StoreName) string
	tell   func(ctx context.Context, keys []string) error
	log    *slog.Logger
}

// tellTimeout bounds what a probe may cost the consumer.
const tellTimeout = 5 * time.Second

// Settle settles, then tells. That nobody could be told is nobody's loss but the doctor's.
func (h heard) Settle(ctx context.Context, events []models.ObjectEvent) []error {
	errs := h.Settler.Settle(ctx, events)
	var keys []string
	for _, e := range events {
		if e.Created && strings.HasPrefix(e.Key, h.prefix(e.Store)+doctor.Folder) {
			keys = append(keys, e.Key)
		}
	}
	if len(keys) > 0 {
		ctx, cancel := context.WithTimeout(ctx, tellTimeout)
		defer cancel()
		if err := h.tell(ctx, keys); err != nil {
			h.log.WarnContext(ctx, "a doctor's probe was heard of, and the doctor could not be told", "error", err)
		}
	}
	return errs
}

// hears puts heard before what settles. Probes are rare: each is told over a connection
// of its own.
func hears(c *config.Config, next events.Settler, log *slog.Logger) events.Settler {
	return heard{
		Settler: next, log: log,
		prefix: func(name models.StoreName) string { return c.Stores[string(name)].Prefix },
		tell: func(ctx context.Context, keys []string) error {
			conn, err := pgx.Connect(ctx, c.Database.URL.Reveal())
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // what was told is told
			_, err = conn.Exec(ctx, "SELECT pg_notify($1, key) FROM unnest($2::text[]) key", doctor.Channel, keys)
			return err
		},
	}
}
