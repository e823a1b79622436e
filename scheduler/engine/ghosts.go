package engine

import (
	"time"

	"github.com/errandhq/errand/scheduler"
)

// ghosts is the look at attempts that have moved to other instances: they hold slots of caps until their rows run no more.
type ghosts struct {
	reading pipe
	asked   bool
	askAt   time.Duration
}

func newGhosts() ghosts { return ghosts{reading: pipe{name: "stand", limit: 1}} }

// watchGhosts asks, every Reclaim, how the rows of such attempts stand.
func (e *Engine) watchGhosts() {
	g := &e.ghosts
	if g.asked || e.local < g.askAt {
		return
	}
	g.askAt = e.local + e.timing.Reclaim
	tokens := e.core.Ghosts(scheduler.BatchRowsMax)
	if len(tokens) == 0 {
		return
	}
	g.asked = true
	tokens = byRegion(tokens, func(t *scheduler.Token) scheduler.ID { return t.ID })[0] // those of other regions next time
	q := scheduler.StandQuery{Region: e.serve(tokens[0].ID).name}
	for _, t := range tokens {
		q.IDs = append(q.IDs, t.ID)
	}
	e.run(&g.reading, q, func(s *statement, answer any, err error) {
		e.finish(s)
		e.ghosts.asked = false
		if err != nil {
			e.observe.StatementFailed(e.ghosts.reading.name, 1, err)
			return
		}
		runs := map[scheduler.ID]int64{}
		for _, st := range answer.([]scheduler.Stand) {
			if st.State == scheduler.Running {
				runs[st.ID] = st.Attempt
			}
		}
		var gone []scheduler.Token
		for _, t := range tokens {
			if runs[t.ID] != t.Attempt {
				gone = append(gone, t)
			}
		}
		e.core.Step(scheduler.Vanished{Tokens: gone})
	})
}
