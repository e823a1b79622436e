package engine

import (
	"github.com/errandhq/errand/scheduler"
)

// endingsPendingMax bounds the ends that wait to be written. Their room is free again, so without a bound a store that is slower with ends
// than with claims lets them grow for ever; beyond it nothing starts, and beyond twice as many nothing urgent either.
const endingsPendingMax = 4 * scheduler.BatchRowsMax

// endings holds attempts of one region's tasks on their way to their end.
type endings struct {
	pipe
	pending []scheduler.Ending
}

func newEndings(inFlight int) endings {
	return endings{pipe: pipe{name: "end", limit: inFlight}}
}

// crowd takes from the room for starts what there are too many ends for.
func (q *endings) crowd(room *scheduler.Room) {
	if len(q.pending) >= endingsPendingMax {
		room.Others = 0
	}
	if len(q.pending) >= 2*endingsPendingMax {
		room.Urgent = 0
	}
}

// addEndings queues the ends of attempts.
func (e *Engine) addEndings(all []scheduler.Ending) {
	for _, part := range byRegion(all, func(e *scheduler.Ending) scheduler.ID { return e.ID }) {
		q := &e.serve(part[0].ID).ends
		q.pending = append(q.pending, part...)
	}
}

// stray queues the ending of a row that the core does not hold, unless one is under way.
func (e *Engine) stray(end scheduler.Ending, row scheduler.Held) bool {
	if _, underway := e.strays[end.Token]; underway {
		return false
	}
	e.strays[end.Token] = row
	e.addEndings([]scheduler.Ending{end})
	return true
}

// end sends what waits, as far as the pipeline has room.
func (e *Engine) end() {
	for _, s := range e.served {
		e.endIn(s)
	}
}

func (e *Engine) endIn(s *served) {
	q := &s.ends
	for q.free() && len(q.pending) > 0 {
		batch := takeBatch(&q.pending, e.batchRows(), func(e scheduler.Ending) int { return len(e.Result) })
		e.observe.Batch(q.name, len(batch))
		e.run(&q.pipe, scheduler.EndBatch{Region: s.name, Endings: batch}, e.endingsDone)
	}
}

func (e *Engine) endingsDone(s *statement, answer any, err error) {
	b := s.request.(scheduler.EndBatch)
	if err != nil {
		e.endingsFailed(s, b, err)
		return
	}
	e.finish(s)
	answers := answer.([]scheduler.Ended)
	rows := make([]scheduler.Held, len(answers)) // as they were: the core forgets them now
	for i := range answers {
		token := b.Endings[i].Token
		if row, held := e.core.Row(token); held {
			rows[i] = row
		} else {
			rows[i] = e.strays[token]
		}
	}
	e.core.Advance(scheduler.EndingsAnswered{Endings: b.Endings, Answers: answers})
	for i := range answers {
		e.endingSettled(&b.Endings[i], &answers[i], &rows[i])
	}
}

func (e *Engine) endingsFailed(s *statement, b scheduler.EndBatch, err error) {
	switch classify(err, len(b.Endings)) {
	case halve:
		first, second := b, b
		half := len(b.Endings) / 2
		first.Endings, second.Endings = b.Endings[:half], b.Endings[half:]
		e.split(s, first, second)
	case refuse:
		// A result or a message that the store cannot hold must not make finished work look unfinished.
		e.finish(s)
		bad := b.Endings[0]
		e.observe.Rows("refused", 1)
		e.observe.Event("the store refuses an attempt's end as reported: ending it as failed without its result",
			"task", scheduler.Ref{Region: b.Region, ID: bad.ID}, "attempt", bad.Attempt, "error", err)
		bad.To, bad.Result, bad.ResultType, bad.Counted = scheduler.Failed, nil, "", true
		bad.Failure = &scheduler.Failure{Reason: scheduler.ReasonBadResult, Message: "the store could not hold what the handler returned"}
		e.addEndings([]scheduler.Ending{bad})
	case aside:
		e.setAside(s, err)
	default:
		e.tryAgain(s, err)
	}
}

// endingSettled answers the worker and takes note of where the task stands.
func (e *Engine) endingSettled(asked *scheduler.Ending, stands *scheduler.Ended, row *scheduler.Held) {
	if t, coming := e.workers.coming[asked.Token]; coming && stands.Verdict != scheduler.Won {
		t.ends = false // the take-over tells more, and has to
		e.workers.coming[asked.Token] = t
	} else {
		e.toWorker(asked.Worker, func(w *ToWorker) { w.Acks = append(w.Acks, Ack{Token: asked.Token, Answer: ackOf(asked, stands)}) })
	}

	_, stray := e.strays[asked.Token]
	delete(e.strays, asked.Token)
	if stands.Verdict == scheduler.Won && !row.ID.IsZero() {
		e.observe.Ended(row.Tier, stands.State, e.storeNow().Sub(row.StartedAt))
	}
	if stands.Parent && stands.State.Terminal() {
		e.releaseChildren(asked.ID)
	}
	switch {
	case stands.Verdict != scheduler.Won:
		return
	case stands.State.Terminal():
		e.ended = append(e.ended, asked.ID)
	case row.ID.IsZero():
		return // nothing is known of the row here: whoever serves its lane finds it
	case stands.State == scheduler.Scheduled:
		e.retryComes(asked, row)
	case stands.State == scheduler.Ready && stray:
		e.offer([]scheduler.ReadyRow{waitingRow(asked, row)})
	}
}

func ackOf(asked *scheduler.Ending, stands *scheduler.Ended) AckAnswer {
	switch {
	case stands.Verdict != scheduler.Won:
		return AckLost
	case stands.State == scheduler.Canceled && asked.To != scheduler.Canceled:
		return AckCanceled
	default:
		return AckRecorded
	}
}

// retryComes sets the timer of a task that is tried again, or tells who serves its lane.
func (e *Engine) retryComes(asked *scheduler.Ending, row *scheduler.Held) {
	r := waitingRow(asked, row)
	r.State = scheduler.Scheduled
	if !e.lanes[r.ID.Shard()] {
		e.hint(r.ID, scheduler.BufferKey{Tenant: r.Tenant, Tier: r.Tier, Class: r.Class.Hash()}, true)
		return
	}
	e.addTimer(scheduler.TimedRow{ReadyRow: r, WakeAt: e.storeNow().Add(asked.Delay)})
}

// waitingRow is what the row of an ended attempt looks like now that it waits again.
func waitingRow(asked *scheduler.Ending, row *scheduler.Held) scheduler.ReadyRow {
	return scheduler.ReadyRow{
		ID: row.ID, Attempt: row.Attempt, State: scheduler.Ready, Tenant: row.Tenant, Kind: row.Kind, Tier: row.Tier,
		Class: scheduler.ClassOf(row.Kind, &row.Spec), Due: row.Due, Suspect: asked.Suspect, Limits: row.Spec.Limits, Shape: row.Spec.Shape, Allowed: row.Spec.AllowedRegions, Avoid: row.Worker,
	}
}
