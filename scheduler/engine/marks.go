package engine

import (
	"maps"
	"slices"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of what operators lay over a worker.
const (
	MarkedLabelsMax = 64 // labels laid over one worker; as many of its own may be taken away
	// marksRevisionMax is what no honest count reaches. A worker that says more is not believed: nothing could be laid over its word.
	marksRevisionMax = 1 << 53
)

// Marks are what operators have laid over a worker. No instance could keep them: a worker goes to another one when its own stops. It carries
// them along and says them when it registers; the higher revision stands.
type Marks struct {
	Revision int64
	Cordoned bool // no more work, until it is uncordoned
	Draining bool // no more work
	Labels   map[string]string
	Removed  []string // keys of labels that were taken away, in order
}

// MarkChange is what an operator wants of a worker. The zero value changes nothing.
type MarkChange struct {
	Cordon *bool // nil leaves it as it is
	Drain  bool
	Set    map[string]string
	Remove []string // none of which is in Set
}

// changed returns the marks after a change, and false when that would be more labels than can be kept.
func (m *Marks) changed(c *MarkChange) (Marks, bool) {
	next := *m
	next.Labels, next.Removed = maps.Clone(m.Labels), slices.Clone(m.Removed)
	if c.Cordon != nil {
		next.Cordoned = *c.Cordon
	}
	next.Draining = next.Draining || c.Drain
	for key, value := range c.Set {
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		next.Labels[key] = value
		next.Removed = slices.DeleteFunc(next.Removed, func(removed string) bool { return removed == key })
	}
	for _, key := range c.Remove {
		delete(next.Labels, key)
		next.Removed = append(next.Removed, key)
	}
	slices.Sort(next.Removed)
	next.Removed = slices.Compact(next.Removed)
	if len(next.Labels) > MarkedLabelsMax || len(next.Removed) > MarkedLabelsMax {
		return *m, false
	}
	if !m.same(&next) {
		next.Revision++
	}
	return next, true
}

func (m *Marks) same(other *Marks) bool {
	return m.Cordoned == other.Cordoned && m.Draining == other.Draining && maps.Equal(m.Labels, other.Labels) && slices.Equal(m.Removed, other.Removed)
}

// over lays the marks' labels over those of a worker.
func (m *Marks) over(own map[string]string) map[string]string {
	if len(m.Labels)+len(m.Removed) == 0 {
		return own
	}
	labels := maps.Clone(own)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, key := range m.Removed {
		delete(labels, key)
	}
	maps.Copy(labels, m.Labels)
	return labels
}

// believes tells whether what a worker says of its marks stands against what is known here.
func (m *Marks) believes(said *Marks) bool {
	return said.Revision >= m.Revision && said.Revision <= marksRevisionMax
}

// shut tells whether a worker that has settled gets no work.
func (w *worker) shut() bool {
	return w.stream == 0 || w.draining || w.marks.Draining || w.marks.Cordoned
}

// join tells the core what a worker is, with what operators have laid over it.
func (e *Engine) join(w *worker) {
	described := w.said
	described.Labels = w.marks.over(w.said.Labels)
	e.core.Step(scheduler.WorkerJoined{Worker: described})
}

// markWorker does what an operator wants of a worker, and tells the worker. One without a connection is left as it is: it may be about to
// come back at another instance, which would not hear of it.
func (e *Engine) markWorker(in MarkAsked) {
	w := e.workers.byID[in.ID]
	answer := WorkerMarked{Ticket: in.Ticket}
	switch {
	case w == nil:
	case w.stream == 0:
		answer.Gone = true
	default:
		next, fits := w.marks.changed(&in.Change)
		if answer.Full = !fits; fits && next.Revision != w.marks.Revision {
			drains := next.Draining && !w.marks.Draining
			w.marks = next
			e.join(w)
			if !w.settling {
				e.core.Step(scheduler.WorkerDraining{ID: w.id, Draining: w.shut()})
			}
			e.toWorker(w.id, func(words *ToWorker) { words.Marks, words.Drain = &next, words.Drain || drains })
		}
		info := e.workerInfo(w)
		answer.Worker = &info
	}
	e.emit(answer)
}

func (e *Engine) workerInfo(w *worker) WorkerInfo {
	return WorkerInfo{
		Worker: e.core.Worker(w.id), Version: w.version, Draining: w.draining || w.marks.Draining, Cordoned: w.marks.Cordoned,
		Connected: w.stream != 0, Silent: e.local - w.heard, Running: len(e.core.HeldBy(w.id)),
	}
}
