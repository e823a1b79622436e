-- Dead index entries are walked by every scan until they are collected: ten minutes is the shortest that the vendor tests.
-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE tasks CONFIGURE ZONE USING gc.ttlseconds = 600;
ALTER TABLE starts CONFIGURE ZONE USING gc.ttlseconds = 600;
