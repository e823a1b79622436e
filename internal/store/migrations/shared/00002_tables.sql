-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE tasks (
    region           crdb_internal_region NOT NULL,
    id               UUID NOT NULL,
    shard            SMALLINT NOT NULL,
    tier             SMALLINT NOT NULL,
    state            SMALLINT NOT NULL,
    class            SMALLINT NOT NULL,
    counted          SMALLINT NOT NULL DEFAULT 0,
    worker_losses    SMALLINT NOT NULL DEFAULT 0,
    suspect          BOOLEAN NOT NULL DEFAULT false,
    cancel_requested BOOLEAN NOT NULL DEFAULT false,
    attempt          BIGINT NOT NULL DEFAULT 0,
    tolerance_us     BIGINT NOT NULL,
    created_at       TIMESTAMPTZ NOT NULL,
    due              TIMESTAMPTZ NOT NULL,
    ready_at         TIMESTAMPTZ,
    run_at           TIMESTAMPTZ,
    start_by         TIMESTAMPTZ,
    wake_at          TIMESTAMPTZ,
    started_at       TIMESTAMPTZ,
    ended_at         TIMESTAMPTZ,
    session_id       UUID,
    worker_id        UUID,
    effect_key       UUID,
    tenant           TEXT NOT NULL,
    kind             TEXT NOT NULL,
    content_type     TEXT,
    trace_parent     TEXT,
    idempotency_key  TEXT,
    unique_key       TEXT,
    spec             JSONB,
    payload          BYTEA,
    result           BYTEA,
    result_type      TEXT,
    failure          JSONB,
    -- What the indexes of ready and dead tasks go by. An index that names the state itself would get a new entry, and with it every
    -- other index too, at each change of state; these columns do not change when a running task ends well.
    lane             SMALLINT GENERATED ALWAYS AS (CASE WHEN state = 2 THEN shard END) STORED,
    dead_at          TIMESTAMPTZ GENERATED ALWAYS AS (CASE WHEN state = 6 THEN ended_at END) STORED,
    -- The tenant and the unique key while the task is open. Of a task without one it never changes either.
    open_key         TEXT GENERATED ALWAYS AS (CASE WHEN state < 5 THEN tenant || '/' || unique_key END) STORED,
    PRIMARY KEY (region, id),
    CONSTRAINT tasks_state CHECK (state BETWEEN 1 AND 8 AND tier BETWEEN 1 AND 3),
    CONSTRAINT tasks_counts CHECK (counted BETWEEN 0 AND attempt AND worker_losses BETWEEN 0 AND counted),
    CONSTRAINT tasks_scheduled CHECK (state <> 1 OR (wake_at IS NOT NULL AND run_at IS NOT NULL)),
    CONSTRAINT tasks_ready CHECK (state <> 2 OR ready_at IS NOT NULL),
    CONSTRAINT tasks_running CHECK (state <> 3 OR (
        session_id IS NOT NULL AND worker_id IS NOT NULL AND started_at IS NOT NULL AND attempt > 0 AND wake_at IS NULL)),
    CONSTRAINT tasks_ended CHECK ((state >= 5) = (ended_at IS NOT NULL)),
    CONSTRAINT tasks_ended_asleep CHECK (state < 5 OR wake_at IS NULL),
    CONSTRAINT tasks_result CHECK (result IS NULL OR state = 5),
    CONSTRAINT tasks_times CHECK (
        due BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-31 00:00:00+00'
        AND (run_at IS NULL OR run_at BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-31 00:00:00+00')
        AND (start_by IS NULL OR start_by BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-31 00:00:00+00')
        AND (wake_at IS NULL OR wake_at BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-31 00:00:00+00')),
    CONSTRAINT tasks_sizes CHECK (
        (payload IS NULL OR octet_length(payload) <= 262144) AND (result IS NULL OR octet_length(result) <= 262144))
);
-- Every index but the primary key is partial, with a condition that a statement by primary key does not have: then no planner,
-- on whatever statistics, can take one of them for such a statement and walk a whole region.
CREATE INDEX tasks_by_ready ON tasks (region, lane, tenant, tier, class, due, id) WHERE lane IS NOT NULL;
CREATE INDEX tasks_by_wake ON tasks (region, shard, wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX tasks_dead ON tasks (region, tenant, dead_at, id) WHERE dead_at IS NOT NULL;
-- At most one open task per tenant and key, in all regions: only a task with such a key is looked for outside its own.
CREATE UNIQUE INDEX tasks_by_open_key ON tasks (open_key) WHERE open_key IS NOT NULL;
CREATE INDEX tasks_by_tenant ON tasks (region, tenant, created_at, id) WHERE tenant IS NOT NULL;

-- Which tasks each statement started under a session, so that the running tasks of a session are found: a row per statement in place
-- of an index entry per task. A row may name tasks that run no more; it never misses one that does.
CREATE TABLE starts (
    region     crdb_internal_region NOT NULL,
    session_id UUID NOT NULL,
    batch      UUID NOT NULL,
    ids        UUID[] NOT NULL,
    at         TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (region, session_id, batch)
);

-- Attempts that did not simply succeed.
CREATE TABLE task_attempts (
    region     crdb_internal_region NOT NULL,
    task_id    UUID NOT NULL,
    number     BIGINT NOT NULL,
    worker_id  UUID,
    started_at TIMESTAMPTZ,
    ended_at   TIMESTAMPTZ NOT NULL,
    failure    JSONB NOT NULL,
    counted    BOOLEAN NOT NULL,
    PRIMARY KEY (region, task_id, number)
);

CREATE TABLE task_checkpoints (
    region   crdb_internal_region NOT NULL,
    task_id  UUID NOT NULL,
    attempt  BIGINT NOT NULL,
    seq      BIGINT NOT NULL,
    data     BYTEA NOT NULL,
    saved_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (region, task_id)
);

-- Kept in the tenant's home region, so that a key has one scope for all regions.
CREATE TABLE idempotency_keys (
    region      crdb_internal_region NOT NULL,
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BYTEA NOT NULL,
    task_region TEXT NOT NULL,
    task_id     UUID NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (region, tenant, key)
);

CREATE TABLE sessions (
    region     crdb_internal_region NOT NULL,
    id         UUID NOT NULL,
    address    TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    ended_at   TIMESTAMPTZ,
    idle       BOOLEAN NOT NULL DEFAULT false, -- has no workers and runs nothing: it has no part of any cap
    role       SMALLINT NOT NULL DEFAULT 0 CHECK (role BETWEEN 0 AND 2), -- 1 guest, 2 adopter: of an instance of another region
    home       TEXT, -- that region; NULL for this one
    PRIMARY KEY (region, id)
);

-- The regions of the deployment. A number is given once and kept: it is in the first byte of every id of the region.
CREATE TABLE regions (
    name       TEXT NOT NULL PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 63),
    number     SMALLINT NOT NULL UNIQUE CHECK (number BETWEEN 0 AND 15),
    draining   BOOLEAN NOT NULL DEFAULT false, -- starts nothing new; other regions serve its tasks
    changed_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- What each write batch accepted, ended and purged, counted with the write itself.
CREATE TABLE ledger (
    region   crdb_internal_region NOT NULL,
    batch    UUID NOT NULL,
    tenant   TEXT NOT NULL,
    tier     SMALLINT NOT NULL,
    accepted BIGINT NOT NULL,
    ended    BIGINT NOT NULL,
    purged   BIGINT NOT NULL,
    at       TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (region, batch, tenant, tier)
);

CREATE TABLE tenants (
    name          TEXT NOT NULL,
    home_region   TEXT NOT NULL,
    weight        DOUBLE PRECISION NOT NULL,
    paused        BOOLEAN NOT NULL DEFAULT false,
    rate          DOUBLE PRECISION NOT NULL DEFAULT 0,
    burst         BIGINT NOT NULL DEFAULT 0,
    urgent_rate   DOUBLE PRECISION NOT NULL DEFAULT 0,
    refuse_urgent BOOLEAN NOT NULL DEFAULT false,
    max_open      BIGINT NOT NULL DEFAULT 0,
    max_running   BIGINT NOT NULL DEFAULT 0,
    start_rate    DOUBLE PRECISION NOT NULL DEFAULT 0,
    created_at    TIMESTAMPTZ NOT NULL,
    -- What schedulers must know differs from the defaults; such rows are few, and read again when they change.
    special       BOOLEAN GENERATED ALWAYS AS (weight <> 1 OR paused OR rate > 0 OR burst > 0 OR urgent_rate > 0 OR refuse_urgent
        OR max_open > 0 OR max_running > 0 OR start_rate > 0) STORED,
    changed_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (name),
    CONSTRAINT tenants_weight CHECK (weight BETWEEN 0.01 AND 1000),
    CONSTRAINT tenants_limits CHECK (
        rate BETWEEN 0 AND 1000000 AND burst BETWEEN 0 AND 10000000 AND urgent_rate BETWEEN 0 AND 1000000
        AND max_open >= 0 AND max_running >= 0 AND start_rate BETWEEN 0 AND 1000000)
);
CREATE INDEX tenants_changed ON tenants (changed_at);
CREATE INDEX tenants_special ON tenants (name) WHERE special;

-- Defaults and pauses of kinds. Tasks of a kind without a row are as good as any. One whose tenant was deleted stays as a row that says
-- nothing, for those who read only what has changed.
CREATE TABLE kinds (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    paused     BOOLEAN NOT NULL DEFAULT false,
    defaults   JSONB NOT NULL,
    deleted    BOOLEAN NOT NULL DEFAULT false,
    created_at TIMESTAMPTZ NOT NULL,
    changed_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX kinds_changed ON kinds (changed_at);

-- Named limits. A deleted one stays as a row that says so, for those who read only what has changed.
CREATE TABLE limits (
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    concurrency BIGINT NOT NULL,
    rate        DOUBLE PRECISION NOT NULL,
    global      BOOLEAN NOT NULL,
    deleted     BOOLEAN NOT NULL DEFAULT false,
    changed_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (tenant, name),
    CONSTRAINT limits_caps CHECK (concurrency BETWEEN 0 AND 10000000 AND rate BETWEEN 0 AND 1000000)
);
CREATE INDEX limits_changed ON limits (changed_at);

CREATE TABLE api_keys (
    id         TEXT NOT NULL,
    hash       BYTEA NOT NULL,
    scope      SMALLINT NOT NULL,
    tenant     TEXT,
    kinds      TEXT[],
    note       TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    revoked_at TIMESTAMPTZ,
    PRIMARY KEY (id),
    UNIQUE (hash),
    CONSTRAINT api_keys_scope CHECK (scope BETWEEN 1 AND 3 AND (scope = 1) = (tenant IS NOT NULL))
);
