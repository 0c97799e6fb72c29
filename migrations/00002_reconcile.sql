-- +goose Up

-- S3 lists keys in the order of their bytes; so must we, to walk both side by side.
-- The collation of the column makes the unique index on (store, key) that order.
ALTER TABLE replicas ALTER COLUMN key TYPE text COLLATE "C";

-- A run holds a lease: one that died is marked failed by the next of its store.
ALTER TABLE reconciliations ADD COLUMN lease_until timestamptz;
ALTER TABLE reconciliations ADD CONSTRAINT reconciliations_lease CHECK ((state = 'running') = (lease_until IS NOT NULL));
CREATE UNIQUE INDEX reconciliations_one_running ON reconciliations (store) WHERE state = 'running';
CREATE INDEX reconciliations_by_store ON reconciliations (store, started_at DESC);

-- Versions that reconcile is about to delete: noted in the transaction that found that
-- nothing references them, gone when the delete is answered. Whoever wants to register
-- one of them (an import) meanwhile is refused, so that no row can come to reference
-- what is being deleted.
CREATE TABLE condemned (
    store      text NOT NULL,
    key        text NOT NULL COLLATE "C",
    version_id text NOT NULL,
    run_id     text NOT NULL REFERENCES reconciliations (id),
    PRIMARY KEY (store, key, version_id)
);
CREATE INDEX condemned_by_run ON condemned (run_id);

-- Rows that begin without a version (every upload's) do not come here, and do not
-- wait: only imports do.
-- +goose StatementBegin
CREATE FUNCTION berth_not_condemned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('berth condemned'), hashtext(NEW.store));
    IF EXISTS (SELECT 1 FROM condemned c WHERE c.store = NEW.store AND c.key = NEW.key AND c.version_id = NEW.version_id) THEN
        RAISE EXCEPTION 'the version is being deleted as an orphan'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'replicas_not_condemned';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER replicas_not_condemned BEFORE INSERT ON replicas
    FOR EACH ROW WHEN (NEW.version_id IS NOT NULL) EXECUTE FUNCTION berth_not_condemned();

-- +goose Down
DROP TRIGGER replicas_not_condemned ON replicas;
DROP FUNCTION berth_not_condemned;
DROP TABLE condemned;
DROP INDEX reconciliations_one_running, reconciliations_by_store;
ALTER TABLE reconciliations DROP COLUMN lease_until;
ALTER TABLE replicas ALTER COLUMN key TYPE text COLLATE "default";
