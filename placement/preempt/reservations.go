package preempt

import (
	"bytes"
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
)

// Bounds of what is kept for preemptors.
const (
	ReservationTime = 30 * time.Second // how long room is kept; longer than victims are given to stop (10 s) and an assignment to be accepted (5 s)
	PreemptAgain    = 5 * time.Minute  // a task whose reservation lapsed makes nobody stop before this
	ReservationsMax = 256              // at once; more preemptors wait
	preemptRestsMax = 4096             // tasks remembered whose reservation lapsed; while there are more, no reservation is made
)

// Reservation is room on a worker that is kept for a preemptor until it starts there.
type Reservation struct {
	Task    [16]byte // the preemptor
	Worker  placement.WorkerID
	Kind    string
	Need    placement.Resources
	Devices uint64    // as of the choice
	Until   time.Time // it lapses then
}

// Reservations is the room kept for preemptors that have not started. It takes care that a preemption is of use: what victims free goes to
// the preemptor and nobody else, a preemptor waits for its room in one place at a time, and one that could not start in time does not
// make others stop again and again. It is not safe for concurrent use.
type Reservations struct {
	kept  map[[16]byte]Reservation
	rests map[[16]byte]time.Time // preemptors that came too late, until when they make nobody stop
}

// NewReservations returns no reservations.
func NewReservations() *Reservations {
	return &Reservations{kept: map[[16]byte]Reservation{}, rests: map[[16]byte]time.Time{}}
}

// May tells whether victims may be looked for on behalf of a task: it has no reservation, none that lapsed lately, and there is room for one.
func (r *Reservations) May(task [16]byte, now time.Time) bool {
	_, has := r.kept[task]
	return !has && !now.Before(r.rests[task]) && len(r.kept) < ReservationsMax && len(r.kept)+len(r.rests) < preemptRestsMax
}

// Keep reserves the room of a choice that found some for later ([Preempt] or [RoomComes]), and tells whether it did. If it did not, nobody
// may be made to stop.
func (r *Reservations) Keep(task [16]byte, p Preemptor, c Choice, now time.Time) bool {
	if c.Verdict != Preempt && c.Verdict != RoomComes || !r.May(task, now) {
		return false
	}
	delete(r.rests, task)
	r.kept[task] = Reservation{Task: task, Worker: c.Worker, Kind: p.Kind, Need: p.Need, Devices: c.Devices, Until: now.Add(ReservationTime)}
	return true
}

// Of returns what is kept for a task.
func (r *Reservations) Of(task [16]byte) (Reservation, bool) {
	kept, ok := r.kept[task]
	return kept, ok
}

// On lists what is kept on a worker, in the order of the tasks.
func (r *Reservations) On(worker placement.WorkerID) []Reservation {
	return r.list(func(k Reservation) bool { return k.Worker == worker })
}

// End forgets a task: it started, there or elsewhere, or needs no room any more. It returns what was kept for it.
func (r *Reservations) End(task [16]byte) (Reservation, bool) {
	kept, ok := r.kept[task]
	delete(r.kept, task)
	delete(r.rests, task)
	return kept, ok
}

// Leave ends the reservations on a worker that is gone or takes no more work, and returns them. Their tasks may look elsewhere at once.
func (r *Reservations) Leave(worker placement.WorkerID) []Reservation {
	ended := r.On(worker)
	for _, k := range ended {
		delete(r.kept, k.Task)
	}
	return ended
}

// Lapse ends the reservations whose time is over, and returns them. Their tasks wait in line as before, and make nobody stop for a while.
func (r *Reservations) Lapse(now time.Time) []Reservation {
	for task, until := range r.rests {
		if !now.Before(until) {
			delete(r.rests, task)
		}
	}
	ended := r.list(func(k Reservation) bool { return !now.Before(k.Until) })
	for _, k := range ended {
		delete(r.kept, k.Task)
		r.rests[k.Task] = now.Add(PreemptAgain)
	}
	return ended
}

func (r *Reservations) list(which func(Reservation) bool) []Reservation {
	var found []Reservation
	for _, k := range r.kept {
		if which(k) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, func(a, b Reservation) int { return bytes.Compare(a.Task[:], b.Task[:]) })
	return found
}
