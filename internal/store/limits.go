package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

const limitColumns = `tenant, name, concurrency, rate, global, deleted`

// putLimit sets a named limit as a whole. Guard: the tenant is there. Returns the limit, or no row.
const putLimit = ofTenant + `
INSERT INTO limits (tenant, name, concurrency, rate, global, changed_at)
SELECT t.name, $2::text, $3::bigint, $4::double precision, $5::boolean, now() FROM t
ON CONFLICT (tenant, name) DO UPDATE SET concurrency = excluded.concurrency, rate = excluded.rate, global = excluded.global,
    deleted = false, changed_at = now()
RETURNING ` + limitColumns

// deleteLimit marks a limit: schedulers read of it as of any change. Guard: it is there. Returns its name, or no row.
const deleteLimit = `
UPDATE limits SET deleted = true, changed_at = now() WHERE tenant = $1 AND name = $2 AND NOT deleted RETURNING name`

const listLimits = `SELECT ` + limitColumns + ` FROM limits WHERE tenant = $1 AND name > $2 AND NOT deleted ORDER BY name LIMIT $3`

// PutLimit sets a named limit. It returns ErrNotFound when there is no such tenant.
func (s *Store) PutLimit(ctx context.Context, l scheduler.LimitSettings) (scheduler.LimitSettings, error) {
	got, err := rows(ctx, s.general, "put limit "+l.Name, putLimit, scanLimitSettings, l.Tenant, l.Name, int64(l.Concurrency), l.Rate, l.Global)
	return one(got, err, ErrNotFound)
}

// DeleteLimit ends a named limit, or returns ErrNotFound.
func (s *Store) DeleteLimit(ctx context.Context, tenant, name string) error {
	got, err := rows(ctx, s.general, "delete limit "+name, deleteLimit, pgx.RowTo[string], tenant, name)
	_, err = one(got, err, ErrNotFound)
	return err
}

// ListLimits returns a tenant's named limits by name, after the given one.
func (s *Store) ListLimits(ctx context.Context, tenant, after string, limit int) ([]scheduler.LimitSettings, error) {
	return rows(ctx, s.general, "list limits", listLimits, scanLimitSettings, tenant, after, int64(limit))
}
