package stack

import "testing"

// Fill adds n active files with their uploads, replicas and cancelled reap tasks, as they
// are years later, and so many tasks more that are due. Nothing of them is at S3.
func (s *Stack) Fill(t testing.TB, n, due int) {
	t.Helper()
	const id = "lpad(to_hex(i), 36, '0')"
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{"ALTER TABLE replicas DISABLE TRIGGER USER", nil},
		{"ALTER TABLE tasks DISABLE TRIGGER USER", nil},
		{`INSERT INTO files (id, tenant, owner, collection, name, size, part_size, content_type, state, version_id, upload_id, created_at, updated_at, activated_at)
			SELECT 'fil_' || ` + id + `, 'default', 'own-' || i % 1000, 'default', 'a', 10, 10, 'a/b', 'active', 'v', 'upl_' || ` + id + `, now(), now(), now() FROM generate_series(0, $1::int - 1) i`, []any{n}},
		{`INSERT INTO replicas (id, file_id, store, key, is_primary, state, size, version_id, etag, created_at, updated_at)
			SELECT 'rep_' || ` + id + `, 'fil_' || ` + id + `, 'main', 'b/default/' || md5(i::text), true, 'ready', 10, 'v', 'e', now(), now() FROM generate_series(0, $1::int - 1) i`, []any{n}},
		{`INSERT INTO uploads (id, tenant, owner, collection, file_id, replica_id, state, method, size, part_size, part_count, commit_mode, store, key,
				content_type, grace, expires_at, hard_expires_at, version_id, completed_at, closed_at, created_at, updated_at)
			SELECT 'upl_' || ` + id + `, 'default', 'own-' || i % 1000, 'default', 'fil_' || ` + id + `, 'rep_' || ` + id + `, 'committed', 'single', 10, 10, 1, 'auto', 'main',
				'b/default/' || md5(i::text), 'a/b', '1 hour', now(), now(), 'v', now(), now(), now(), now() FROM generate_series(0, $1::int - 1) i`, []any{n}},
		{`INSERT INTO tasks (id, kind, target, file_id, state, run_at, max_attempts, created_at, updated_at, closed_at)
			SELECT 'tsk_' || ` + id + `, 'reap', 'rep_' || ` + id + `, 'fil_' || ` + id + `, CASE WHEN i < $2 THEN 'pending' ELSE 'cancelled' END, now() - interval '1 hour', 10, now(), now(),
				CASE WHEN i < $2 THEN NULL ELSE now() END FROM generate_series(0, $1::int - 1) i`, []any{n, due}},
		{"ALTER TABLE replicas ENABLE TRIGGER USER", nil},
		{"ALTER TABLE tasks ENABLE TRIGGER USER", nil},
		{"ANALYZE", nil},
	} {
		if _, err := s.pool.Exec(t.Context(), q.sql, q.args...); err != nil {
			t.Fatalf("%s: %v", q.sql, err)
		}
	}
}
