package store_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"berth/internal/testkit"
	"berth/models"
)

// The states of the schema's CHECK constraints are those of the transition tables.
func TestSchemaKnowsTheStatesOfTheModels(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testkit.DB(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // read only
	for constraint, want := range map[string][]string{
		"uploads_state": states(models.Uploads), "files_state": states(models.Files), "replicas_state": states(models.Replicas),
		"tasks_state": states(models.Tasks), "outbox_state": states(models.Outbox),
	} {
		var def string
		if err := conn.QueryRow(t.Context(), `SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1`, constraint).Scan(&def); err != nil {
			t.Fatalf("%s: %v", constraint, err)
		}
		var got []string
		for _, m := range regexp.MustCompile(`'([a-z_]+)'`).FindAllStringSubmatch(def, -1) {
			got = append(got, m[1])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v, the models %v", constraint, got, want)
		}
	}
}

func states[S ~string](m models.Machine[S]) []string {
	var out []string
	for s := range m.Next {
		out = append(out, string(s))
	}
	slices.Sort(out)
	return out
}

// History cannot be written again.
func TestHistoryIsAppendOnly(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testkit.DB(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // dropped with its database
	if _, err := conn.Exec(t.Context(), `INSERT INTO history (at, file_id, what, subject, to_state, actor) VALUES (now(), 'fil_x', 'file', 'fil_x', 'active', 'test')`); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`UPDATE history SET actor = 'eve'`, `DELETE FROM history`} {
		if _, err := conn.Exec(t.Context(), q); err == nil {
			t.Errorf("%s: was done", q)
		}
	}
	var part string
	if err := conn.QueryRow(t.Context(), `SELECT tableoid::regclass::text FROM history`).Scan(&part); err != nil || part == "history_rest" {
		t.Errorf("the row lies in %q, error %v: its month has no partition", part, err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT berth_history_drop(now() + interval '400 days')`); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM history`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows left of a month that was dropped, error %v", n, err)
	}
}
