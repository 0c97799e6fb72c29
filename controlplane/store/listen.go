package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Listen hears what tasks became due and calls heard with each kind, until ctx ends or
// the connection breaks. It has a connection of its own.
func (s *Store) Listen(ctx context.Context, heard func(kind string)) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return fmt.Errorf("store: listen: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	if _, err := conn.Exec(ctx, "LISTEN berth_tasks"); err != nil {
		return fmt.Errorf("store: listen: %w", err)
	}
	heard("") // what became due while nobody listened
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("store: listen: %w", err)
		}
		heard(n.Payload)
	}
}
