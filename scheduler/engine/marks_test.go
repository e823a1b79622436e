package engine

import (
	"maps"
	"slices"
	"testing"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// What is set again is not removed any more, and a change that changes nothing is none.
func TestMarksChange(t *testing.T) {
	own := map[string]string{"disk": "ssd", "arch": "arm"}
	m, yes := Marks{}, true
	for i, c := range []struct {
		change MarkChange
		labels map[string]string
		news   bool
	}{
		{MarkChange{}, own, false},
		{MarkChange{Cordon: new(bool)}, own, false},
		{MarkChange{Set: map[string]string{"disk": "worn", "canary": "yes"}}, map[string]string{"disk": "worn", "arch": "arm", "canary": "yes"}, true},
		{MarkChange{Remove: []string{"canary", "disk"}}, map[string]string{"arch": "arm"}, true},
		{MarkChange{Remove: []string{"disk"}}, map[string]string{"arch": "arm"}, false},
		{MarkChange{Set: map[string]string{"disk": "new"}}, map[string]string{"disk": "new", "arch": "arm"}, true},
		{MarkChange{Drain: true}, map[string]string{"disk": "new", "arch": "arm"}, true},
		{MarkChange{Cordon: &yes}, map[string]string{"disk": "new", "arch": "arm"}, true},
	} {
		next, fits := m.changed(&c.change)
		if !fits || (next.Revision > m.Revision) != c.news || !maps.Equal(next.over(own), c.labels) {
			t.Errorf("change %d: %+v, %v; labels %v", i, next, fits, next.over(own))
		}
		m = next
	}
	if !m.Cordoned || !m.Draining {
		t.Errorf("in the end: %+v", m)
	}
}

// markBench is one worker that registers at an engine again and again.
type markBench struct {
	*Engine
	t      *testing.T
	stream StreamID
}

func newMarkBench(t *testing.T) *markBench {
	return &markBench{Engine: testEngine(), t: t}
}

func (b *markBench) register(m Marks) {
	b.stream++
	b.take(StreamOpened{Stream: b.stream})
	b.take(WorkerSaid{Stream: b.stream, Words: FromWorker{
		Register:  &Register{Worker: placement.Worker{ID: scheduler.WorkerID{7}, Slots: map[string]int{"encode": 1}}, Marks: m},
		Heartbeat: &Heartbeat{},
	}})
}

func (b *markBench) mark(c MarkChange) WorkerMarked {
	b.take(MarkAsked{ID: scheduler.WorkerID{7}, Change: c})
	return b.effects[len(b.effects)-1].(WorkerMarked)
}

// told takes what the worker has heard of its marks.
func (b *markBench) told() *Marks {
	words := b.out[b.stream]
	if words == nil {
		return nil
	}
	m := words.Marks
	words.Marks = nil
	return m
}

func (b *markBench) shut() bool {
	return b.workers.byID[scheduler.WorkerID{7}].shut()
}

// The newer marks stand, whoever has them; the other side is told.
func TestNewerMarksStand(t *testing.T) {
	yes, no := true, false
	b := newMarkBench(t)
	b.register(Marks{})
	if b.told() != nil || b.shut() {
		t.Error("marks out of nowhere")
	}
	b.mark(MarkChange{Cordon: &yes})
	if m := b.told(); m == nil || !m.Cordoned || !b.shut() {
		t.Fatalf("told %+v, shut %v", m, b.shut())
	}
	b.register(Marks{}) // it has not heard of it
	if m := b.told(); m == nil || !m.Cordoned || !b.shut() {
		t.Errorf("back without its marks: told %+v, shut %v", m, b.shut())
	}
	b.register(Marks{Revision: 2}) // uncordoned elsewhere
	if b.told() != nil || b.shut() {
		t.Error("older marks stand against newer ones")
	}
	b.register(Marks{Revision: marksRevisionMax + 1, Draining: true}) // nobody could ever say anything else of it
	if m := b.told(); m == nil || m.Revision != 2 || b.shut() {
		t.Errorf("an absurd revision: told %+v, shut %v", m, b.shut())
	}
	b.mark(MarkChange{Cordon: &yes, Drain: true})
	b.mark(MarkChange{Cordon: &no})
	if !b.shut() {
		t.Error("uncordoning ends a drain")
	}
}

// A worker without a connection is left as it is: it may come back elsewhere, without having heard.
func TestAWorkerThatIsGoneIsNotMarked(t *testing.T) {
	yes := true
	b := newMarkBench(t)
	if got := b.mark(MarkChange{Cordon: &yes}); got.Gone || got.Worker != nil {
		t.Errorf("nobody: %+v", got)
	}
	b.register(Marks{})
	b.take(StreamClosed{Stream: b.stream})
	if got := b.mark(MarkChange{Cordon: &yes}); !got.Gone || got.Worker != nil {
		t.Errorf("gone: %+v", got)
	}
	b.register(Marks{})
	if b.shut() {
		t.Error("it was cordoned all the same")
	}
	many := map[string]string{}
	for i := range MarkedLabelsMax + 1 {
		many[string(rune('a'+i))] = "v"
	}
	if got := b.mark(MarkChange{Set: many}); !got.Full || len(got.Worker.Worker.Labels) != 0 {
		t.Errorf("too many labels: %+v", got)
	}
	if got := b.mark(MarkChange{Remove: slices.Collect(maps.Keys(many))}); !got.Full {
		t.Errorf("too many taken away: %+v", got)
	}
}
