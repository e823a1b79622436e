package scheduler

import (
	"math"

	"pgregory.net/rapid"
)

// tallies checks that the counts of what waits are those of the buffers.
func (m *orderModel) tallies(t *rapid.T) {
	b := m.core.waiting
	want, kinds := map[string]perTier{}, map[[2]string]perTier{}
	lines := map[string]int{}
	for _, buf := range b.buffers {
		of, kind := want[buf.key.tenant], kinds[[2]string{buf.key.tenant, buf.kind}]
		of[buf.key.tier] += len(buf.rows)
		if buf.level != nil {
			kind[buf.key.tier] += len(buf.rows)
			lines[buf.key.tenant]++
		}
		want[buf.key.tenant], kinds[[2]string{buf.key.tenant, buf.kind}] = of, kind
	}
	behind := map[string]perTier{}
	for key, g := range b.groups {
		if g.behind {
			of := behind[key.Tenant]
			of[key.Tier]++
			behind[key.Tenant] = of
		}
	}
	weight := 0.0
	for tenant, of := range b.tallies {
		if of.rows != want[tenant] || of.behind != behind[tenant] || of.lines != lines[tenant] || of.groups == 0 {
			t.Fatalf("%s: the tally is %+v, want rows %v, behind %v, %d lines", tenant, of, want[tenant], behind[tenant], lines[tenant])
		}
		for kind, k := range of.kinds {
			if k.rows != kinds[[2]string{tenant, kind}] || k.buffers == 0 {
				t.Fatalf("%s %s: the tally is %+v, want %v", tenant, kind, k, kinds[[2]string{tenant, kind}])
			}
		}
		if of.lines > 0 {
			weight += m.core.shares.Weight(tenant)
		}
		delete(want, tenant)
	}
	if len(want) > 0 || math.Abs(weight-b.weight) > 1e-9 {
		t.Fatalf("no tally for %v; the tenants with lines weigh %v, want %v", want, b.weight, weight)
	}
}
