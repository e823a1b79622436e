package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/errandhq/errand/scheduler"
)

const kindColumns = `tenant, name, paused, defaults`

// ofTenant is the tenant whose kind or limit is written. Its row is changed with it: a tenant that is deleted at the same moment
// leaves nothing behind.
const ofTenant = `
WITH t AS (UPDATE tenants SET changed_at = now() WHERE name = $1 RETURNING name)`

// putKind sets a kind's defaults as a whole, and leaves its pause. Guard: the tenant is there. Returns the kind, or no row.
const putKind = ofTenant + `
INSERT INTO kinds (tenant, name, defaults, created_at, changed_at) SELECT t.name, $2::text, $3::jsonb, now(), now() FROM t
ON CONFLICT (tenant, name) DO UPDATE SET defaults = excluded.defaults, deleted = false, changed_at = now()
RETURNING ` + kindColumns

// pauseKind pauses a kind, stored or not. Guard: the tenant is there. Returns the kind, or no row.
const pauseKind = ofTenant + `
INSERT INTO kinds (tenant, name, paused, defaults, created_at, changed_at) SELECT t.name, $2::text, true, '{}', now(), now() FROM t
ON CONFLICT (tenant, name) DO UPDATE SET paused = true, deleted = false, changed_at = now()
RETURNING ` + kindColumns

// resumeKind ends a pause. Guard: the kind is stored. Returns the kind, or no row.
const resumeKind = `
UPDATE kinds SET paused = false, changed_at = now() WHERE tenant = $1 AND name = $2 AND NOT deleted RETURNING ` + kindColumns

const readKind = `SELECT ` + kindColumns + ` FROM kinds WHERE tenant = $1 AND name = $2 AND NOT deleted`

const listKinds = `SELECT ` + kindColumns + ` FROM kinds WHERE tenant = $1 AND name > $2 AND NOT deleted ORDER BY name LIMIT $3`

// PutKind sets a kind's defaults; its pause stays as it is. It returns ErrNotFound when there is no such tenant.
func (s *Store) PutKind(ctx context.Context, tenant, kind string, defaults *scheduler.KindDefaults) (scheduler.KindSettings, error) {
	raw, err := json.Marshal(defaults)
	if err != nil {
		return scheduler.KindSettings{}, fmt.Errorf("%w: defaults of kind %s: %w", scheduler.ErrRefused, kind, err)
	}
	got, err := rows(ctx, s.general, "put kind "+kind, putKind, scanKindSettings, tenant, kind, string(raw))
	return one(got, err, ErrNotFound)
}

// PauseKind stops starting a kind's tasks. It returns ErrNotFound when there is no such tenant.
func (s *Store) PauseKind(ctx context.Context, tenant, kind string) (scheduler.KindSettings, error) {
	got, err := rows(ctx, s.general, "pause kind "+kind, pauseKind, scanKindSettings, tenant, kind)
	return one(got, err, ErrNotFound)
}

// ResumeKind starts a kind's tasks again, or returns ErrNotFound.
func (s *Store) ResumeKind(ctx context.Context, tenant, kind string) (scheduler.KindSettings, error) {
	got, err := rows(ctx, s.general, "resume kind "+kind, resumeKind, scanKindSettings, tenant, kind)
	return one(got, err, ErrNotFound)
}

// Kind returns a stored kind, or ErrNotFound.
func (s *Store) Kind(ctx context.Context, tenant, kind string) (scheduler.KindSettings, error) {
	got, err := rows(ctx, s.general, "read kind "+kind, readKind, scanKindSettings, tenant, kind)
	return one(got, err, ErrNotFound)
}

// ListKinds returns a tenant's stored kinds by name, after the given one.
func (s *Store) ListKinds(ctx context.Context, tenant, after string, limit int) ([]scheduler.KindSettings, error) {
	return rows(ctx, s.general, "list kinds", listKinds, scanKindSettings, tenant, after, int64(limit))
}
