package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// auditBalances compares what the ledger says was accepted and ended with the rows that are open, in one snapshot (P2).
const auditBalances = `
SELECT COALESCE(l.tenant, o.tenant), COALESCE(l.tier, o.tier), COALESCE(l.accepted, 0), COALESCE(l.ended, 0), COALESCE(o.n, 0)
FROM (
    SELECT tenant, tier, sum(accepted)::bigint AS accepted, sum(ended)::bigint AS ended
    FROM ledger WHERE region = $1::crdb_internal_region GROUP BY tenant, tier
) l FULL JOIN (
    SELECT tenant, tier, count(*) AS n FROM tasks WHERE region = $1::crdb_internal_region AND state < 5 GROUP BY tenant, tier
) o ON o.tenant = l.tenant AND o.tier = l.tier
ORDER BY 1, 2`

// The searches of an audit (P3): what must not be, with one example each.
var auditSearches = []struct {
	reason, sql, message string
}{
	{
		"no_wake_time",
		`SELECT count(*), (array_agg(t.id))[1] FROM tasks t
		 WHERE t.region = $1::crdb_internal_region AND t.state = 1 AND t.wake_at IS NULL`,
		"scheduled tasks that nothing will wake: set their wake_at",
	},
	{
		"overdue_timer",
		`SELECT count(*), (array_agg(t.id))[1] FROM tasks t
		 WHERE t.region = $1::crdb_internal_region AND t.wake_at < now() - INTERVAL '1 minute'`,
		"tasks whose wake time passed more than a minute ago: no live scheduler serves their lanes",
	},
	{
		"forsaken",
		`SELECT count(*), (array_agg(t.id))[1] FROM tasks t
		 WHERE t.region = $1::crdb_internal_region AND t.state = 4 AND (t.wake_at IS NULL OR t.wake_at IS NOT DISTINCT FROM t.start_by)
		    AND NOT EXISTS (
		        SELECT 1 FROM task_edges e JOIN tasks p ON p.region = t.region AND p.id = e.parent_id
		        WHERE e.region = t.region AND e.child_id = t.id AND (e.outcome = 0 AND p.state < 5 OR p.wake_at IS NOT NULL))`,
		"tasks that wait for parents of which none is open or has its children still to be looked at: set their wake_at",
	},
	{
		"orphaned",
		`SELECT count(*), (array_agg(t.id))[1] FROM tasks t
		 LEFT JOIN sessions s ON s.region = t.region AND s.id = t.session_id
		 WHERE t.region = $1::crdb_internal_region AND t.state = 3 AND (s.id IS NULL OR s.ended_at < now() - INTERVAL '1 minute')`,
		"running tasks whose scheduler's session ended more than a minute ago: no live scheduler reclaims them",
	},
	{
		"unlisted",
		`SELECT count(*), (array_agg(t.id))[1] FROM tasks t
		 LEFT JOIN (
		    SELECT DISTINCT s.session_id, u.id FROM starts s CROSS JOIN LATERAL unnest(s.ids) AS u (id)
		    WHERE s.region = $1::crdb_internal_region
		 ) x ON x.session_id = t.session_id AND x.id = t.id
		 WHERE t.region = $1::crdb_internal_region AND t.state = 3 AND x.id IS NULL`,
		"running tasks that no row of starts names: nobody would reclaim them; put them there",
	},
	{
		"unserved",
		`SELECT count(*), (array_agg(t.id))[1] FROM tasks t
		 WHERE t.region = $1::crdb_internal_region AND t.state = 2 AND NOT EXISTS (
		    SELECT 1 FROM sessions s WHERE s.region = $1::crdb_internal_region AND s.ended_at IS NULL AND s.expires_at > now())`,
		"ready tasks in a region without a live scheduler: start one",
	},
}

// Audit proves on the live system that nothing is lost and nothing is stuck. It reads every open row of the region.
func (s *Store) Audit(ctx context.Context, region string) (Report, error) {
	var report Report
	var err error
	report.Balances, err = rows(ctx, s.general, "audit", auditBalances, func(row pgx.CollectableRow) (Balance, error) {
		var b Balance
		err := row.Scan(&b.Tenant, &b.Tier, &b.Accepted, &b.Ended, &b.Open)
		return b, err
	}, region)
	if err != nil {
		return report, err
	}
	for _, b := range report.Balances {
		if b.Accepted != b.Ended+b.Open {
			report.Findings = append(report.Findings, Finding{
				Reason: "unbalanced", Rows: b.Accepted - b.Ended - b.Open,
				Message: fmt.Sprintf("tenant %s, tier %s: accepted %d, ended %d, open %d: rows were lost or changed by hand",
					b.Tenant, b.Tier, b.Accepted, b.Ended, b.Open),
			})
		}
	}
	for _, search := range auditSearches {
		f := Finding{Reason: search.reason, Message: search.message}
		var id *[16]byte
		err := again(ctx, func() error { return s.general.QueryRow(ctx, search.sql, region).Scan(&f.Rows, &id) })
		if err != nil {
			return report, translate("audit", err)
		}
		if f.Rows > 0 {
			f.Example = idOf[scheduler.ID](id)
			report.Findings = append(report.Findings, f)
		}
	}
	return report, nil
}
