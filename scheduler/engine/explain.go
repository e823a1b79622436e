package engine

import "github.com/errandhq/errand/scheduler"

// explain answers what keeps a task from running, as far as this instance knows.
func (e *Engine) explain(in ExplainAsked) {
	if in.Token == (scheduler.Token{}) {
		e.emit(Explained{Ticket: in.Ticket, Hold: e.core.Explain(&in.Row, e.storeNow())})
		return
	}
	var h scheduler.Hold
	h.Place, h.Here = e.core.Where(in.Token)
	e.emit(Explained{Ticket: in.Ticket, Hold: h})
}
