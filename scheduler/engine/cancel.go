package engine

import "github.com/errandhq/errand/scheduler"

// cancels counts the cancels in flight.
type cancels struct{ pipe }

func newCancels() cancels { return cancels{pipe{name: "cancel", limit: 8}} }

// cancelTriesMax bounds the tries of one cancel: its caller asks again after an error.
const cancelTriesMax = 3

// cancel writes the wish down first; whoever dispatches a running attempt is told then, and finds it by itself otherwise.
func (e *Engine) cancel(in CancelAsked) {
	b := scheduler.CancelBatch{Region: in.Region, Tenant: in.Tenant, IDs: in.IDs, Message: in.Message}
	e.run(&e.cancels.pipe, b, func(s *statement, answer any, err error) {
		if err != nil && s.tries < cancelTriesMax {
			e.tryAgain(s, err)
			return
		}
		e.finish(s)
		if err != nil {
			e.emit(CancelAnswered{Ticket: in.Ticket, Err: err})
			return
		}
		answers := answer.([]scheduler.CancelAnswer)
		for i := range answers {
			e.canceled(&answers[i])
		}
		e.emit(CancelAnswered{Ticket: in.Ticket, Answers: answers})
	})
}

func (e *Engine) canceled(a *scheduler.CancelAnswer) {
	switch {
	case a.Verdict != scheduler.Won:
	case a.State == scheduler.Canceled:
		e.core.Step(scheduler.RowsGone{IDs: []scheduler.ID{a.ID}})
		e.ended = append(e.ended, a.ID)
		if a.Parent {
			e.releaseChildren(a.ID)
		}
	case a.State == scheduler.Running && e.core.Holds(a.Token):
		e.core.Step(scheduler.CancelAsked{Token: a.Token})
	case a.State == scheduler.Running:
		for _, peer := range e.peersOf(a.ID) {
			if peer.ID == a.Session {
				e.emit(TellPeerCancel{Peer: peer, Token: a.Token})
			}
		}
	}
}
