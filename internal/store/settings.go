package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// settingsOverlap is how much earlier than asked changes are read: a change is seen when its transaction ends, and carries the time at
// which it began. What is read twice does no harm.
const settingsOverlap = 10 * time.Second

// settingsMax bounds the rows of each sort that schedulers take note of. More special tenants than that is not what this table is for.
const settingsMax = 100_000

// changedTenants reads tenants: with $1 null all that differ from the defaults, else those that have changed since.
const changedTenants = `
SELECT name, weight, paused, rate, burst, urgent_rate, refuse_urgent, max_open, max_running, start_rate FROM tenants
WHERE special AND $1::timestamptz IS NULL
UNION ALL
SELECT name, weight, paused, rate, burst, urgent_rate, refuse_urgent, max_open, max_running, start_rate FROM tenants
WHERE changed_at >= $1::timestamptz
LIMIT $2::bigint`

const changedKinds = `
SELECT tenant, name, paused, defaults FROM kinds
WHERE changed_at >= COALESCE($1::timestamptz, '-infinity'::timestamptz) AND (NOT deleted OR $1::timestamptz IS NOT NULL)
LIMIT $2::bigint`

const changedLimits = `
SELECT tenant, name, concurrency, rate, global, deleted FROM limits
WHERE changed_at >= COALESCE($1::timestamptz, '-infinity'::timestamptz) AND (NOT deleted OR $1::timestamptz IS NOT NULL)
LIMIT $2::bigint`

// Settings reads what operators have set.
func (s *Store) Settings(ctx context.Context, q scheduler.SettingsQuery) (scheduler.Settings, error) {
	var since *time.Time
	if !q.Since.IsZero() {
		at := q.Since.Add(-settingsOverlap)
		since = &at
	}
	var got scheduler.Settings
	now, err := rows(ctx, s.general, "read the clock", "SELECT now()", pgx.RowTo[time.Time])
	if err != nil {
		return got, err
	}
	got.At = now[0].UTC()
	if got.Tenants, err = rows(ctx, s.general, "read changed tenants", changedTenants, scanTenantSettings, since, int64(settingsMax)); err != nil {
		return got, err
	}
	if got.Kinds, err = rows(ctx, s.general, "read changed kinds", changedKinds, scanKindSettings, since, int64(settingsMax)); err != nil {
		return got, err
	}
	if got.Limits, err = rows(ctx, s.general, "read changed limits", changedLimits, scanLimitSettings, since, int64(settingsMax)); err != nil {
		return got, err
	}
	got.Regions, err = s.Regions(ctx)
	return got, err
}

func scanTenantSettings(row pgx.CollectableRow) (scheduler.TenantSettings, error) {
	var t scheduler.TenantSettings
	err := row.Scan(&t.Tenant, &t.Weight, &t.Paused, &t.Rate, &t.Burst, &t.UrgentRate, &t.RefuseUrgent, &t.MaxOpen, &t.MaxRunning, &t.StartRate)
	return t, err
}

func scanKindSettings(row pgx.CollectableRow) (scheduler.KindSettings, error) {
	var k scheduler.KindSettings
	var defaults []byte
	err := row.Scan(&k.Tenant, &k.Kind, &k.Paused, &defaults)
	if err == nil {
		err = json.Unmarshal(defaults, &k.Defaults)
	}
	return k, err
}

func scanLimitSettings(row pgx.CollectableRow) (scheduler.LimitSettings, error) {
	var l scheduler.LimitSettings
	err := row.Scan(&l.Tenant, &l.Name, &l.Concurrency, &l.Rate, &l.Global, &l.Deleted)
	return l, err
}
