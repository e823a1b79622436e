package scheduler

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestCoreScripts runs the stories in testdata. Each directive is one turn, as the engine takes it: something happens, and
// then the core is asked for its plan, which is printed. "-" is a turn without anything to do.
//
// What happens is told by one command, or by several, one a line, below the directive "turn"; a line "then" ends one turn and
// begins the next:
//
//	worker NAME [KIND=SLOTS...] [tenant=T]   a worker connects, or says something new of itself
//	holds NAME [TASK...]                     it reconnects and names what it holds
//	drain NAME | resume NAME | leave NAME    it takes no more work, takes work again, says goodbye
//	lose NAME... [incident]                  workers were silent for their lease
//	submit TASK... [FACTS]                   tasks come in through this instance
//	ready TASK... [FACTS]                    tasks are known to be ready
//	due TASK... [FACTS]                      the time of scheduled tasks has come, known ones or new
//	woken TASK...                            the store has made scheduled tasks ready
//	elsewhere TASK... [FACTS]                tasks are ready in the store; the core does not know of them
//	won TASK... | lost TASK...               the store answers claims ("all" for all of them)
//	executed TASK...                         it has executed claims, the answers are still to come
//	stored TASK... | refused TASK...         it answers the inserts of eager starts
//	ended TASK...                            it answers endings
//	accept TASK... | undelivered TASK...     workers have started attempts; assignments could not be sent
//	report TASK... OUTCOME [FACTS]           workers say what became of attempts
//	cancel TASK...                           somebody cancels tasks
//	takeover TASK... by=WORKER [FACTS]       running attempts of another session are this one's now
//	missing TASK...                          running rows are not this session's any more
//	session NUMBER                           the instance has a new session
//	lanes SHARD...                           the instance serves these shards now
//	discover                                 the store is asked for groups
//	refill [per_shard=N]                     it is asked for the rows that the core wants: "read", then "shown"
//	tick DURATION                            time passes
//	room [urgent=N] [others=N] [hold]        how much may be planned from now on
//	lend KIND=SLOTS... [limit=N]             another instance asks for rows that it could start
//	ask                                      prints for which kinds there is room here, and which wait
//	state                                    prints what the core knows
//
// TASKs may be given as a range, such as r01..r40. FACTS of a task: tenant, kind, tier, due (from the start of the story), shard, attempts (max_attempts), timeout,
// tolerance, suspect, exclusive; of a report: reason, retry_after, delay, non_retryable.
func TestCoreScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Ext(path) != ".txt" {
			return // a failed history that rapid has kept
		}
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out = nil
			lines := []string{d.Cmd + " " + strings.Join(argTexts(d.CmdArgs), " ")}
			if d.Cmd == "turn" {
				lines = strings.Split(strings.TrimSpace(d.Input), "\n")
			}
			for _, line := range lines {
				if err := s.run(strings.Fields(line)); err != nil {
					d.Fatalf(t, "%v", err)
				}
			}
			s.printPlan(s.plan(s.room))
			s.check(t)
			return s.text()
		})
	})
}

func argTexts(args []datadriven.CmdArg) []string {
	var texts []string
	for _, a := range args {
		texts = append(texts, a.String())
	}
	return texts
}

// script is a world whose tasks and workers have names.
type script struct {
	*world
	room    Room
	tasks   map[string]ID
	workers map[string]WorkerID
	answer  Refilled // of the last read
	out     []string
}

func newScript() *script {
	half := func() float64 { return 0.5 }
	return &script{
		world: newWorld(DefaultTiming(), half),
		room:  Room{Urgent: BatchRowsUrgentMax, Others: BatchRowsMax},
		tasks: map[string]ID{}, workers: map[string]WorkerID{},
	}
}

// words are the arguments of a command: names, and facts of the form key=value or key.
type words struct {
	names []string
	facts map[string]string
}

func (s *script) words(args []string) words {
	w := words{facts: map[string]string{}}
	for _, arg := range args {
		key, value, isFact := strings.Cut(arg, "=")
		switch {
		case isFact:
			w.facts[key] = value
		case slices.Contains([]string{"suspect", "incident", "hold", "non_retryable", "exclusive"}, arg):
			w.facts[arg] = "true"
		default:
			w.names = append(w.names, namesOf(arg)...)
		}
	}
	return w
}

// namesOf expands a range of names: a letter and two digits, twice.
func namesOf(arg string) []string {
	first, last, isRange := strings.Cut(arg, "..")
	if !isRange {
		return []string{arg}
	}
	from, err1 := strconv.Atoi(first[1:])
	to, err2 := strconv.Atoi(last[1:])
	if err1 != nil || err2 != nil {
		panic(fmt.Sprintf("bad range %q", arg))
	}
	var names []string
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprintf("%s%02d", first[:1], n))
	}
	return names
}

func (w words) duration(key string, unset time.Duration) time.Duration {
	text, here := w.facts[key]
	if !here {
		return unset
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func (w words) number(key string, unset int) int {
	n, err := strconv.Atoi(w.facts[key])
	if err != nil {
		return unset
	}
	return n
}

func (w words) text(key, unset string) string {
	if text, here := w.facts[key]; here {
		return text
	}
	return unset
}

func (s *script) run(fields []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", strings.Join(fields, " "), r)
		}
	}()
	cmd, w := fields[0], s.words(fields[1:])
	for _, group := range []func(string, words) bool{s.runWorkers, s.runTasks, s.runStore, s.runInstance} {
		if group(cmd, w) {
			return nil
		}
	}
	return fmt.Errorf("unknown command %q", cmd)
}

func (s *script) runWorkers(cmd string, w words) bool {
	switch cmd {
	case "worker":
		slots := map[string]int{}
		for _, kind := range slices.Sorted(maps.Keys(w.facts)) {
			if kind != "tenant" {
				slots[kind] = w.number(kind, 0)
			}
		}
		s.join(s.worker(w.names[0]), w.facts["tenant"], slots)
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
			if _, known := s.tasks[name]; !known {
				t := s.task(name, w)
				t.State, t.WakeAt, t.ReadyAt = Scheduled, s.now, time.Time{}
				s.rows[t.ID] = &t
			}
			s.core.Step(RowsReady{Rows: []ReadyRow{readyRow(s.rows[s.tasks[name]])}})
		}
	case "woken":
		for _, name := range w.names {
			t := s.rows[s.tasks[name]]
			next, err := t.Wake(t.Attempt, s.now)
			*t = next
			if err == nil {
				s.core.Step(RowsReady{Rows: []ReadyRow{readyRow(t)}})
			}
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
			if _, known := s.tasks[name]; !known {
				t := s.task(name, w)
				s.rows[t.ID] = &t
			}
			t := s.rows[s.tasks[name]]
			if t.State == Ready { // another instance has started it
				*t, _ = t.Claim(Ready, t.Attempt, SessionID{0xff}, s.worker(w.facts["by"]), s.now)
			}
			s.attach(t.ID)
		}
	case "missing":
		s.core.Step(RowsMissing{Tokens: s.tokens(w.names)})
	default:
		return false
	}
	return true
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
		var kinds []KindRoom
		for _, kind := range slices.Sorted(maps.Keys(w.facts)) {
			if kind != "limit" {
				kinds = append(kinds, KindRoom{Kind: kind, Slots: w.number(kind, 0)})
			}
		}
		var lent []string
		for _, r := range s.core.Lend(kinds, w.number("limit", 100)) {
			lent = append(lent, s.name(r.ID))
		}
		s.printf("lend %s", listText(lent))
	case "ask":
		s.printf("room for %v, none for %v", s.core.Spare(), s.core.Starved())
	case "state":
		s.printState()
	default:
		return false
	}
	return true
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
		"handed_back": OutcomeHandedBack, "snoozed": OutcomeSnoozed,
	}
	last := len(w.names) - 1
	var reports []Report
	for _, token := range s.tokens(w.names[:last]) {
		reports = append(reports, Report{
			Token: token, Outcome: outcomes[w.names[last]], Failure: Failure{Reason: Reason(w.facts["reason"])},
			NonRetryable: w.facts["non_retryable"] != "", RetryAfter: w.duration("retry_after", 0), Delay: w.duration("delay", 0),
		})
	}
	return reports
}
