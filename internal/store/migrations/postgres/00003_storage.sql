-- Rows change state two or three times. With half of each page left free the last change finds room beside the row it replaces, and
-- touches no index; frequent vacuum keeps the partial indexes short.
-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE tasks SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
ALTER TABLE tasks ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE tasks ALTER COLUMN result SET STORAGE EXTERNAL;
ALTER TABLE starts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 1);
ALTER TABLE starts ALTER COLUMN ids SET STORAGE EXTERNAL;
