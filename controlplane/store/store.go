// Package store owns all SQL: one guarded statement or one transaction per
// transition, claims, queries, and the outbox. It imports models, gorm and the
// PostgreSQL driver.
//
// Rules of the room. A state column changes only by `UPDATE … WHERE id = … AND state
// IN (…)`, and the affected rows are looked at: zero rows is an outcome, not an error
// and not nothing. The states in a WHERE come from the tables in models. Locks are
// taken in one order: owner guard (quotas), file, upload, replica, task. An exported
// method opens the transaction, unexported helpers take it; one `now` per
// transaction, given by the caller. Nothing here calls the outside.
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"berth/models"
	"berth/tracing"
)

// Store is the database.
type Store struct {
	db  *gorm.DB
	sql *sql.DB
	dsn string

	trace  *tracing.Tracer
	convoy convoy
}

// Options tune the pool.
type Options struct {
	MaxConns int // 0: 20
	// Tracer sees each statement and transaction boundary; for tests that inject faults.
	Tracer pgx.QueryTracer
	Trace  *tracing.Tracer // nil: off
}

// Session is what the planner is held to in each session. Every statement finds few rows
// of large tables by an index: one plan serves all values, since to plan the large
// statements anew takes longer than to run them; and no plan that was made while a table
// was empty, or from an estimate that has gone wrong, walks a whole table. What is switched
// off costs as much in the planner's eyes as what is worth compiling, which takes a hundred
// times as long as the statement, each time.
var Session = map[string]string{
	"plan_cache_mode": "force_generic_plan",
	"enable_seqscan":  "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
	"jit": "off",
}

// Open connects to the database at dsn and checks that it answers.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		// pgx's message may quote the string, and with it the password
		return nil, errors.New("store: the database URL cannot be parsed")
	}
	cfg.RuntimeParams["application_name"] = "berthd"
	cfg.RuntimeParams["timezone"] = "UTC"
	for name, v := range Session {
		cfg.RuntimeParams[name] = v
	}
	cfg.RuntimeParams["lock_timeout"] = "15s"
	cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "60s"
	cfg.Tracer = o.Tracer
	db := stdlib.OpenDB(*cfg)
	if o.MaxConns <= 0 {
		o.MaxConns = 20
	}
	db.SetMaxOpenConns(o.MaxConns)
	db.SetMaxIdleConns(o.MaxConns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("store: ping: %w", err)
	}
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{
		Logger:                 logger.Discard,
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
	})
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("store: gorm: %w", err)
	}
	s := &Store{db: g, sql: db, dsn: dsn, trace: o.Trace}
	s.convoy.together = func(ctx context.Context, as []models.Attestation) (map[models.UploadID]models.AttestOutcome, error) {
		now := as[0].Now // the latest: none of them may be completed before it was opened
		for _, a := range as {
			if a.Now.After(now) {
				now = a.Now
			}
		}
		return s.attestTogether(ctx, as, false, now)
	}
	return s, nil
}

// Close gives the connections back.
func (s *Store) Close() error { return s.sql.Close() }

// Ping tells whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.sql.PingContext(ctx); err != nil {
		return fmt.Errorf("store: ping: %w", err)
	}
	return nil
}

// args are named parameters: @name in the statement.
type args map[string]any

// tx is one transaction, or one statement outside any.
type tx struct{ db *gorm.DB }

// exec runs one statement and returns the affected rows.
func (t tx) exec(q string, a args) (int64, error) {
	r := t.db.Exec(q, map[string]any(a))
	return r.RowsAffected, r.Error
}

// one runs a guarded statement that must touch exactly one row. ok is false when it
// touched none: the guard said no.
func (t tx) one(q string, a args) (ok bool, err error) {
	n, err := t.exec(q, a)
	if err == nil && n > 1 {
		err = fmt.Errorf("a guarded statement touched %d rows", n)
	}
	return n == 1, err
}

// read scans rows into dest: a struct (zero rows leave it as it is) or a slice. It
// returns how many rows there were.
func (t tx) read(dest any, q string, a args) (int64, error) {
	db := t.db.Raw(q)
	if len(a) > 0 { // gorm would bind an empty map
		db = t.db.Raw(q, map[string]any(a))
	}
	// Not gorm's Scan, which writes out each statement with its values, for a log that we
	// do not keep.
	rows, err := db.Rows()
	if err != nil {
		return 0, err
	}
	defer rows.Close() //nolint:errcheck // what ended it is in Err
	if !rows.Next() {
		return 0, rows.Err()
	}
	if err := t.db.ScanRows(rows, dest); err != nil {
		return 0, err
	}
	n := int64(1)
	if v := reflect.Indirect(reflect.ValueOf(dest)); v.Kind() == reflect.Slice {
		n = int64(v.Len())
	}
	return n, rows.Err()
}

// within runs do in one transaction.
func (s *Store) within(ctx context.Context, op string, do func(tx) error) error {
	return s.whole(ctx, op, func(ctx context.Context) error {
		return s.db.WithContext(ctx).Transaction(func(g *gorm.DB) error { return do(tx{g}) })
	})
}

// single runs do, which is one statement and so a transaction by itself: it costs one way
// to the database instead of three.
func (s *Store) single(ctx context.Context, op string, do func(tx) error) error {
	return s.whole(ctx, op, func(ctx context.Context) error { return do(s.alone(ctx)) })
}

// whole runs what is done as a whole or not at all. A deadlock or a serialization failure
// undid all of it, so it is run again, a few times; nothing else is.
func (s *Store) whole(ctx context.Context, op string, do func(context.Context) error) error {
	ctx, span := s.trace.Child(ctx, tracing.Client, op, dbSystem)
	var err error
	for range 3 {
		err = do(ctx)
		if c := sqlState(err); c != "40P01" && c != "40001" {
			break
		}
	}
	if ctx.Err() != nil && (errors.Is(err, sql.ErrTxDone) || errors.Is(err, driver.ErrBadConn)) {
		err = ctx.Err() // the caller went away, and database/sql undid it for that
	}
	if state := sqlState(err); state != "" {
		span.Fail(state) // all else is a guard that said no, or is told by the caller's span
	}
	span.End(ctx.Err())
	return wrap(op, err)
}

var dbSystem = tracing.String("db.system.name", "postgresql")

// alone runs statements outside a transaction.
func (s *Store) alone(ctx context.Context) tx { return tx{s.db.WithContext(ctx)} }

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *models.Error
	if errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("store: %s: %w", op, err)
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// violates tells whether err is the violation of the named constraint.
func violates(err error, constraint string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.ConstraintName == constraint
}

// from is the SQL list of the states that may become to. The states are constants of
// models, so they are written into the statement.
func from[S ~string](m models.Machine[S], to S) string { return list(m.From(to)...) }

func list[S ~string](states ...S) string {
	q := make([]string, len(states))
	for i, s := range states {
		q[i] = "'" + string(s) + "'"
	}
	return "(" + strings.Join(q, ", ") + ")"
}

// null turns zero values into NULL.
func null[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

func nullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

var arrayQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// textArray is a PostgreSQL text[] literal; gorm would spread a slice.
func textArray[S ~string](v []S) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range v {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = arrayQuoter.WriteString(&b, string(s))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

func intArray(v []int) string {
	b := make([]byte, 0, 8*len(v)+2)
	b = append(b, '{')
	for i, n := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}

// byteaArray is a PostgreSQL bytea[] literal in hex.
func byteaArray(v [][]byte) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 72*len(v)+2)
	b = append(b, '{')
	for i, d := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"', '\\', '\\', 'x')
		for _, x := range d {
			b = append(b, digits[x>>4], digits[x&15])
		}
		b = append(b, '"')
	}
	return string(append(b, '}'))
}
