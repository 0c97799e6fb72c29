package main

import (
	"context"
	"fmt"

	"berth/migrations"
)

type migrateCmd struct{ configFlag }

// Run migrates the database.
func (m migrateCmd) Run(ctx context.Context, s streams) error {
	c, err := m.load()
	if err != nil {
		return err
	}
	dsn := c.Database.URL.Reveal()
	pending, err := migrations.Pending(ctx, dsn)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, dsn); err != nil {
		return err
	}
	if pending == 0 {
		fmt.Fprintln(s.err, "berthd: the schema is up to date")
	} else {
		fmt.Fprintf(s.err, "berthd: %d migrations applied\n", pending)
	}
	return nil
}
