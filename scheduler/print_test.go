package scheduler

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file holds how the golden scripts print: sorted, by name, and only what is unusual.

func (s *script) printf(format string, args ...any) {
	s.out = append(s.out, fmt.Sprintf(format, args...))
}

func (s *script) text() string {
	if len(s.out) == 0 {
		return "-"
	}
	return strings.Join(s.out, "\n")
}

func (s *script) name(id ID) string { return nameOf(s.tasks, id) }

func (s *script) workerName(id WorkerID) string { return nameOf(s.workers, id) }

func nameOf[K comparable](names map[string]K, id K) string {
	for name, one := range names {
		if one == id {
			return name
		}
	}
	return "?"
}

func (s *script) printPlan(p Plan) {
	s.printClaims(p.UrgentClaims, ", urgent")
	s.printClaims(p.Claims, "")
	s.printAssignments(p.Assign)
	for _, stop := range p.Stops {
		s.printf("tell %s to stop %s: %s", s.workerName(stop.Worker), s.name(stop.ID), stop.Cause)
	}
	s.printEndings(p.Endings)
	for _, r := range p.Wakes {
		s.printf("wake %s", s.name(r.ID))
	}
}

// printClaims prints claims in their order, those in a row for one worker on one line.
func (s *script) printClaims(claims []Claim, how string) {
	for run := range runs(claims, func(a, b Claim) bool { return a.Worker == b.Worker && a.From == b.From }) {
		var names []string
		for _, c := range run {
			names = append(names, s.name(c.ID))
		}
		from := run[0].From
		s.printf("claim %s for %s%s%s", listText(names), s.workerName(run[0].Worker), how, unless(from == Ready, ", "+from.String()+" still"))
	}
}

func (s *script) printAssignments(starts []Start) {
	for run := range runs(starts, func(a, b Start) bool { return a.Worker == b.Worker && a.Devices == b.Devices }) {
		var names []string
		for _, a := range run {
			names = append(names, s.name(a.ID)+attemptText(a.Attempt))
		}
		s.printf("assign %s to %s%s", listText(names), s.workerName(run[0].Worker), unless(run[0].Devices == 0, fmt.Sprintf(", devices %b", run[0].Devices)))
	}
}

// runs yields the longest parts of a list whose neighbours are alike.
func runs[E any](list []E, alike func(a, b E) bool) iter.Seq[[]E] {
	return func(yield func([]E) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && alike(list[n-1], list[n]) {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

func (s *script) printEndings(endings []Ending) {
	for run := range runs(endings, func(a, b Ending) bool { return endingText(&a) == endingText(&b) }) {
		var names []string
		for _, e := range run {
			names = append(names, s.name(e.ID)+attemptText(e.Attempt))
		}
		s.printf("end %s: %s", listText(names), endingText(&run[0]))
	}
}

func endingText(e *Ending) string {
	var b strings.Builder
	b.WriteString(e.To.String())
	if e.To == Scheduled {
		fmt.Fprintf(&b, " in %v", e.Delay)
	}
	if e.Failure != nil {
		fmt.Fprintf(&b, ", %s", e.Failure.Reason)
	}
	b.WriteString(unless(!e.Counted, ", counted"))
	b.WriteString(unless(!e.Suspect, ", suspect"))
	b.WriteString(unless(!e.SoleSuspect, ", blamed"))
	return b.String()
}

func attemptText(n int64) string { return unless(n == 1, fmt.Sprintf(" attempt %d", n)) }

func unless(usual bool, text string) string {
	if usual {
		return ""
	}
	return text
}

func verdictText(a Ended) string {
	if a.Verdict == Won {
		return a.State.String()
	}
	return "lost: it is " + a.State.String() + attemptText(a.Attempt)
}

func (s *script) at(t time.Time) string { return "+" + t.Sub(epoch).String() }

// printState prints the rows that wait, in the order of service; the attempts; and the workers.
func (s *script) printState() {
	for _, tier := range Tiers {
		for _, tenant := range s.core.waiting.levels[tier].turns.Tenants() {
			s.printf("%s %s: %s", tier, tenant, s.waitingText(tier, tenant))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(s.core.waiting.parked)) {
		rows := 0
		for _, buf := range s.core.waiting.parked[kind] {
			rows += len(buf.rows)
		}
		s.printf("parked %s: %d", kind, rows)
	}
	for _, g := range sortedGates(s.core.gates.byKey) {
		rows := 0
		for _, buf := range g.waiting {
			rows += len(buf.rows)
		}
		s.printf("%s", s.gateText(g, rows))
	}
	for _, id := range s.workersKnown() {
		s.printf("%s%s", s.workerText(id), s.attemptsText(id))
	}
}

func (s *script) gateText(g *gate, rows int) string {
	what := map[gateOf]string{gateTenant: "tenant " + g.key.tenant, gateKind: "kind " + g.key.name, gateLimit: "limit " + g.key.name}[g.key.of]
	gives := ""
	if rate, limited := g.adaptive.Rate(s.now); limited {
		gives = fmt.Sprintf(", gives way at %.1f/s", rate)
	}
	return fmt.Sprintf("%s%s: %d used%s%s%s%s", what, unless(g.key.key == "", "/"+g.key.key), g.used,
		unless(!g.capped, fmt.Sprintf(" of %d", g.slots)), unless(!g.closed, ", paused"), unless(rows == 0, fmt.Sprintf(", %d wait", rows)), gives)
}

// workersKnown are those in the pool and those that attempts name.
func (s *script) workersKnown() []WorkerID {
	ids := slices.AppendSeq(s.core.Workers(), maps.Keys(s.core.attempts.byWorker))
	slices.SortFunc(ids, WorkerID.Compare)
	return slices.Compact(ids)
}

func (s *script) workerText(id WorkerID) string {
	w, here := s.core.pool.Worker(id)
	if !here {
		return s.workerName(id) + " (gone)"
	}
	var slots []string
	for _, kind := range slices.Sorted(maps.Keys(w.Slots)) {
		slots = append(slots, fmt.Sprintf("%s=%d", kind, w.Slots[kind]))
	}
	return fmt.Sprintf("%s (%s%s%s)", s.workerName(id), strings.Join(slots, " "),
		unless(w.Tenant == "", " for "+w.Tenant), unless(!s.core.pool.Draining(id), " draining"))
}

// attemptsText lists a worker's attempts by phase.
func (s *script) attemptsText(id WorkerID) string {
	names := map[phase][]string{}
	of := s.core.attempts.byWorker[id]
	for _, a := range slices.SortedFunc(maps.Values(of), func(a, b *attempt) int { return a.ID.Compare(b.ID) }) {
		names[a.phase] = append(names[a.phase], s.name(a.ID)+attemptText(a.Attempt)+
			unless(!a.Suspect, " suspect")+unless(a.room == (a.phase != ending), " without room"))
	}
	var texts []string
	for _, p := range slices.Sorted(maps.Keys(names)) {
		texts = append(texts, p.String()+" "+listText(names[p]))
	}
	return unless(len(texts) == 0, ": "+strings.Join(texts, "; "))
}

func (s *script) waitingText(at Tier, tenant string) string {
	var rows []*waiting
	for _, buf := range s.core.waiting.levels[at].lines[tenant].buffers {
		rows = append(rows, buf.rows...)
	}
	slices.SortFunc(rows, func(a, b *waiting) int {
		return cmp.Or(a.due.Add(a.buffer.shift).Compare(b.due.Add(b.buffer.shift)), a.id.Compare(b.id))
	})
	var texts []string
	for _, w := range rows {
		texts = append(texts, s.name(w.id)+unless(!w.buffer.key.suspect, " suspect")+unless(w.buffer.shift == 0, " demoted")+
			" due "+s.at(w.due.Add(w.buffer.shift)))
	}
	return listText(texts)
}

// listText shortens long lists.
func listText(texts []string) string {
	if n := len(texts); n > 6 {
		return fmt.Sprintf("%s, %s ... %s (%d)", texts[0], texts[1], texts[n-1], n)
	}
	return strings.Join(texts, ", ")
}
