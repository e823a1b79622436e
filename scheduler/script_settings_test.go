package scheduler

import (
	"strconv"
	"strings"
	"time"

	"github.com/errandhq/errand/fairness"
)

// This file holds the commands of the golden scripts for what operators set, and for what other instances tell.
//
//	tenant NAME [weight=W] [paused] [max_running=N] [start_rate=R]   an operator sets a tenant
//	kind TENANT NAME [paused]                                        or a kind
//	limit NAME [tenant=T] [concurrency=N] [rate=R] [deleted]         or a named limit
//	parts NUMBER/OF...                                               which part of every cap is this instance's; none for nothing
//	estimate [kind=K] [tenant=T] [tier=...] ...                      when a new task would start
//	picture                                                          who waits, and how long at most
//	stock TENANT TIER TASKS                                          how much is open in the store
//	used TENANT AMOUNT [virtual=V]                                   another instance tells what a tenant has used there
func (s *script) runSettings(cmd string, w words) bool {
	switch cmd {
	case "tenant":
		s.core.Step(SettingsChanged{Settings{Tenants: []TenantSettings{{
			Tenant: w.names[0], Weight: w.float("weight"), Paused: w.facts["paused"] != "",
			MaxRunning: w.number("max_running", 0), StartRate: w.float("start_rate"),
		}}}})
	case "kind":
		s.core.Step(SettingsChanged{Settings{Kinds: []KindSettings{{Tenant: w.names[0], Kind: w.names[1], Paused: w.facts["paused"] != ""}}}})
	case "limit":
		s.core.Step(SettingsChanged{Settings{Limits: []LimitSettings{{
			Tenant: w.text("tenant", "x"), Name: w.names[0], Concurrency: w.number("concurrency", 0), Rate: w.float("rate"),
			Deleted: w.facts["deleted"] != "",
		}}}})
	case "parts":
		var parts []fairness.Part
		for _, text := range w.names {
			number, of, _ := strings.Cut(text, "/")
			n, _ := strconv.Atoi(number)
			o, _ := strconv.Atoi(of)
			parts = append(parts, fairness.Part{Of: o, Number: n})
		}
		s.core.Step(PartChanged{Parts: parts})
	case "estimate":
		t := s.task("new", w)
		t.RunAt = timeAfter(w.duration("run_in", 0), s.now)
		t.Due = t.Due.Add(w.duration("run_in", 0))
		t.StartBy = timeAfter(w.duration("start_by", 0), s.now)
		got := s.core.Estimate(&t, w.number("before", 0), s.now)
		switch at := got.Start.Sub(s.now); {
		case got.Start.IsZero():
			s.printf("estimate: %s", got.Risk)
		default:
			s.printf("estimate: in %v %s", at, got.Risk)
		}
	case "picture":
		s.printPicture(s.core.Picture(s.now, 10))
	case "stock":
		n, _ := strconv.ParseInt(w.names[2], 10, 64)
		tiers := map[string]Tier{"urgent": Urgent, "standard": Standard, "deferrable": Deferrable}
		s.core.Step(StockTaken{Open: []Open{{Tenant: w.names[0], Tier: tiers[w.names[1]], Tasks: n}}})
	case "used":
		amount, _ := strconv.ParseFloat(w.names[1], 64)
		s.core.Step(UsedElsewhere{Used: []fairness.Spent{{Tenant: w.names[0], Amount: amount}}, Virtual: w.float("virtual")})
	default:
		return false
	}
	return true
}

func (s *script) printPicture(p *Picture) {
	for i := range p.Tenants {
		t := &p.Tenants[i]
		s.printf("%s: weight %g, fair %.2f, used %.2f, demoted %v", t.Tenant, t.Weight, t.Fair, t.Used, t.Demoted)
		for _, tier := range Tiers {
			if w := t.Tiers[tier]; w != (TierPicture{}) {
				s.printf("  %s: open %d, here %d, running %d, held %d, unserved %d, oldest due %s, bound %v",
					tier, w.Open, w.Here, w.Running, w.Held, w.Unserved, s.offset(w.OldestDue), w.Bound.Round(time.Millisecond))
			}
		}
	}
	for _, k := range p.Kinds {
		s.printf("%s: %d of %d, here %d", k.Kind, k.Used, k.Slots, k.Here)
	}
}

func (s *script) offset(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return "+" + at.Sub(epoch).String()
}

func timeAfter(d time.Duration, now time.Time) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return now.Add(d)
}

func (w words) float(name string) float64 {
	f, _ := strconv.ParseFloat(w.facts[name], 64)
	return f
}

// limits reads names like api or api/customer, separated by commas.
func (w words) limits() []LimitKey {
	var limits []LimitKey
	for text := range strings.SplitSeq(w.facts["limits"], ",") {
		if name, key, _ := strings.Cut(text, "/"); name != "" {
			limits = append(limits, LimitKey{Name: name, Key: key})
		}
	}
	return limits
}
