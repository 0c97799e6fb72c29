// Package migrations owns the schema: numbered SQL, embedded, run by goose. Code
// runs before and after each migration, so a migration adds first and takes away
// a release later.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that goose runs on
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Files are the migrations, for those who hash them.
func Files() fs.FS { return files }

// Up brings the database at dsn to the newest version. Several may call it at once:
// an advisory lock lets one through, the others find nothing to do.
func Up(ctx context.Context, dsn string) error {
	return with(dsn, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Pending returns how many migrations the database at dsn lacks.
func Pending(ctx context.Context, dsn string) (int, error) {
	var n int
	err := with(dsn, func(p *goose.Provider) error {
		status, err := p.Status(ctx)
		for _, s := range status {
			if s.State == goose.StatePending {
				n++
			}
		}
		return err
	})
	return n, err
}

func with(dsn string, do func(*goose.Provider) error) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return fmt.Errorf("migrations: open database: %w", err)
	}
	defer db.Close() //nolint:errcheck // nothing is written through it any more
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("migrations: lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if err := do(p); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}
