package schedulertest

import (
	"time"

	"github.com/errandhq/errand/scheduler/engine"
)

// conn is a worker's connection to an instance. Words arrive in order or not at all: a network loses some only by ending the
// connection. Each end has its own idea of whether it is open.
type conn struct {
	s    *sim
	id   engine.StreamID
	in   *instance
	life int // of the instance
	w    *worker

	openAtInstance, openAtWorker bool
	resetToInstance              bool          // what is on its way there is lost
	resetToWorker                bool          // the same the other way
	upBy, downBy                 time.Duration // when the last words sent arrive
}

func (s *sim) latency() time.Duration {
	if s.chance(0.05) {
		return s.between(5*time.Millisecond, 300*time.Millisecond)
	}
	return s.between(100*time.Microsecond, 5*time.Millisecond)
}

// carryUp brings something to the instance's end, in order.
func (c *conn) carryUp(arrive func()) {
	c.upBy = max(c.upBy, c.s.now+c.s.latency())
	c.s.at(c.upBy, func() { c.arriveUp(arrive) })
}

func (c *conn) arriveUp(arrive func()) {
	if until := c.w.cutUp; until > c.s.now {
		c.s.at(until, func() { c.arriveUp(arrive) })
		return
	}
	arrive()
}

func (c *conn) carryDown(arrive func()) {
	c.downBy = max(c.downBy, c.s.now+c.s.latency())
	c.s.at(c.downBy, func() { c.arriveDown(arrive) })
}

func (c *conn) arriveDown(arrive func()) {
	if until := c.w.cutDown; until > c.s.now {
		c.s.at(until, func() { c.arriveDown(arrive) })
		return
	}
	arrive()
}

// toInstance sends a worker's words.
func (c *conn) toInstance(words engine.FromWorker) {
	if !c.openAtWorker {
		return
	}
	c.carryUp(func() {
		if c.openAtInstance && !c.resetToInstance {
			c.in.post(engine.WorkerSaid{Stream: c.id, Words: words})
		}
	})
}

// toWorker sends an instance's words.
func (c *conn) toWorker(words engine.ToWorker) {
	if !c.openAtInstance {
		return
	}
	c.carryDown(func() {
		if c.openAtWorker && !c.resetToWorker {
			c.w.receive(c, words)
		}
	})
}

// closeByInstance ends the connection from the instance's side, which hears of it in its next turn.
func (c *conn) closeByInstance() {
	if !c.openAtInstance {
		return
	}
	c.forgetAtInstance()
	c.in.post(engine.StreamClosed{Stream: c.id})
	c.noticeDown()
}

// closeByWorker ends it from the worker's side. An orderly end lets what was said before arrive.
func (c *conn) closeByWorker(orderly bool) {
	if !c.openAtWorker {
		return
	}
	c.openAtWorker = false
	c.resetToInstance = !orderly && c.s.chance(0.5)
	c.noticeUp()
}

// breaks ends it for both, as a network does.
func (c *conn) breaks() {
	c.resetToInstance, c.resetToWorker = c.s.chance(0.7), c.s.chance(0.7)
	c.noticeUp()
	c.noticeDown()
}

func (c *conn) noticeUp() {
	c.carryUp(func() {
		if c.openAtInstance {
			c.forgetAtInstance()
			c.in.post(engine.StreamClosed{Stream: c.id})
		}
	})
}

func (c *conn) noticeDown() {
	c.carryDown(func() {
		if c.openAtWorker {
			c.openAtWorker = false
			c.w.disconnected(c)
		}
	})
}

func (c *conn) forgetAtInstance() {
	c.openAtInstance = false
	delete(c.in.conns, c.id)
}

// instanceDied leaves the worker's end alone: it hears of it, or finds out by the silence.
func (c *conn) instanceDied(told bool) {
	c.forgetAtInstance()
	if told {
		c.noticeDown()
	}
}

// workerDied leaves the instance's end alone.
func (c *conn) workerDied(told bool) {
	if !c.openAtWorker {
		return
	}
	c.openAtWorker = false
	if told {
		c.noticeUp()
	}
}
