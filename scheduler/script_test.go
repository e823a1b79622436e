package scheduler

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// This file holds the commands of the golden scripts. TestCoreScripts lists them.

func (s *script) runWorkers(cmd string, w words) bool {
	switch cmd {
	case "worker":
		s.join(s.worker(w.names[0]), w.facts["tenant"], w.slots())
	case "machine": // says what it has
		s.core.Step(WorkerJoined{Worker: w.machine(s.worker(w.names[0]))})
	case "holds":
		s.core.Step(WorkerHolds{ID: s.worker(w.names[0]), Tokens: s.tokens(w.names[1:])})
	case "drain", "resume":
		s.core.Step(WorkerDraining{ID: s.worker(w.names[0]), Draining: cmd == "drain"})
	case "leave":
		s.core.Step(WorkerLeft{ID: s.worker(w.names[0])})
	case "lose":
		var ids []WorkerID
		for _, name := range w.names {
			ids = append(ids, s.worker(name))
		}
		s.core.Step(WorkersLost{IDs: ids, Incident: w.facts["incident"] != ""})
	case "accept":
		s.core.Step(Accepted{Tokens: s.tokens(w.names)})
	case "undelivered":
		s.core.Step(Undelivered{Tokens: s.tokens(w.names)})
	case "report":
		s.core.Step(Reported{Reports: s.reports(w)})
	case "bears":
		s.bears(w)
	default:
		return false
	}
	return true
}

func (s *script) runTasks(cmd string, w words) bool {
	switch cmd {
	case "submit":
		for _, name := range w.names {
			if t := s.task(name, w); s.submit(t) {
				s.printf("insert %s as running on %s", name, s.workerName(s.starts[t.ID].Worker))
			} else {
				s.printf("insert %s as ready", name)
			}
		}
	case "ready":
		for _, name := range w.names {
			s.insert(s.task(name, w))
		}
	case "due":
		for _, name := range w.names {
			s.due(name, w)
		}
	case "woken":
		for _, name := range w.names {
			s.wake(s.tasks[name])
		}
	case "elsewhere":
		for _, name := range w.names {
			t := s.task(name, w)
			s.rows[t.ID] = &t
		}
	case "cancel":
		for _, name := range w.names {
			s.cancel(s.tasks[name])
		}
	case "takeover":
		for _, name := range w.names {
			s.takeOver(name, w)
		}
	case "explain":
		for _, name := range w.names {
			s.explain(name)
		}
	case "missing":
		s.core.Step(RowsMissing{Tokens: s.tokens(w.names)})
	default:
		return false
	}
	return true
}

// due lets the time of a scheduled task come.
func (s *script) due(name string, w words) {
	if _, known := s.tasks[name]; !known {
		t := s.task(name, w)
		t.State, t.WakeAt, t.ReadyAt = Scheduled, s.now, time.Time{}
		s.rows[t.ID] = &t
	}
	s.core.Step(RowsReady{Rows: []ReadyRow{s.rows[s.tasks[name]].WaitingRow()}})
}

// takeOver attaches a running attempt, which another instance has started when it waits still.
func (s *script) takeOver(name string, w words) {
	if _, known := s.tasks[name]; !known {
		t := s.task(name, w)
		s.rows[t.ID] = &t
	}
	t := s.rows[s.tasks[name]]
	if t.State == Ready {
		*t, _ = t.Claim(Ready, t.Attempt, SessionID{0xff}, s.worker(w.facts["by"]), s.now)
	}
	s.attach(t.ID)
	s.settleAttach(t.ID)
}

func (s *script) runStore(cmd string, w words) bool {
	switch cmd {
	case "won", "lost":
		for _, id := range s.named(w.names, slices.Collect(maps.Keys(s.claims))) {
			if cmd == "lost" { // somebody else was first
				other, _ := s.rows[id].Claim(s.rows[id].State, s.rows[id].Attempt, SessionID{0xff}, WorkerID{0xff}, s.now)
				*s.rows[id] = other
			}
			s.settleClaim(id)
		}
	case "executed":
		for _, name := range w.names {
			s.execute(s.tasks[name])
		}
	case "stored", "refused":
		for _, id := range s.named(w.names, slices.Collect(maps.Keys(s.starts))) {
			s.settleStart(id, cmd == "stored")
		}
	case "ended":
		for _, id := range s.named(w.names, slices.Collect(maps.Keys(s.endings))) {
			answer := s.settleEnding(id)
			s.printf("%s is %s", s.name(id), verdictText(answer.Answers[0]))
			s.core.Advance(answer)
		}
	case "discover":
		s.core.Step(Discovered{Keys: s.discover()})
	case "read":
		s.read(w)
	case "shown":
		s.core.Step(s.answer)
	case "refill":
		if s.read(w) {
			s.core.Step(s.answer)
		}
	default:
		return false
	}
	return true
}

// read has the store read what the core asks for, and tells whether it asks for anything.
func (s *script) read(w words) bool {
	keys := s.core.Refills(s.now, 100)
	s.answer = s.refill(keys, w.number("per_shard", s.core.RefillRows(keys, 1)))
	for _, key := range keys {
		var shown []string
		for _, r := range s.answer.Rows {
			if groupKeyOf(&r) == key {
				shown = append(shown, s.name(r.ID))
			}
		}
		s.printf("read %s %s: %s", key.Tier, key.Tenant, listText(shown))
	}
	return len(keys) > 0
}

func (s *script) runInstance(cmd string, w words) bool {
	switch cmd {
	case "tick":
		d, err := time.ParseDuration(w.names[0])
		if err != nil {
			panic(err)
		}
		s.now = s.now.Add(d)
		s.core.Tick(s.now)
	case "session":
		n, _ := strconv.Atoi(w.names[0])
		s.session = SessionID{byte(n)}
		s.core.Step(SessionChanged{Session: s.session})
	case "lanes":
		var mine [256]bool
		for _, text := range w.names {
			n, _ := strconv.Atoi(text)
			mine[n] = true
		}
		s.core.Step(LanesChanged{Mine: mine})
	case "room":
		s.room = Room{
			Urgent: w.number("urgent", BatchRowsUrgentMax), Others: w.number("others", BatchRowsMax),
			HoldDeadlines: w.facts["hold"] != "",
		}
	case "then":
		s.printPlan(s.plan(s.room))
	case "lend":
		s.lend(w)
	case "ask":
		s.printf("room for %v, none for %v", s.core.Spare(), s.core.Starved())
	case "state":
		s.printState()
	default:
		return false
	}
	return true
}

// lend answers another instance that names its room.
func (s *script) lend(w words) {
	var kinds []KindRoom
	for _, kind := range slices.Sorted(maps.Keys(w.facts)) {
		if kind != "limit" {
			kinds = append(kinds, KindRoom{Kind: kind, Slots: w.number(kind, 0)})
		}
	}
	var lent []string
	for _, r := range s.core.Lend(kinds, w.number("limit", 100), Borrower{}) {
		lent = append(lent, s.name(r.ID))
	}
	s.printf("lend %s", listText(lent))
}

// task makes a ready task. Names become IDs, so that their order is the order of the IDs of one shard.
func (s *script) task(name string, w words) Task {
	id := ID{byte(w.number("shard", 1))}
	copy(id[1:], name)
	s.tasks[name] = id
	tiers := map[string]Tier{"urgent": Urgent, "standard": Standard, "deferrable": Deferrable}
	tier := tiers[w.text("tier", "standard")]
	t := Task{
		Ref: Ref{Region: "here", ID: id}, Tenant: w.text("tenant", "x"), Kind: w.text("kind", "encode"), Tier: tier,
		State: Ready, Tolerance: w.duration("tolerance", DefaultTolerance(tier)), ReadyAt: s.now,
		Suspect: w.facts["suspect"] != "",
		Spec: Spec{
			MaxAttempts: w.number("attempts", 0), AttemptTimeout: w.duration("timeout", 0), Exclusive: w.facts["exclusive"] != "",
			Limits: w.limits(), Shape: w.shape(),
		},
	}
	t.Due = epoch.Add(w.duration("due", s.now.Add(t.Tolerance).Sub(epoch)))
	return t
}

func (s *script) worker(name string) WorkerID {
	id, here := s.workers[name]
	if !here {
		copy(id[:], name)
		s.workers[name] = id
	}
	return id
}

// named turns names into IDs, in their order; "all" stands for all of the given ones.
func (s *script) named(names []string, all []ID) []ID {
	if slices.Equal(names, []string{"all"}) {
		slices.SortFunc(all, ID.Compare)
		return all
	}
	var ids []ID
	for _, name := range names {
		ids = append(ids, s.tasks[name])
	}
	return ids
}

// tokens are those of the attempts that stand in the store.
func (s *script) tokens(names []string) []Token {
	var all []ID
	for _, h := range s.core.Held() {
		all = append(all, h.ID)
	}
	var tokens []Token
	for _, id := range s.named(names, all) {
		tokens = append(tokens, s.rows[id].Token())
	}
	return tokens
}

func (s *script) reports(w words) []Report {
	outcomes := map[string]Outcome{
		"succeeded": OutcomeSucceeded, "failed": OutcomeFailed, "stopped": OutcomeStopped,
		"handed_back": OutcomeHandedBack, "snoozed": OutcomeSnoozed, "backpressure": OutcomeBackpressure,
	}
	last := len(w.names) - 1
	var reports []Report
	for _, token := range s.tokens(w.names[:last]) {
		reports = append(reports, Report{
			Token: token, Outcome: outcomes[w.names[last]], Failure: Failure{Reason: Reason(w.facts["reason"])},
			NonRetryable: w.facts["non_retryable"] != "", RetryAfter: w.duration("retry_after", 0), Delay: w.duration("delay", 0), Limit: w.facts["limit"],
		})
	}
	return reports
}
