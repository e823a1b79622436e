package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const tenantColumns = `name, home_region, weight, paused, created_at`

// createTenant stores a tenant. Guard: the name is free.
const createTenant = `
INSERT INTO tenants (name, home_region, weight, paused, created_at, changed_at) VALUES ($1, $2, $3, $4, now(), now())
ON CONFLICT (name) DO NOTHING RETURNING ` + tenantColumns

// updateTenant changes what may change of a tenant.
const updateTenant = `UPDATE tenants SET weight = $2, paused = $3, changed_at = now() WHERE name = $1 RETURNING ` + tenantColumns

const readTenant = `SELECT ` + tenantColumns + ` FROM tenants WHERE name = $1`

const listTenants = `SELECT ` + tenantColumns + ` FROM tenants WHERE name > $1 ORDER BY name LIMIT $2`

func scanTenant(row pgx.CollectableRow) (Tenant, error) {
	var t Tenant
	err := row.Scan(&t.Name, &t.HomeRegion, &t.Weight, &t.Paused, &t.CreatedAt)
	return t, err
}

// one takes the only row, or says that there is none.
func one[T any](got []T, err, none error) (T, error) {
	var zero T
	switch {
	case err != nil:
		return zero, err
	case len(got) == 0:
		return zero, none
	}
	return got[0], nil
}

// CreateTenant stores a tenant, or returns ErrExists.
func (s *Store) CreateTenant(ctx context.Context, t Tenant) (Tenant, error) {
	got, err := rows(ctx, s.general, "create tenant "+t.Name, createTenant, scanTenant, t.Name, t.HomeRegion, t.Weight, t.Paused)
	return one(got, err, ErrExists)
}

// UpdateTenant changes a tenant's weight and pause, or returns ErrNotFound.
func (s *Store) UpdateTenant(ctx context.Context, t Tenant) (Tenant, error) {
	got, err := rows(ctx, s.general, "update tenant "+t.Name, updateTenant, scanTenant, t.Name, t.Weight, t.Paused)
	return one(got, err, ErrNotFound)
}

// Tenant returns a tenant, or ErrNotFound.
func (s *Store) Tenant(ctx context.Context, name string) (Tenant, error) {
	got, err := rows(ctx, s.general, "read tenant "+name, readTenant, scanTenant, name)
	return one(got, err, ErrNotFound)
}

// ListTenants returns tenants by name, after the given one.
func (s *Store) ListTenants(ctx context.Context, after string, limit int) ([]Tenant, error) {
	return rows(ctx, s.general, "list tenants", listTenants, scanTenant, after, int64(limit))
}

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
