package engine

import (
	"container/heap"
	"math"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of the timers in memory; everything beyond waits in the store.
const (
	timedHorizon = 5 * time.Second // rows due sooner are kept here
	timedEvery   = time.Second     // how often the timed index is read
	timedLimit   = 500             // rows per shard and read
	timersMax    = 200_000
	// timerMargin is how much later than its estimate of the store's clock an engine fires: one that fires too early is refused by
	// the store, and the row waits for the next read.
	timerMargin = 5 * time.Millisecond
	expireMax   = scheduler.BatchRowsMax
)

// timers holds waiting rows that somebody must look at soon: scheduled ones, and ready ones with a start_by.
type timers struct {
	due  timerHeap
	byID map[scheduler.ID]*timer
	full bool // not everything that was read could be kept
}

// moves is the reading of one region's timed index, and the writes that move its rows.
type moves struct {
	readAt  time.Duration // when the timed index was last asked
	asked   bool
	more    bool // the last read did not show everything within the horizon
	reading pipe
	waking  pipe
	expires pipe
	expired []scheduler.ID
}

type timer struct {
	row   scheduler.TimedRow
	index int
}

func newTimers() timers {
	return timers{byID: map[scheduler.ID]*timer{}}
}

func newMoves() moves {
	return moves{
		reading: pipe{name: "timed", limit: 1},
		waking:  pipe{name: "wake", limit: 4},
		expires: pipe{name: "expire", limit: 2},
	}
}

// addTimer keeps a row that comes due soon; a later one is left to the store.
func (e *Engine) addTimer(r scheduler.TimedRow) {
	if r.WakeAt.Sub(e.storeNow()) <= timedHorizon {
		e.timers.add(r)
	}
}

// add keeps a row until its time.
func (t *timers) add(r scheduler.TimedRow) {
	if known := t.byID[r.ID]; known != nil {
		if known.row.Attempt <= r.Attempt {
			known.row = r
			heap.Fix(&t.due, known.index)
		}
		return
	}
	if len(t.due) >= timersMax {
		t.full = true
		return
	}
	one := &timer{row: r}
	t.byID[r.ID] = one
	heap.Push(&t.due, one)
}

// maxAttempt is above every attempt.
const maxAttempt = math.MaxInt64

// forget drops a row as it was at an attempt, or before.
func (t *timers) forget(id scheduler.ID, attempt int64) {
	if known := t.byID[id]; known != nil && known.row.Attempt <= attempt {
		heap.Remove(&t.due, known.index)
		delete(t.byID, id)
	}
}

func (t *timers) next() (time.Time, bool) {
	if len(t.due) == 0 {
		return time.Time{}, false
	}
	return t.due[0].row.WakeAt.Add(timerMargin), true
}

// retain forgets the rows of lanes that are no longer ours.
func (t *timers) retain(mine [256]bool) {
	kept := t.due[:0]
	for _, one := range t.due {
		if mine[one.row.ID.Shard()] {
			kept = append(kept, one)
		} else {
			delete(t.byID, one.row.ID)
		}
	}
	clear(t.due[len(kept):])
	t.due = kept
	for i, one := range t.due {
		one.index = i
	}
	heap.Init(&t.due)
}

// fireTimers hands on the rows whose time has come by the estimate of the store's clock, and reads those that come next.
func (e *Engine) fireTimers() {
	t, now := &e.timers, e.storeNow().Add(-timerMargin)
	var ready []scheduler.ReadyRow
	for len(t.due) > 0 && !t.due[0].row.WakeAt.After(now) {
		one := heap.Pop(&t.due).(*timer)
		delete(t.byID, one.row.ID)
		r := one.row.ReadyRow
		switch {
		case r.State.Open() && !r.StartBy.IsZero() && !r.StartBy.After(now):
			of := e.serve(r.ID)
			of.moves.expired = append(of.moves.expired, r.ID)
		case r.State == scheduler.Scheduled:
			ready = append(ready, r)
		case r.State == scheduler.Blocked || r.State.Terminal():
			e.sweepReleases(&r)
		}
	}
	if len(ready) > 0 {
		e.core.Step(scheduler.RowsReady{Rows: ready})
	}
	for _, s := range e.served {
		e.expire(s)
		e.readTimed(s)
	}
}

// expire ends waiting rows past their start_by. The guard spares those that have started meanwhile.
func (e *Engine) expire(of *served) {
	t := &of.moves
	for t.expires.free() && len(t.expired) > 0 {
		n := min(len(t.expired), expireMax)
		ids := append([]scheduler.ID(nil), t.expired[:n]...)
		t.expired = append(t.expired[:0:0], t.expired[n:]...)
		e.core.Step(scheduler.RowsGone{IDs: ids})
		e.run(&t.expires, scheduler.ExpireBatch{Region: of.name, IDs: ids}, func(s *statement, answer any, err error) {
			e.finish(s)
			if err != nil {
				return // the rows keep their wake time: the next read finds them again
			}
			gone := 0
			for _, moved := range answer.([]scheduler.Moved) {
				if moved.Verdict == scheduler.Won {
					gone++
					e.ended = append(e.ended, moved.ID)
				}
				if moved.Parent && moved.State.Terminal() {
					e.releaseChildren(moved.ID)
				}
			}
			e.observe.Rows("expired", gone)
		})
	}
}

// readTimed asks the store for rows whose time comes soon, at once again when there are more than one read shows.
func (e *Engine) readTimed(of *served) {
	t := &of.moves
	every := timedEvery
	if (t.more || e.timers.full) && len(e.timers.due) < timersMax/2 {
		every, e.timers.full = tick, false
	}
	if t.asked || len(of.shards) == 0 || (t.readAt > 0 && e.local-t.readAt < every) {
		return
	}
	t.asked, t.readAt = true, max(e.local, 1)
	q := scheduler.TimedQuery{Region: of.name, Shards: of.shards, Horizon: timedHorizon, Limit: timedLimit}
	e.run(&t.reading, q, func(s *statement, answer any, err error) {
		e.finish(s)
		t.asked = false
		if err != nil {
			return
		}
		rows := answer.([]scheduler.TimedRow)
		perShard := map[uint8]int{}
		t.more = false
		for i := range rows {
			shard := rows[i].ID.Shard()
			if perShard[shard]++; perShard[shard] >= timedLimit {
				t.more = true
			}
			if row := rows[i]; e.lanes[shard] {
				if unfinished := row.State.Terminal() || row.State == scheduler.Blocked && !row.WakeAt.Equal(row.StartBy); unfinished {
					row.WakeAt = row.WakeAt.Add(releaseGrace)
				}
				e.timers.add(row)
			}
		}
	})
}

// timerHeap orders timers by their time, then ID.
type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	a, b := &h[i].row, &h[j].row
	if !a.WakeAt.Equal(b.WakeAt) {
		return a.WakeAt.Before(b.WakeAt)
	}
	return a.ID.Compare(b.ID) < 0
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	one := x.(*timer)
	one.index = len(*h)
	*h = append(*h, one)
}

func (h *timerHeap) Pop() any {
	old := *h
	one := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return one
}
