-- +goose Up

-- Every state column has a CHECK that lists its states (held against
-- models/transitions.go by a test) and CHECKs that tie the state to the columns
-- that only make sense in it.

CREATE TABLE files (
    id                 text PRIMARY KEY CHECK (id LIKE 'fil\_%'),
    tenant             text NOT NULL,
    owner              text NOT NULL,
    collection         text NOT NULL,
    name               text NOT NULL,
    size               bigint NOT NULL CHECK (size >= 0),
    part_size          bigint NOT NULL CHECK (part_size >= 0),
    content_type       text NOT NULL,
    metadata           jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    state              text NOT NULL CONSTRAINT files_state CHECK (state IN
        ('preparing', 'processing', 'active', 'blocked', 'failed', 'deleting', 'delete_failed', 'deleted')),
    checksum_algorithm text NOT NULL DEFAULT '',
    checksum_type      text NOT NULL DEFAULT '',
    checksum_value     text NOT NULL DEFAULT '',
    declared           boolean NOT NULL DEFAULT false,
    -- rounds of the processing chain that were begun by hand
    round              integer NOT NULL DEFAULT 0,
    -- the file that this one is derived from, by a step of its chain
    parent_id          text REFERENCES files (id),
    -- the lease that the step had when it began to send it, and whether a verdict was
    -- taken under that lease: only then is it attached
    derived_fence      bigint,
    derived_accepted   boolean NOT NULL DEFAULT false,
    -- identity is kept only where the collection dedupes: see models.IdentityOf
    identity           text,
    version_id         text,
    etag               text,
    upload_id          text,
    -- guarded: this file is counted in quotas; cleared when the quota is released
    guarded            boolean NOT NULL DEFAULT false,
    reason_code        text,
    reason             text,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    activated_at       timestamptz,
    deleted_at         timestamptz,
    CONSTRAINT files_active_attested CHECK (state NOT IN ('active', 'blocked', 'processing') OR version_id IS NOT NULL),
    CONSTRAINT files_active_at CHECK (state <> 'active' OR activated_at IS NOT NULL),
    CONSTRAINT files_not_yet_active CHECK (state NOT IN ('preparing', 'processing') OR activated_at IS NULL),
    CONSTRAINT files_failed_reason CHECK (state <> 'failed' OR reason_code IS NOT NULL),
    CONSTRAINT files_deleted_at CHECK ((state = 'deleted') = (deleted_at IS NOT NULL)),
    CONSTRAINT files_derived CHECK ((parent_id IS NULL) = (derived_fence IS NULL)),
    CONSTRAINT files_guard_living CHECK (NOT guarded OR state IN ('preparing', 'processing', 'active', 'blocked'))
);
CREATE UNIQUE INDEX files_identity ON files (tenant, owner, collection, identity)
    WHERE identity IS NOT NULL AND state IN ('preparing', 'processing', 'active', 'blocked');
CREATE INDEX files_by_owner ON files (tenant, owner, id);
CREATE INDEX files_by_parent ON files (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE replicas (
    id           text PRIMARY KEY CHECK (id LIKE 'rep\_%'),
    file_id      text NOT NULL REFERENCES files (id),
    store        text NOT NULL,
    key          text NOT NULL,
    is_primary   boolean NOT NULL,
    state        text NOT NULL CONSTRAINT replicas_state CHECK (state IN
        ('pending', 'writing', 'ready', 'write_failed', 'delete_pending', 'deleting', 'delete_failed', 'deleted')),
    size         bigint NOT NULL CHECK (size >= 0),
    version_id   text,
    etag         text,
    reason       text,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    deleted_at   timestamptz,
    CONSTRAINT replicas_ready_version CHECK (state <> 'ready' OR version_id IS NOT NULL),
    CONSTRAINT replicas_deleted_at CHECK ((state = 'deleted') = (deleted_at IS NOT NULL)),
    CONSTRAINT replicas_key UNIQUE (store, key)
);
CREATE UNIQUE INDEX replicas_one_primary ON replicas (file_id) WHERE is_primary;
CREATE INDEX replicas_by_file ON replicas (file_id);
-- what is on its way out: repair looks here for reap tasks that are missing
CREATE INDEX replicas_leaving ON replicas (updated_at) WHERE state IN ('write_failed', 'delete_pending', 'deleting');

CREATE TABLE uploads (
    id                 text PRIMARY KEY CHECK (id LIKE 'upl\_%'),
    tenant             text NOT NULL,
    owner              text NOT NULL,
    collection         text NOT NULL,
    file_id            text NOT NULL REFERENCES files (id),
    replica_id         text NOT NULL REFERENCES replicas (id),
    state              text NOT NULL CONSTRAINT uploads_state CHECK (state IN
        ('init', 'uploading', 'completing', 'completed', 'committed', 'rejected', 'aborted', 'expired')),
    method             text NOT NULL CHECK (method IN ('single', 'multipart')),
    size               bigint NOT NULL CHECK (size >= 0),
    part_size          bigint NOT NULL CHECK (part_size >= 0),
    part_count         integer NOT NULL CHECK (part_count BETWEEN 1 AND 10000),
    checksum_algorithm text NOT NULL DEFAULT '',
    checksum_type      text NOT NULL DEFAULT '',
    checksum_value     text NOT NULL DEFAULT '',
    commit_mode        text NOT NULL CHECK (commit_mode IN ('auto', 'deferred')),
    identity           text,
    store              text NOT NULL,
    key                text NOT NULL,
    s3_upload_id       text,
    content_type       text NOT NULL,
    -- the opener did not say the size: it is what S3 attests, settled at the end
    undeclared         boolean NOT NULL DEFAULT false,
    -- the older file of the same identity that was handed over instead
    reused_file_id     text REFERENCES files (id),
    attempt            integer NOT NULL DEFAULT 0,
    lease_until        timestamptz,
    signed_until       timestamptz,
    grace              interval NOT NULL,
    expires_at         timestamptz NOT NULL,
    hard_expires_at    timestamptz NOT NULL,
    version_id         text,
    etag               text,
    attested_algorithm text,
    attested_type      text,
    attested_value     text,
    reason_code        text,
    reason             text,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    completed_at       timestamptz,
    closed_at          timestamptz,
    -- a second request has begun the multipart too: one of them may be left over at S3
    contested          boolean NOT NULL DEFAULT false,
    parts_seen         integer NOT NULL DEFAULT 0,
    -- when repair last looked whether the bytes are there
    checked_at         timestamptz,
    -- the span that opened it, of W3C Trace Context: what is done for it later is of the same trace
    traceparent        text CONSTRAINT uploads_traceparent CHECK (traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$'),
    CONSTRAINT uploads_begun CHECK (method = 'single' OR state NOT IN ('uploading', 'completing', 'completed', 'committed') OR s3_upload_id IS NOT NULL),
    CONSTRAINT uploads_single_not_completing CHECK (method = 'multipart' OR state <> 'completing'),
    CONSTRAINT uploads_lease CHECK ((state = 'completing') = (lease_until IS NOT NULL)),
    CONSTRAINT uploads_attested CHECK (state NOT IN ('completed', 'committed') OR (version_id IS NOT NULL AND completed_at IS NOT NULL)),
    CONSTRAINT uploads_unattested CHECK (state NOT IN ('init', 'uploading', 'completing') OR version_id IS NULL),
    CONSTRAINT uploads_closed_at CHECK ((state IN ('committed', 'rejected', 'aborted', 'expired')) = (closed_at IS NOT NULL)),
    CONSTRAINT uploads_reused CHECK (reused_file_id IS NULL OR state = 'rejected'),
    CONSTRAINT uploads_reason CHECK (state <> 'rejected' OR reason_code IS NOT NULL)
);
CREATE UNIQUE INDEX uploads_key ON uploads (store, key);
CREATE UNIQUE INDEX uploads_file ON uploads (file_id);
-- the open sessions only: what repair sweeps and what "continue" looks for
CREATE INDEX uploads_open ON uploads (expires_at) WHERE state IN ('init', 'uploading', 'completing', 'completed');
CREATE INDEX uploads_quiet ON uploads (GREATEST(updated_at, checked_at)) WHERE state = 'completing' OR (state = 'uploading' AND method = 'single');
CREATE INDEX uploads_continue ON uploads (tenant, owner, collection, identity)
    WHERE identity IS NOT NULL AND state IN ('init', 'uploading', 'completing', 'completed');

-- A part's checksum as it was signed into its URL; gone when the session ends.
CREATE TABLE pins (
    upload_id text NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
    number    integer NOT NULL CHECK (number BETWEEN 1 AND 10000),
    digest    bytea NOT NULL,
    PRIMARY KEY (upload_id, number)
);

CREATE TABLE tasks (
    id            text PRIMARY KEY CHECK (id LIKE 'tsk\_%'),
    kind          text NOT NULL CHECK (kind IN ('replicate', 'process', 'reap')),
    target        text NOT NULL,
    file_id       text NOT NULL REFERENCES files (id),
    state         text NOT NULL CONSTRAINT tasks_state CHECK (state IN
        ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
    run_at        timestamptz NOT NULL,
    attempts      integer NOT NULL DEFAULT 0,
    max_attempts  integer NOT NULL CHECK (max_attempts > 0),
    manual        boolean NOT NULL DEFAULT false,
    lease_owner   text,
    lease_until   timestamptz,
    lease_version bigint NOT NULL DEFAULT 0,
    last_error    text,
    -- when a message was last sent about it (reap.dispatch: sqs); null: none is on its way
    announced_at  timestamptz,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    closed_at     timestamptz,
    CONSTRAINT tasks_lease CHECK ((state = 'running') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)),
    CONSTRAINT tasks_closed_at CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (closed_at IS NOT NULL))
);
CREATE UNIQUE INDEX tasks_one_open ON tasks (kind, target) WHERE state IN ('pending', 'running');
CREATE INDEX tasks_due ON tasks (kind, run_at) WHERE state = 'pending';
CREATE INDEX tasks_leased ON tasks (kind, lease_until) WHERE state = 'running';
CREATE INDEX tasks_failed ON tasks (closed_at) WHERE state = 'failed';

-- A task that is due wakes the workers; the slow tick is only the net. One that is due
-- later does not: workers know the next due time.
-- +goose StatementBegin
CREATE FUNCTION berth_task_due() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('berth_tasks', NEW.kind);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER tasks_due_insert AFTER INSERT ON tasks
    FOR EACH ROW WHEN (NEW.state = 'pending' AND NEW.run_at <= clock_timestamp() + interval '1 second')
    EXECUTE FUNCTION berth_task_due();
CREATE TRIGGER tasks_due_update AFTER UPDATE OF run_at, state ON tasks
    FOR EACH ROW WHEN (NEW.state = 'pending' AND NEW.run_at <= clock_timestamp() + interval '1 second'
                       AND (OLD.run_at > NEW.run_at OR OLD.state <> 'pending'))
    EXECUTE FUNCTION berth_task_due();

-- What an owner has of a collection. Kept only where the collection limits or dedupes.
CREATE TABLE quotas (
    tenant     text NOT NULL,
    owner      text NOT NULL,
    collection text NOT NULL,
    files      bigint NOT NULL CHECK (files >= 0),
    bytes      bigint NOT NULL CHECK (bytes >= 0),
    open       bigint NOT NULL DEFAULT 0 CHECK (open >= 0), -- sessions
    PRIMARY KEY (tenant, owner, collection)
) WITH (fillfactor = 70);

-- How many uploads were opened under a grant that limits them. Never released: a grant
-- is for so many tries, not for so many living files.
CREATE TABLE grant_uses (
    tenant     text NOT NULL,
    owner      text NOT NULL,
    grant_id   text NOT NULL,
    files      bigint NOT NULL CHECK (files > 0),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, owner, grant_id)
);
CREATE INDEX grant_uses_expiry ON grant_uses (expires_at);

-- What lies in a store, as the rows say. Cut into slots, which add up: one row a
-- store would be one lock for all opens.
CREATE TABLE store_usage_slots (
    store    text NOT NULL,
    slot     smallint NOT NULL,
    replicas bigint NOT NULL,
    bytes    bigint NOT NULL,
    PRIMARY KEY (store, slot)
) WITH (fillfactor = 50);
CREATE VIEW store_usage AS
    SELECT store, sum(bytes)::bigint AS bytes, sum(replicas)::bigint AS replicas
      FROM store_usage_slots GROUP BY store;

-- Every replica that is not deleted counts, whoever changes it and however: a
-- trigger keeps the count in the statement that changes the row.
-- +goose StatementBegin
CREATE FUNCTION berth_store_usage() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_n int := 0; old_b bigint := 0; new_n int := 0; new_b bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.state <> 'deleted' THEN old_n := 1; old_b := OLD.size; END IF;
    IF TG_OP <> 'DELETE' AND NEW.state <> 'deleted' THEN new_n := 1; new_b := NEW.size; END IF;
    IF old_n <> new_n OR old_b <> new_b THEN
        INSERT INTO store_usage_slots AS u (store, slot, replicas, bytes)
        VALUES (COALESCE(NEW.store, OLD.store), pg_backend_pid() % 32, new_n - old_n, new_b - old_b)
        ON CONFLICT (store, slot) DO UPDATE
           SET replicas = u.replicas + EXCLUDED.replicas, bytes = u.bytes + EXCLUDED.bytes;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER replicas_usage AFTER INSERT OR DELETE ON replicas
    FOR EACH ROW EXECUTE FUNCTION berth_store_usage();
CREATE TRIGGER replicas_usage_changed AFTER UPDATE OF state, size ON replicas
    FOR EACH ROW WHEN ((OLD.state = 'deleted') <> (NEW.state = 'deleted') OR OLD.size <> NEW.size)
    EXECUTE FUNCTION berth_store_usage();

CREATE TABLE outbox (
    id            text PRIMARY KEY CHECK (id LIKE 'evt\_%'),
    seq           bigint GENERATED ALWAYS AS IDENTITY,
    type          text NOT NULL,
    file_id       text NOT NULL,
    tenant        text NOT NULL,
    payload       jsonb NOT NULL,
    state         text NOT NULL CONSTRAINT outbox_state CHECK (state IN ('pending', 'sent', 'failed', 'cancelled')),
    not_before    timestamptz NOT NULL,
    -- the targets that have it already: an attempt goes to the rest
    sent_to       text[] NOT NULL DEFAULT '{}',
    attempts      integer NOT NULL DEFAULT 0,
    lease_owner   text,
    lease_until   timestamptz,
    lease_version bigint NOT NULL DEFAULT 0,
    last_error    text,
    -- the span that caused it
    traceparent   text CONSTRAINT outbox_traceparent CHECK (traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$'),
    created_at    timestamptz NOT NULL,
    closed_at     timestamptz,
    CONSTRAINT outbox_closed_at CHECK ((state = 'pending') = (closed_at IS NULL))
);
CREATE INDEX outbox_due ON outbox (not_before, seq) WHERE state = 'pending';
CREATE INDEX outbox_by_file ON outbox (file_id, seq) WHERE state = 'pending';
CREATE INDEX outbox_failed ON outbox (closed_at) WHERE state = 'failed';
CREATE INDEX outbox_closed ON outbox (closed_at) WHERE state IN ('sent', 'cancelled');
-- A file becomes active at most once, with one event (F3): the last line of defence.
CREATE UNIQUE INDEX outbox_one_active ON outbox (file_id) WHERE type = 'file.active';

-- +goose StatementBegin
CREATE FUNCTION berth_outbox_due() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('berth_tasks', 'outbox');
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER outbox_due AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION berth_outbox_due();

-- What each step of a file's processing chain said. A chain that is run again by hand
-- begins a new round.
CREATE TABLE step_results (
    file_id text NOT NULL REFERENCES files (id),
    round   integer NOT NULL,
    step    integer NOT NULL CHECK (step >= 0),
    name    text NOT NULL,
    verdict text NOT NULL CHECK (verdict IN ('pass', 'block', 'delete')),
    reason  text NOT NULL DEFAULT '',
    at      timestamptz NOT NULL,
    -- SHA-256 of the lease token that the step was called with: one that says it again is
    -- answered as before
    token_hash bytea,
    PRIMARY KEY (file_id, round, step)
);
CREATE INDEX step_results_at ON step_results (at);

-- A step that answers later. The token is kept as its SHA-256; it is good while the task
-- still has the lease that it was given under.
CREATE TABLE step_waits (
    task_id       text PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    lease_version bigint NOT NULL,
    step          integer NOT NULL,
    name          text NOT NULL,
    token_hash    bytea NOT NULL
);

-- One row per transition and per physical delete, in the transaction that made it.
CREATE TABLE history (
    id         bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL,
    file_id    text NOT NULL,
    what       text NOT NULL CHECK (what IN ('upload', 'file', 'replica', 'task', 'object')),
    subject    text NOT NULL,
    from_state text NOT NULL DEFAULT '',
    to_state   text NOT NULL,
    actor      text NOT NULL,
    why        text NOT NULL DEFAULT '',
    version_id text NOT NULL DEFAULT ''
) PARTITION BY RANGE (at);
CREATE TABLE history_rest PARTITION OF history DEFAULT;
CREATE INDEX history_by_file ON history (file_id, at, id);

-- Append-only: what happened cannot be written again. Old months go as partitions.
-- +goose StatementBegin
CREATE FUNCTION berth_history_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'history is append-only';
END $$;
-- +goose StatementEnd
CREATE TRIGGER history_append_only BEFORE UPDATE OR DELETE ON history
    FOR EACH ROW EXECUTE FUNCTION berth_history_append_only();

-- Makes the partitions of the month of from_at and of the months after it.
-- +goose StatementBegin
CREATE FUNCTION berth_history_partitions(from_at timestamptz, months int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lo timestamptz := date_trunc('month', from_at, 'UTC');
    hi timestamptz;
    part text;
BEGIN
    FOR i IN 0..months LOOP
        hi := date_trunc('month', lo + interval '32 days', 'UTC');
        part := 'history_' || to_char(lo AT TIME ZONE 'UTC', 'YYYY_MM');
        IF to_regclass(part) IS NULL THEN
            IF EXISTS (SELECT 1 FROM history_rest WHERE at >= lo AND at < hi) THEN
                -- Rows came before their month: they move into it, or it could never be made.
                ALTER TABLE history DETACH PARTITION history_rest;
                EXECUTE format('CREATE TABLE %I PARTITION OF history FOR VALUES FROM (%L) TO (%L)', part, lo, hi);
                INSERT INTO history OVERRIDING SYSTEM VALUE SELECT * FROM history_rest WHERE at >= lo AND at < hi;
                DELETE FROM history_rest WHERE at >= lo AND at < hi;
                ALTER TABLE history ATTACH PARTITION history_rest DEFAULT;
            ELSE
                EXECUTE format('CREATE TABLE %I PARTITION OF history FOR VALUES FROM (%L) TO (%L)', part, lo, hi);
            END IF;
        END IF;
        lo := hi;
    END LOOP;
END $$;
-- +goose StatementEnd
SELECT berth_history_partitions(now(), 3);

-- Drops the months that lie wholly before a time.
-- +goose StatementBegin
CREATE FUNCTION berth_history_drop(before timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part text;
BEGIN
    FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE i.inhparent = 'history'::regclass AND c.relname ~ '^history_[0-9]{4}_[0-9]{2}$' LOOP
        IF make_timestamptz(substr(part, 9, 4)::int, substr(part, 14, 2)::int, 1, 0, 0, 0, 'UTC') + interval '1 month' <= before THEN
            EXECUTE format('DROP TABLE IF EXISTS %I', part);
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd
CREATE INDEX tasks_closed ON tasks (closed_at) WHERE state IN ('succeeded', 'cancelled');

CREATE TABLE idempotency (
    tenant       text NOT NULL,
    owner        text NOT NULL,
    key          text NOT NULL,
    request_hash bytea NOT NULL,
    -- The answer, once there is one: of open the upload that it is about (its URLs are
    -- signed anew), of everything else the words themselves, which hold no URL.
    state        text NOT NULL CHECK (state IN ('running', 'done')),
    subject      text,
    status       integer,
    location     text NOT NULL DEFAULT '',
    body         bytea,
    -- a running one that is past it has died; it tells one taking from the next
    locked_until timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant, owner, key),
    CONSTRAINT idempotency_done CHECK ((state = 'done') = (status IS NOT NULL)),
    CONSTRAINT idempotency_answer CHECK ((state = 'done') = ((subject IS NOT NULL) <> (body IS NOT NULL)))
);
CREATE INDEX idempotency_expiry ON idempotency (expires_at);

-- Versions that appeared under a known key and are not ours: noted, reaped, never served.
CREATE TABLE foreign_versions (
    store      text NOT NULL,
    key        text NOT NULL,
    version_id text NOT NULL,
    replica_id text NOT NULL REFERENCES replicas (id),
    seen_at    timestamptz NOT NULL,
    reaped_at  timestamptz,
    PRIMARY KEY (store, key, version_id)
);
CREATE INDEX foreign_versions_reaped ON foreign_versions (reaped_at) WHERE reaped_at IS NOT NULL;

CREATE TABLE reconciliations (
    id          text PRIMARY KEY CHECK (id LIKE 'run\_%'),
    store       text NOT NULL,
    source      text NOT NULL CHECK (source IN ('listing', 'inventory')),
    repair      boolean NOT NULL,
    state       text NOT NULL CHECK (state IN ('running', 'succeeded', 'failed')),
    cutoff      timestamptz NOT NULL,
    report      jsonb NOT NULL DEFAULT '{}',
    last_error  text,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    CONSTRAINT reconciliations_finished CHECK ((state = 'running') = (finished_at IS NULL))
);

-- +goose Down
DROP TABLE step_waits, step_results, reconciliations, foreign_versions, grant_uses, idempotency, history, outbox, tasks, pins, uploads, replicas, files, quotas CASCADE;
DROP VIEW store_usage;
DROP TABLE store_usage_slots;
DROP FUNCTION berth_outbox_due, berth_task_due, berth_store_usage, berth_history_append_only, berth_history_partitions, berth_history_drop;
