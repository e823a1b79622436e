-- CockroachDB has this type by itself in a multi-region database. As a domain it serves the same statements here.
-- +goose NO TRANSACTION
-- +goose Up
CREATE DOMAIN crdb_internal_region AS TEXT;
