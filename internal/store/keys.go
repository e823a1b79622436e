package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const keyColumns = `id, hash, scope, COALESCE(tenant, ''), COALESCE(kinds, '{}'), note, created_at, revoked_at`

const createKey = `
INSERT INTO api_keys (id, hash, scope, tenant, kinds, note, created_at) VALUES ($1, $2, $3, $4, $5, $6, now())`

const lookupKey = `SELECT ` + keyColumns + ` FROM api_keys WHERE hash = $1`

const listKeys = `
SELECT ` + keyColumns + ` FROM api_keys WHERE id > $1 AND ($2::text = '' OR tenant = $2::text) ORDER BY id LIMIT $3`

// revokeKey ends a key; the first end stays.
const revokeKey = `UPDATE api_keys SET revoked_at = COALESCE(revoked_at, now()) WHERE id = $1 RETURNING ` + keyColumns

func scanKey(row pgx.CollectableRow) (Key, error) {
	var k Key
	var revoked *time.Time
	err := row.Scan(&k.ID, &k.Hash, &k.Scope, &k.Tenant, &k.Kinds, &k.Note, &k.CreatedAt, &revoked)
	k.RevokedAt = timeOf(revoked)
	return k, err
}

// CreateKey stores a key.
func (s *Store) CreateKey(ctx context.Context, k Key) error {
	_, err := s.general.Exec(ctx, createKey, k.ID, k.Hash, int16(k.Scope), optionalText(k.Tenant), k.Kinds, k.Note)
	return translate("create key "+k.ID, err)
}

// LookupKey returns the key with this hash, revoked or not, or ErrNotFound.
func (s *Store) LookupKey(ctx context.Context, hash []byte) (Key, error) {
	got, err := rows(ctx, s.control, "look up key", lookupKey, scanKey, hash)
	return one(got, err, ErrNotFound)
}

// ListKeys returns keys by id after the given one, all or one tenant's.
func (s *Store) ListKeys(ctx context.Context, tenant, after string, limit int) ([]Key, error) {
	return rows(ctx, s.general, "list keys", listKeys, scanKey, after, tenant, int64(limit))
}

// RevokeKey ends a key, or returns ErrNotFound.
func (s *Store) RevokeKey(ctx context.Context, id string) (Key, error) {
	got, err := rows(ctx, s.general, "revoke key "+id, revokeKey, scanKey, id)
	return one(got, err, ErrNotFound)
}
