package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// countOpen sums up the ledger, which is kept short by folding.
const countOpen = `
SELECT l.tenant, l.tier, (sum(l.accepted) - sum(l.ended))::bigint AS open FROM ledger l WHERE l.region = $1::crdb_internal_region
GROUP BY l.tenant, l.tier HAVING sum(l.accepted) > sum(l.ended)
ORDER BY open DESC, l.tenant, l.tier LIMIT $2::bigint`

// CountOpen tells how many tasks are open in a region by tenant and tier, the most first.
func (s *Store) CountOpen(ctx context.Context, q scheduler.OpenQuery) ([]scheduler.Open, error) {
	return rows(ctx, s.general, "count open tasks", countOpen, func(row pgx.CollectableRow) (scheduler.Open, error) {
		var o scheduler.Open
		var tier int16
		err := row.Scan(&o.Tenant, &tier, &o.Tasks)
		o.Tier = scheduler.Tier(tier)
		return o, err
	}, q.Region, int64(q.Limit))
}
