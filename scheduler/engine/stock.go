package engine

import (
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of taking stock.
const (
	stockEvery = 5 * time.Second
	stockMax   = 1000 // tenants and tiers; those with most
)

// stock is the look at how much is open in the region: what is known of the waiting tasks that only the store holds.
type stock struct {
	reading pipe
	asked   bool
	askAt   time.Duration
}

func newStock() stock { return stock{reading: pipe{name: "stock", limit: 1}} }

func (e *Engine) takeStock() {
	if e.stock.asked || e.local < e.stock.askAt {
		return
	}
	e.stock.asked = true
	e.run(&e.stock.reading, scheduler.OpenQuery{Region: e.home.name, Limit: stockMax}, func(s *statement, answer any, err error) {
		e.finish(s)
		e.stock.asked, e.stock.askAt = false, e.local+stockEvery
		if err != nil {
			e.observe.StatementFailed(e.stock.reading.name, 1, err)
			return
		}
		e.core.Step(scheduler.StockTaken{Open: answer.([]scheduler.Open)})
	})
}
