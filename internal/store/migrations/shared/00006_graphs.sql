-- Tasks that wait for tasks.
-- +goose NO TRANSACTION
-- +goose Up
-- Has children: the statement that ends it sets its wake_at, so that somebody looks at them.
ALTER TABLE tasks ADD COLUMN parent BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE tasks DROP CONSTRAINT tasks_ended_asleep;
ALTER TABLE tasks ADD CONSTRAINT tasks_ended_asleep CHECK (state < 5 OR wake_at IS NULL OR parent);

-- What each task waits for, kept with the child. outcome is 0 while the edge is open, and then the state in which its parent has ended.
CREATE TABLE task_edges (
    region        crdb_internal_region NOT NULL,
    child_id      UUID NOT NULL,
    parent_id     UUID NOT NULL,
    parent_region TEXT NOT NULL,
    place         BIGINT NOT NULL, -- among the child's parents, from 0
    outcome       SMALLINT NOT NULL DEFAULT 0,
    PRIMARY KEY (region, child_id, parent_id),
    CONSTRAINT task_edges_outcome CHECK (outcome = 0 OR outcome BETWEEN 5 AND 8)
);
-- Which outcomes there are among a child's edges: three probes, however many edges it has. Partial, though it leaves nothing out, so
-- that it does not fit a statement by primary key.
CREATE INDEX task_edges_by_outcome ON task_edges (region, child_id, outcome) WHERE outcome >= 0;

-- Who waits for a task, kept with the parent.
CREATE TABLE task_children (
    region       crdb_internal_region NOT NULL,
    parent_id    UUID NOT NULL,
    child_id     UUID NOT NULL,
    child_region TEXT NOT NULL,
    PRIMARY KEY (region, parent_id, child_id)
);

-- The tasks of each graph in the order of its submission. A graph has the ID of its first task.
CREATE TABLE graph_tasks (
    region   crdb_internal_region NOT NULL,
    graph_id UUID NOT NULL,
    place    BIGINT NOT NULL, -- from 0
    task_id  UUID NOT NULL,
    PRIMARY KEY (region, graph_id, place)
);
