package testkit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/migrations"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB makes a migrated database for the test and returns its URL. It is a clone
// of a template that is migrated once for each content of the migrations, and
// is dropped when the test is done, whoever is still connected.
func DB(t testing.TB) string {
	t.Helper()
	s := shared(t)
	admin, err := adminPool()
	if err != nil {
		t.Fatal(err)
	}
	template, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	name := "t_" + lowerText(t)
	// The URL is read before the clone is made: what cannot fail comes last.
	dsn, err := withDatabase(s.Postgres, name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template+cloneStrategy(admin)); err != nil {
		t.Fatalf("testkit: clone %s: %v", template, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("testkit: drop %s: %v", name, err)
		}
	})
	return dsn
}

// cloneStrategy asks for plain file copies where the server can do otherwise,
// from PostgreSQL 15 on: twice as fast for a database this small.
func cloneStrategy(admin *pgxpool.Pool) string {
	var version int
	err := admin.QueryRow(context.Background(), "SELECT current_setting('server_version_num')::int").Scan(&version)
	if err != nil || version < 150000 {
		return ""
	}
	return " STRATEGY FILE_COPY"
}

// EmptyDB makes a database with nothing in it, for tests of the migrations.
func EmptyDB(t testing.TB) string {
	t.Helper()
	s := shared(t)
	admin, err := adminPool()
	if err != nil {
		t.Fatal(err)
	}
	name := "t_" + lowerText(t)
	dsn, err := withDatabase(s.Postgres, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("testkit: create %s: %v", name, err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("testkit: drop %s: %v", name, err)
		}
	})
	return dsn
}

// adminPool is this process's connections for making and dropping databases.
var adminPool = sync.OnceValues(func() (*pgxpool.Pool, error) {
	s, err := running()
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(s.Postgres)
	if err != nil {
		return nil, fmt.Errorf("testkit: %w", err)
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("testkit: %w", err)
	}
	return pool, nil
})

// migrated makes the template database unless another test binary has, and
// returns its name.
var migrated = sync.OnceValues(func() (string, error) {
	s, err := running()
	if err != nil {
		return "", err
	}
	sum, err := migrationsSum()
	if err != nil {
		return "", fmt.Errorf("testkit: %w", err)
	}
	name := "template_" + sum
	dsn, err := withDatabase(s.Postgres, name+"_part")
	if err != nil {
		return "", fmt.Errorf("testkit: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.Postgres)
	if err != nil {
		return "", fmt.Errorf("testkit: %w", err)
	}
	defer conn.Close(context.Background())
	// One builds, the others wait here and then find it. The lock ends with the
	// connection.
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil {
		return "", fmt.Errorf("testkit: template: %w", err)
	}
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil {
		return "", fmt.Errorf("testkit: template: %w", err)
	}
	if there {
		return name, nil
	}
	// A build that was killed leaves its part; the name says complete.
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name + "_part WITH (FORCE)", "CREATE DATABASE " + name + "_part"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("testkit: template: %w", err)
		}
	}
	if err := migrations.Up(ctx, dsn); err != nil {
		return "", fmt.Errorf("testkit: template: %w", err)
	}
	// The last of its connections may take a moment to go, and nobody may be
	// connected to a database that is renamed or cloned.
	for {
		_, err := conn.Exec(ctx, "ALTER DATABASE "+name+"_part RENAME TO "+name)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("testkit: template: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return name, nil
})

// migrationsSum names what the migrations are.
func migrationsSum() (string, error) {
	h := sha256.New()
	files := migrations.Files()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, path)
		fmt.Fprintf(h, "%s %d\n", path, len(b))
		h.Write(b)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("migrations: %w", err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

func withDatabase(dsn, name string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("testkit: the parts' database URL is not one")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// lowerText is a random name that buckets, queues and databases take, led by
// the test's own, cut, so that logs can be read.
func lowerText(t testing.TB) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimPrefix(t.Name(), "Test")) {
		if b.Len() == 20 {
			break
		}
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		}
	}
	return b.String() + strings.ToLower(rand.Text()[:13])
}
