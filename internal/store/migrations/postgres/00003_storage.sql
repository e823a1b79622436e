-- Rows change state two or three times: room on their page keeps the changes near, and frequent vacuum keeps the partial
-- indexes short.
-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE tasks SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
ALTER TABLE tasks ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE tasks ALTER COLUMN result SET STORAGE EXTERNAL;
