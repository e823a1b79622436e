package errand

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

func described(l *session) (labels map[string]string, capacity Capacity, slots int) {
	r := l.register
	c := r.GetCapacity()
	return r.GetLabels(), Capacity{int(c.GetCpuMilli()), int(c.GetMemoryMib()), int(c.GetGpus()), int(c.GetSlots())}, int(r.GetKinds()[0].GetSlots())
}

// A worker says what it is, says the whole again when that changes, and what it runs is named in it. Changes at once are one message, and
// a second answer to register does not start a second voice.
func TestAWorkerSaysWhatHasChanged(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s, h := n.scheduler("eu"), newStub()
		cfg := WorkerConfig{Labels: map[string]string{"disk": "ssd"}, Zone: "eu-a", Capacity: &Capacity{4000, 1024, 0, 16}}
		w := n.works(cfg, map[string]Handler{"k": h.handle}, s)
		l := until(t, "the worker", s.lines)
		labels, capacity, _ := described(l)
		if !maps.Equal(labels, cfg.Labels) || capacity != *cfg.Capacity || l.register.GetZone() != "eu-a" || l.register.GetMarks() != nil {
			t.Errorf("it registered as %v", l.register)
		}
		l.assign(1, "k", "k")
		until(t, "the handler", h.started)
		until(t, "the handler", h.started)
		synctest.Wait()

		if err := errors.Join(w.SetSlots("k", 1), w.SetCapacity(Capacity{CPUMilli: 500}), w.SetLabels(nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var last *errandv1.Register
		for len(l.changes) > 0 {
			last = <-l.changes
		}
		l.register = last
		labels, capacity, slots := described(l)
		if len(labels) != 0 || capacity != (Capacity{CPUMilli: 500}) || slots != 1 || len(last.GetHolds()) != 2 {
			t.Errorf("the change says %v", last)
		}
		before := len(l.beats)
		l.say(&errandv1.WorkResponse{Registered: &errandv1.Registered{Region: "eu"}})
		<-time.After(s.lease)
		synctest.Wait()
		if beats := len(l.beats) - before; beats < 3 || beats > 5 {
			t.Errorf("%d heartbeats within a lease", beats)
		}
		never(t, "the end of a handler", h.causes)

		for name, err := range map[string]error{
			"no slots": w.SetSlots("k", 0), "no such kind": w.SetSlots("other", 1), "bad capacity": w.SetCapacity(Capacity{GPUs: -1}),
			"bad label": w.SetLabels(map[string]string{"": ""}),
		} {
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%s: %v", name, err)
			}
		}
		h.release <- nil
		h.release <- nil
		l.reported(t, 2, true)
		w.leaves(l)
	})
}

// What operators have laid over a worker lives as long as its process: the next scheduler hears it from the worker.
func TestAWorkerCarriesItsMarks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		first, second := n.scheduler("eu"), n.scheduler("eu2")
		w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, first, second)
		l := until(t, "the worker", first.lines)
		marks := &errandv1.WorkerMarks{Revision: 3, Cordoned: true, Labels: map[string]string{"canary": "yes"}, Removed: []string{"disk"}}
		l.say(&errandv1.WorkResponse{Marks: marks})
		synctest.Wait()
		l.end <- errors.New("the scheduler dies")
		l = until(t, "the worker, at the other scheduler", second.lines)
		if !proto.Equal(l.register.GetMarks(), marks) {
			t.Errorf("it registered with %v", l.register.GetMarks())
		}
		w.leaves(l)
	})
}
