package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

const tenantColumns = `name, home_region, weight, paused, rate, burst, urgent_rate, refuse_urgent, max_open, max_running, start_rate, created_at`

// createTenant stores a tenant. Guard: the name is free. Returns it, or no row.
const createTenant = `
INSERT INTO tenants (name, home_region, weight, paused, rate, burst, urgent_rate, refuse_urgent, max_open, max_running, start_rate,
    created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now(), now())
ON CONFLICT (name) DO NOTHING RETURNING ` + tenantColumns

// updateTenant changes what is given and nothing else, so that two operators do not undo each other's changes. Guard: the tenant
// is there. Returns it, or no row.
const updateTenant = `
UPDATE tenants SET weight = COALESCE($2::double precision, weight), paused = COALESCE($3::boolean, paused),
    rate = COALESCE($4::double precision, rate), burst = COALESCE($5::bigint, burst),
    urgent_rate = COALESCE($6::double precision, urgent_rate), refuse_urgent = COALESCE($7::boolean, refuse_urgent),
    max_open = COALESCE($8::bigint, max_open), max_running = COALESCE($9::bigint, max_running),
    start_rate = COALESCE($10::double precision, start_rate), changed_at = now()
WHERE name = $1 RETURNING ` + tenantColumns

const readTenant = `SELECT ` + tenantColumns + ` FROM tenants WHERE name = $1`

const listTenants = `SELECT ` + tenantColumns + ` FROM tenants WHERE name > $1 ORDER BY name LIMIT $2`

func scanTenant(row pgx.CollectableRow) (Tenant, error) {
	var t Tenant
	err := row.Scan(&t.Name, &t.HomeRegion, &t.Weight, &t.Paused, &t.Rate, &t.Burst, &t.UrgentRate, &t.RefuseUrgent, &t.MaxOpen,
		&t.MaxRunning, &t.StartRate, &t.CreatedAt)
	return t, err
}

// CreateTenant stores a tenant, or returns ErrExists.
func (s *Store) CreateTenant(ctx context.Context, t Tenant) (Tenant, error) {
	got, err := rows(ctx, s.general, "create tenant "+t.Name, createTenant, scanTenant, t.Name, t.HomeRegion, t.Weight, t.Paused,
		t.Rate, t.Burst, t.UrgentRate, t.RefuseUrgent, t.MaxOpen, t.MaxRunning, t.StartRate)
	return one(got, err, ErrExists)
}

// UpdateTenant changes what is set in a change and returns the tenant as it stands, or ErrNotFound.
func (s *Store) UpdateTenant(ctx context.Context, c TenantChange) (Tenant, error) {
	got, err := rows(ctx, s.general, "update tenant "+c.Name, updateTenant, scanTenant, c.Name, c.Weight, c.Paused, c.Rate, c.Burst,
		c.UrgentRate, c.RefuseUrgent, c.MaxOpen, c.MaxRunning, c.StartRate)
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

// openOfTenant counts a tenant's open tasks by tier, in every region, by what was accepted and ended: no task is read.
const openOfTenant = `
SELECT /* every region */ tier, (sum(accepted) - sum(ended))::bigint FROM ledger WHERE tenant = $1
GROUP BY tier HAVING sum(accepted) > sum(ended) ORDER BY tier`

// deleteTenant removes a tenant's row. Guard: it has no open task in any region. Returns its name, or no row.
const deleteTenant = `
DELETE /* every region */ FROM tenants WHERE name = $1 AND NOT EXISTS (
    SELECT 1 FROM ledger WHERE tenant = $1 GROUP BY tier HAVING sum(accepted) > sum(ended))
RETURNING name`

// What goes with a tenant, in this order and after its row: who puts a kind or a limit changes the tenant's row first, so that it
// is either seen here or finds no tenant. Rows of kinds and limits stay and say that nothing is set, for schedulers that read only
// what has changed.
const (
	forgetKinds  = `UPDATE kinds SET deleted = true, paused = false, defaults = '{}', changed_at = now() WHERE tenant = $1 AND NOT deleted`
	forgetLimits = `UPDATE limits SET deleted = true, changed_at = now() WHERE tenant = $1 AND NOT deleted`
	revokeKeys   = `UPDATE api_keys SET revoked_at = now() WHERE tenant = $1 AND revoked_at IS NULL`
)

// DeleteTenant removes a tenant with its kinds and limits and revokes its keys. It returns ErrNotFound, or a [*BusyTenantError] while
// the tenant has open tasks.
//
// A submit that was under way, or that comes while a revoked key is still remembered somewhere, may be stored after it.
func (s *Store) DeleteTenant(ctx context.Context, name string) error {
	ctx = named(ctx, "delete tenant "+name)
	deleted := false
	err := s.InTx(ctx, func(tx pgx.Tx) error {
		for i, sql := range []string{deleteTenant, forgetKinds, forgetLimits, revokeKeys} {
			done, err := tx.Exec(ctx, sql, name)
			if err != nil {
				return fmt.Errorf("delete tenant %s: %w", name, err)
			}
			if i == 0 {
				deleted = done.RowsAffected() > 0
			}
			if !deleted {
				break
			}
		}
		return nil
	})
	if err != nil || deleted {
		return err
	}
	return s.whyStays(ctx, name)
}

// whyStays tells why a tenant was not deleted.
func (s *Store) whyStays(ctx context.Context, name string) error {
	if _, err := s.Tenant(ctx, name); err != nil {
		return err
	}
	open, err := s.openOf(ctx, name)
	if err != nil {
		return err
	}
	return &BusyTenantError{Open: open}
}

// CountOpenOf returns how many tasks of a tenant are open in all regions, as the ledger has it. That reads the ledger from end to
// end, which folding keeps short: not for every submit.
func (s *Store) CountOpenOf(ctx context.Context, tenant string) (int64, error) {
	open, err := s.openOf(ctx, tenant)
	var sum int64
	for _, o := range open {
		sum += o.Tasks
	}
	return sum, err
}

func (s *Store) openOf(ctx context.Context, tenant string) ([]OpenTasks, error) {
	return rows(ctx, s.general, "count open tasks of "+tenant, openOfTenant, pgx.RowToStructByPos[OpenTasks], tenant)
}

// OpenTasks is how many tasks of a tier are open.
type OpenTasks struct {
	Tier  scheduler.Tier
	Tasks int64
}

// BusyTenantError is ErrBusyTenant with the tasks that are open.
type BusyTenantError struct{ Open []OpenTasks } // by tier; empty when they have ended meanwhile

// Error counts them.
func (e *BusyTenantError) Error() string {
	if len(e.Open) == 0 {
		return ErrBusyTenant.Error()
	}
	parts := make([]string, len(e.Open))
	for i, o := range e.Open {
		parts[i] = fmt.Sprintf("%d %s", o.Tasks, o.Tier)
	}
	return ErrBusyTenant.Error() + ": " + strings.Join(parts, ", ")
}

// Is tells that it is ErrBusyTenant.
func (e *BusyTenantError) Is(target error) bool { return target == ErrBusyTenant }
