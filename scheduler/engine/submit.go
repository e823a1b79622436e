package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// submits holds new tasks on their way into the store.
type submits struct {
	urgent, others queue
	tickets        map[Ticket]*ticket
	urgentSeen     time.Duration // when an urgent task last came
}

// queue is one pipeline of inserts.
type queue struct {
	pipe
	pending []*newTask
}

// newTask is a task that waits for its insert.
type newTask struct {
	task   scheduler.Task
	ticket Ticket
	index  int  // in the ticket's outcomes
	plain  bool // must not be stored as running: an eager start was refused before
	// doubted is set once an execution of its insert got no answer: it may land yet, when whoever holds the unique key has ended.
	doubted  bool
	estimate scheduler.Estimate
}

// ticket collects the outcomes of one SubmitAsked.
type ticket struct {
	outcomes []SubmitOutcome
	settled  []bool
	open     int
	at       time.Duration // when it came
}

func newSubmits(inFlight int) submits {
	return submits{
		urgent:  queue{pipe: pipe{name: "insert_urgent", limit: inFlight}},
		others:  queue{pipe: pipe{name: "insert", limit: inFlight}},
		tickets: map[Ticket]*ticket{},
	}
}

func (s *submits) waiting() int { return len(s.urgent.pending) + len(s.others.pending) }

// submit queues new tasks, or refuses all of them when too many wait already.
func (e *Engine) submit(in SubmitAsked) {
	t := &ticket{outcomes: make([]SubmitOutcome, len(in.Tasks)), settled: make([]bool, len(in.Tasks)), open: len(in.Tasks), at: e.local}
	var refusal error
	switch {
	case e.stopping:
		refusal = ErrStopping
	case !e.trusted() || e.submits.waiting()+len(in.Tasks) > submitPendingMax: // without trust the store does not answer: others may be asked
		refusal = ErrBusy
	}
	if refusal != nil || len(in.Tasks) == 0 {
		for i := range t.outcomes {
			t.outcomes[i].Err = refusal
		}
		e.answerTicket(in.Ticket, t, "refused")
		return
	}
	e.submits.tickets[in.Ticket] = t
	now, shard := e.storeNow(), e.newShard(&in.Tasks[0]) // one for all: neighbors in the store are written together
	all := make([]newTask, len(in.Tasks))
	for i := range in.Tasks {
		if err := e.infeasible(&in.Tasks[i], now); err != nil {
			t.outcomes[i].Err, t.settled[i] = err, true
			t.open--
			continue
		}
		n := &all[i]
		n.task, n.ticket, n.index = in.Tasks[i], in.Ticket, i
		task := &n.task
		task.Region, task.ID = e.home.name, e.newID(shard, now)
		if n, elsewhere := e.awayFor(task.Spec.AllowedRegions); elsewhere {
			task.Region, task.ID = e.names[n], e.newID(e.anyShard(n), now)
		}
		if task.EffectKey.IsZero() {
			task.EffectKey = task.ID
		}
		t.outcomes[i].Ref = task.Ref
		if task.Tier == scheduler.Urgent {
			e.submits.urgentSeen = e.local
			e.submits.urgent.pending = append(e.submits.urgent.pending, n)
		} else {
			e.submits.others.pending = append(e.submits.others.pending, n)
		}
	}
	if t.open == 0 {
		delete(e.submits.tickets, in.Ticket)
		e.answerTicket(in.Ticket, t, "refused")
	}
}

// awayFor is the number of the nearest region where a task may be that may not be in this one.
func (e *Engine) awayFor(allowed []string) (uint8, bool) {
	if len(allowed) == 0 || slices.Contains(allowed, e.home.name) {
		return 0, false
	}
	for _, name := range e.topology.Nearest(e.home.name, allowed) {
		if n := slices.Index(e.names, name); n >= 0 {
			return uint8(n), true
		}
	}
	return 0, false
}

// infeasible is ErrInfeasible when a task shall not be stored, since as things are it would not start in time.
func (e *Engine) infeasible(t *scheduler.Task, now time.Time) error {
	if !t.Spec.RejectInfeasible {
		return nil
	}
	asIf := *t
	prepare(&asIf, now)
	estimate := e.core.Estimate(&asIf, 0, now)
	switch {
	case estimate.Risk == scheduler.NoRisk:
		return nil
	case estimate.Start.IsZero():
		return fmt.Errorf("%w: %s", ErrInfeasible, estimate.Risk)
	default:
		return fmt.Errorf("%w: %s, it would start in about %v", ErrInfeasible, estimate.Risk, estimate.Start.Sub(now).Round(time.Millisecond))
	}
}

// batchRows is how many rows a write that is not urgent may have now.
func (e *Engine) batchRows() int {
	if e.submits.urgentSeen > 0 && e.local-e.submits.urgentSeen < time.Second {
		return scheduler.BatchRowsUrgentMax
	}
	return scheduler.BatchRowsMax
}

// insert sends what waits, as far as the pipelines have room. eager allows starts in the same write.
func (e *Engine) insert(eager bool) {
	for e.submits.urgent.free() && len(e.submits.urgent.pending) > 0 {
		e.insertBatch(&e.submits.urgent, scheduler.BatchRowsMax, eager)
	}
	for e.submits.others.free() && len(e.submits.others.pending) > 0 {
		e.insertBatch(&e.submits.others, e.batchRows(), eager)
	}
}

func (e *Engine) insertBatch(q *queue, limit int, eager bool) {
	now := e.storeNow()
	batch := takeBatch(&q.pending, limit, func(n *newTask) int { return len(n.task.Payload) })
	tasks, before := make([]scheduler.Task, len(batch)), before{}
	for i := range batch {
		task := &batch[i].task
		prepare(task, now)
		// One with a unique key would run unknown to anybody when an execution that was given up lands after the holder's end.
		if eager && !batch[i].plain && task.UniqueKey == "" {
			e.core.Admit(task, now)
		}
		batch[i].estimate = before.estimate(e.core, task, now)
		tasks[i] = *task
	}
	e.observe.Batch(q.name, len(batch))
	parts := byRegion(batch, func(n **newTask) scheduler.ID { return (*n).task.ID })
	if len(parts) == 1 {
		e.insertPart(q, batch, tasks)
		return
	}
	for _, part := range parts {
		tasks := make([]scheduler.Task, len(part))
		for i := range part {
			tasks[i] = part[i].task
		}
		e.insertPart(q, part, tasks)
	}
}

// insertPart stores new tasks of one region.
func (e *Engine) insertPart(q *queue, batch []*newTask, tasks []scheduler.Task) {
	e.run(&q.pipe, scheduler.Insert{Region: tasks[0].Region, Tasks: tasks}, func(s *statement, answer any, err error) {
		e.inserted(q, batch, s, answer, err)
	})
}

// before counts the tasks of a batch that wait before the next one of their tenant, kind and tier.
type before map[beforeKey]int

type beforeKey struct {
	tenant, kind string
	tier         scheduler.Tier
}

func (b before) estimate(core *scheduler.Core, t *scheduler.Task, now time.Time) scheduler.Estimate {
	if t.State == scheduler.Running {
		return core.Estimate(t, 0, now)
	}
	key := beforeKey{t.Tenant, t.Kind, t.Tier}
	n := b[key]
	b[key] = n + 1
	return core.Estimate(t, n, now)
}

// prepare gives a new task its first waiting state. The store's clock has the last word on every time.
func prepare(t *scheduler.Task, now time.Time) {
	t.State, t.Attempt = scheduler.Ready, 0
	t.ReadyAt, t.Due = now, now.Add(t.Tolerance)
	if t.RunAt.After(now) {
		t.State = scheduler.Scheduled
		t.ReadyAt, t.Due = time.Time{}, t.RunAt.Add(t.Tolerance)
	}
}

func (e *Engine) inserted(q *queue, batch []*newTask, s *statement, answer any, err error) {
	if err != nil {
		e.insertFailed(q, batch, s, err)
		return
	}
	e.finish(s)
	answers := answer.([]scheduler.Inserted)
	var ready []scheduler.ReadyRow
	accepted := 0
	for i := range answers {
		n, a := batch[i], &answers[i]
		if a.Verdict == scheduler.InsertStored {
			accepted++
		}
		if n.task.State == scheduler.Running {
			e.eagerAnswered(n, a)
		}
		switch {
		case a.Verdict == scheduler.InsertNotStarted:
			n.plain = true
			q.pending = append(q.pending, n)
			continue
		case a.Verdict == scheduler.InsertStored && n.task.State == scheduler.Ready && a.State == scheduler.Ready:
			ready = append(ready, n.task.WaitingRow())
		case a.Verdict == scheduler.InsertStored && n.task.State == scheduler.Scheduled:
			e.addTimer(timedRow(&n.task))
		}
		e.settleSubmit(n, a)
	}
	e.observe.Rows("accepted", accepted)
	if len(ready) > 0 {
		e.offer(ready)
	}
}

// eagerAnswered tells the core whether a task that was to start in its insert stands as running.
func (e *Engine) eagerAnswered(n *newTask, a *scheduler.Inserted) {
	if a.Verdict == scheduler.InsertStored && a.State == scheduler.Running {
		n.task.StartedAt, n.task.CreatedAt = a.At, a.At
		e.core.Advance(scheduler.StartStored{Task: n.task})
		return
	}
	e.core.Advance(scheduler.StartRefused{ID: n.task.ID})
}

func (e *Engine) settleSubmit(n *newTask, a *scheduler.Inserted) {
	outcome := SubmitOutcome{Ref: n.task.Ref, State: a.State}
	switch a.Verdict {
	case scheduler.InsertDuplicate:
		outcome.Ref, outcome.Existed = a.Existing, true
	case scheduler.InsertKeyReused:
		outcome.Ref, outcome.Err = a.Existing, ErrKeyReused
	case scheduler.InsertHeld:
		outcome = heldOutcome(n, a)
	default: // stored: the reference is its own
		outcome.Estimate = n.estimate
	}
	e.answerSubmit(n, outcome)
}

// heldOutcome is what a submission gets whose unique key somebody holds.
func heldOutcome(n *newTask, a *scheduler.Inserted) SubmitOutcome {
	switch {
	case n.doubted:
		return SubmitOutcome{Ref: n.task.Ref, Err: ErrOutcomeUnknown}
	case n.task.Spec.RefuseHeld:
		return SubmitOutcome{Ref: a.Existing, State: a.State, Err: ErrKeyHeld}
	default:
		return SubmitOutcome{Ref: a.Existing, State: a.State, Existed: true}
	}
}

func (e *Engine) answerSubmit(n *newTask, outcome SubmitOutcome) {
	t := e.submits.tickets[n.ticket]
	if t == nil {
		return // withdrawn
	}
	t.outcomes[n.index] = outcome
	t.settled[n.index] = true
	if t.open--; t.open == 0 {
		delete(e.submits.tickets, n.ticket)
		e.answerTicket(n.ticket, t, "answered")
	}
}

func (e *Engine) answerTicket(id Ticket, t *ticket, outcome string) {
	e.observe.Submitted(outcome, e.local-t.at)
	e.emit(SubmitAnswered{Ticket: id, Outcomes: t.outcomes})
}

// withdrawSubmit answers a ticket with what is known now.
func (e *Engine) withdrawSubmit(id Ticket) {
	t := e.submits.tickets[id]
	if t == nil {
		return
	}
	for _, q := range []*queue{&e.submits.urgent, &e.submits.others} {
		q.pending = slices.DeleteFunc(q.pending, func(n *newTask) bool {
			if n.ticket == id {
				t.outcomes[n.index], t.settled[n.index] = SubmitOutcome{Err: ErrBusy}, true
			}
			return n.ticket == id
		})
	}
	for i := range t.outcomes {
		if !t.settled[i] {
			t.outcomes[i].Err = ErrOutcomeUnknown
		}
	}
	delete(e.submits.tickets, id)
	e.answerTicket(id, t, "withdrawn")
}

// insertFailed tries a batch again until the store says what stands, or finds the row that it will not take.
func (e *Engine) insertFailed(q *queue, batch []*newTask, s *statement, err error) {
	in := s.request.(scheduler.Insert)
	switch classify(err, len(batch)) {
	case halve:
		half := len(batch) / 2
		e.finish(s)
		for _, part := range []struct {
			batch []*newTask
			tasks []scheduler.Task
		}{{batch[:half], in.Tasks[:half]}, {batch[half:], in.Tasks[half:]}} {
			e.run(&q.pipe, scheduler.Insert{Region: in.Region, Tasks: part.tasks}, func(s *statement, answer any, err error) {
				e.inserted(q, part.batch, s, answer, err)
			})
		}
	case refuse:
		e.finish(s)
		n := batch[0]
		if n.task.State == scheduler.Running {
			e.core.Advance(scheduler.StartRefused{ID: n.task.ID})
		}
		e.observe.Rows("refused", 1)
		e.answerSubmit(n, SubmitOutcome{Err: err})
	case aside:
		e.setAside(s, err)
	default:
		for _, n := range batch {
			n.doubted = true
		}
		e.tryAgain(s, err)
	}
}

// timedRow is a scheduled task as the timers hold it.
func timedRow(t *scheduler.Task) scheduler.TimedRow {
	wake := t.RunAt
	if !t.StartBy.IsZero() && t.StartBy.Before(wake) {
		wake = t.StartBy
	}
	return scheduler.TimedRow{ReadyRow: t.WaitingRow(), WakeAt: wake}
}

// offer gives the core rows that this instance made ready itself; of other lanes' rows it tells whoever serves them.
func (e *Engine) offer(rows []scheduler.ReadyRow) {
	mine := rows[:0:0]
	for _, r := range rows {
		if e.lanes[r.ID.Shard()] {
			mine = append(mine, r)
			continue
		}
		e.hint(r.ID, scheduler.BufferKey{Tenant: r.Tenant, Tier: r.Tier, Class: r.Class.Hash()}, false)
	}
	if len(mine) > 0 {
		e.core.Step(scheduler.RowsReady{Rows: mine})
	}
	for _, r := range mine {
		if !r.StartBy.IsZero() {
			e.addTimer(scheduler.TimedRow{ReadyRow: r, WakeAt: r.StartBy})
		}
	}
}

// hintsMax bounds the hints of one turn; whoever misses one finds the row in its own time.
const hintsMax = 256

func (e *Engine) hint(id scheduler.ID, key scheduler.BufferKey, timed bool) {
	if len(e.hints) < hintsMax {
		e.hints = append(e.hints, Hint{Region: e.nameOf(id), Shard: id.Shard(), Key: key, Timed: timed})
	}
}
