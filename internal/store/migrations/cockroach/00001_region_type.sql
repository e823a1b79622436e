-- The type exists in every multi-region database: errand needs one (ALTER DATABASE ... SET PRIMARY REGION).
-- +goose NO TRANSACTION
-- +goose Up
SELECT 'x' FROM pg_type WHERE typname = 'crdb_internal_region';
