package engine

import (
	"github.com/errandhq/errand/scheduler"
)

// This file holds waiting tasks on their way to become attempts, and attempts on their way to their workers.

// claiming is the pipes of one region's claims.
type claiming struct {
	urgent, others pipe
	payloads       pipe
}

func newClaiming(inFlight int) claiming {
	return claiming{
		urgent:   pipe{name: "claim_urgent", limit: inFlight},
		others:   pipe{name: "claim", limit: inFlight},
		payloads: pipe{name: "payloads", limit: inFlight},
	}
}

// room is how many claims may be planned now: what finds no free pipeline stays in its order and can still be overtaken. Claims of other
// regions' rows are not counted: what they hold of the workers bounds them.
func (c *claiming) room() (urgent, others int) {
	if c.urgent.free() {
		urgent = scheduler.BatchRowsUrgentMax
	}
	if c.others.free() {
		others = scheduler.BatchRowsMax
	}
	return urgent, others
}

func (e *Engine) claim(p scheduler.Plan) {
	for _, rows := range byRegion(p.UrgentClaims, func(c *scheduler.Claim) scheduler.ID { return c.ID }) {
		s := e.serve(rows[0].ID)
		e.claimBatch(s, &s.claiming.urgent, rows)
	}
	for _, rows := range byRegion(p.Claims, func(c *scheduler.Claim) scheduler.ID { return c.ID }) {
		s := e.serve(rows[0].ID)
		e.claimBatch(s, &s.claiming.others, rows)
	}
}

func (e *Engine) claimBatch(s *served, p *pipe, rows []scheduler.Claim) {
	for len(rows) > 0 { // the answer carries the small payloads: it is bounded too
		n, bytes := 0, 0
		for n < len(rows) && (n == 0 || bytes+inlineSize(&rows[n]) <= scheduler.InlineBatchMax) {
			bytes += inlineSize(&rows[n])
			n++
		}
		e.observe.Batch(p.name, n)
		e.run(p, scheduler.ClaimBatch{Region: s.name, Session: s.id, Claims: rows[:n:n]}, e.claimed)
		rows = rows[n:]
	}
}

func inlineSize(c *scheduler.Claim) int {
	if c.PayloadSize > scheduler.InlinePayloadMax {
		return 0
	}
	return c.PayloadSize
}

func (e *Engine) claimed(s *statement, answer any, err error) {
	b := s.request.(scheduler.ClaimBatch)
	if err != nil {
		switch classify(err, len(b.Claims)) {
		case halve:
			first, second := b, b
			half := len(b.Claims) / 2
			first.Claims, second.Claims = b.Claims[:half], b.Claims[half:]
			e.split(s, first, second)
		case refuse:
			e.finish(s)
			e.observe.Rows("refused", 1)
			e.core.Advance(scheduler.ClaimsAnswered{Answers: []scheduler.Claimed{{ID: b.Claims[0].ID, Verdict: scheduler.Lost}}})
		case aside:
			e.setAside(s, err)
		default:
			e.tryAgain(s, err)
		}
		return
	}
	e.finish(s)
	answers := answer.([]scheduler.Claimed)
	won := 0
	for i := range answers {
		a := &answers[i]
		if _, coming := e.workers.coming[a.Start.Token]; coming && a.Verdict == scheduler.Won {
			// Another instance's claim for the same worker, which runs it already: the take-over under way has made the row
			// look like ours.
			*a = scheduler.Claimed{ID: a.ID, Verdict: scheduler.Lost, State: a.State}
		}
		if a.Verdict == scheduler.Won {
			won++
		}
	}
	e.observe.Claims(won, len(answers)-won)
	e.core.Advance(scheduler.ClaimsAnswered{Answers: answers})
}

// assign sends running rows to their workers; payloads that were too large for the claim are read first.
func (e *Engine) assign(starts []scheduler.Start) {
	var large []scheduler.Start
	for _, s := range starts {
		if s.Payload == nil && s.PayloadSize > 0 {
			large = append(large, s)
			continue
		}
		e.deliver(s)
	}
	for _, rows := range byRegion(large, func(s *scheduler.Start) scheduler.ID { return s.ID }) {
		for len(rows) > 0 {
			n, bytes := 0, 0
			for n < len(rows) && (n == 0 || bytes+rows[n].PayloadSize <= scheduler.BatchBytesMax) {
				bytes += rows[n].PayloadSize
				n++
			}
			e.readPayloads(rows[:n])
			rows = rows[n:]
		}
	}
}

// Payloads is Store.Payloads.
type Payloads struct {
	Region string
	IDs    []scheduler.ID
}

// readPayloads reads before it sends. It gives up after a few tries: then the attempt is not accepted in time and goes back.
func (e *Engine) readPayloads(starts []scheduler.Start) {
	const triesMax = 3
	ids := make([]scheduler.ID, len(starts))
	for i := range starts {
		ids[i] = starts[i].ID
	}
	of := e.serve(starts[0].ID)
	e.run(&of.claiming.payloads, Payloads{Region: of.name, IDs: ids}, func(s *statement, answer any, err error) {
		if err != nil && s.tries < triesMax {
			e.tryAgain(s, err)
			return
		}
		e.finish(s)
		payloads, _ := answer.([][]byte)
		for i := range payloads {
			if payloads[i] != nil && e.core.Awaits(starts[i].Token) {
				starts[i].Payload = payloads[i]
				e.deliver(starts[i])
			}
		}
	})
}

// deliver puts an assignment on its worker's stream, or withdraws it when there is none.
func (e *Engine) deliver(s scheduler.Start) {
	if e.stopping || !e.toWorker(s.Worker, func(w *ToWorker) { w.Assign = append(w.Assign, s) }) {
		e.core.Step(scheduler.Undelivered{Tokens: []scheduler.Token{s.Token}})
		e.unwritten = true
		return
	}
	e.observe.Started(s.Tier, s.StartedAt.Sub(s.ReadyAt), s.StartedAt.Sub(s.Due))
}

// wake lets the store make scheduled rows ready whose time has come and for which no worker is free.
func (e *Engine) wake(rows []scheduler.ReadyRow) {
	for _, rows := range byRegion(rows, func(r *scheduler.ReadyRow) scheduler.ID { return r.ID }) {
		for len(rows) > 0 {
			n := min(len(rows), scheduler.BatchRowsMax)
			e.wakeBatch(rows[:n])
			rows = rows[n:]
		}
	}
}

func (e *Engine) wakeBatch(rows []scheduler.ReadyRow) {
	seen := make([]scheduler.Seen, len(rows))
	for i, r := range rows {
		seen[i] = scheduler.Seen{ID: r.ID, Attempt: r.Attempt}
	}
	of := e.serve(rows[0].ID)
	e.run(&of.moves.waking, scheduler.WakeBatch{Region: of.name, Rows: seen}, func(s *statement, answer any, err error) {
		e.finish(s)
		if err != nil {
			return // the rows keep their wake time: the timers find them again
		}
		var ready []scheduler.ReadyRow
		for i, moved := range answer.([]scheduler.Moved) {
			if moved.Verdict == scheduler.Won {
				r := rows[i]
				r.State, r.Due = scheduler.Ready, moved.Due
				ready = append(ready, r)
			}
		}
		e.observe.Rows("woken", len(ready))
		e.offer(ready)
	})
}
