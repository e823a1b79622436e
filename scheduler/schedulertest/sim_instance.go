package schedulertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// simRegions are the regions of a history, by number. Some have only the first of them.
var simRegions = [...]string{"eu", "us", "ap"}

// region is where an instance is.
func (in *instance) region() string { return simRegions[in.index%in.s.regions] }

// topology has all regions equally far from each other.
func (s *sim) topology() *regions.Topology {
	t := regions.Topology{Version: 1, Primary: simRegions[0]}
	for i, name := range simRegions[:s.regions] {
		t.Regions = append(t.Regions, regions.Region{Name: name})
		for _, other := range simRegions[:i] {
			t.Distances = append(t.Distances, regions.Distance{Between: []string{other, name}, RoundTripMS: 10})
		}
	}
	return &t
}

// refOf is the reference of a task, of which the first byte of its id says where its row is.
func refOf(id scheduler.ID) scheduler.Ref {
	return scheduler.Ref{Region: simRegions[int(id.Region())%len(simRegions)], ID: id}
}

// tasks lists the rows of all regions.
func (s *sim) tasks() []scheduler.Task {
	var all []scheduler.Task
	for _, name := range simRegions[:s.regions] {
		all = append(all, s.memory.Tasks(name)...)
	}
	return all
}

// instance is a scheduler process: an engine and what its shell would do. It crashes, pauses, stops politely and comes back
// with nothing remembered.
type instance struct {
	s        *sim
	index    int
	name     string
	life     int
	engine   *engine.Engine // nil while it is down
	born     time.Duration
	inbox    []engine.Input
	turn     uint64 // names the planned turn
	turnAt   time.Duration
	planned  bool
	paused   time.Duration // until when no turn happens
	cut      time.Duration // until when the store cannot be reached
	stopping bool

	conns      map[engine.StreamID]*conn
	lastStream engine.StreamID
	asked      map[engine.Ticket]func(engine.Effect) // called once, with nil when the instance dies before it answers
	lastTicket engine.Ticket
}

func newInstance(s *sim, index int) *instance {
	return &instance{s: s, index: index, name: fmt.Sprintf("s%d", index)}
}

func (in *instance) start() {
	if in.engine != nil {
		return
	}
	in.life++
	in.s.tracef("%s starts, life %d", in.name, in.life)
	in.born, in.inbox, in.stopping, in.paused = in.s.now, nil, false, 0
	in.conns, in.asked = map[engine.StreamID]*conn{}, map[engine.Ticket]func(engine.Effect){}
	in.engine = engine.New(engine.Config{
		Region: in.region(), Regions: simRegions[:in.s.regions], Topology: in.s.topology(), Address: in.name, Timing: in.s.timing, Observe: simObserver{in},
		Rand: rand.New(rand.NewPCG(in.s.rand.Uint64(), uint64(in.life))),
	})
	in.turnBy(in.s.now)
}

// local is the process's clock; it is never zero.
func (in *instance) local() time.Duration { return in.s.now - in.born + 1 }

// post brings inputs to the next turn, which comes at once, as far as a process can.
func (in *instance) post(inputs ...engine.Input) {
	if in.engine == nil {
		return
	}
	in.inbox = append(in.inbox, inputs...)
	in.turnBy(in.s.now + in.s.upTo(time.Millisecond))
}

func (in *instance) turnBy(at time.Duration) {
	at = max(at, in.paused)
	if in.planned && in.turnAt <= at {
		return
	}
	in.planned, in.turnAt = true, at
	in.turn++
	turn := in.turn
	in.s.at(at, func() {
		if in.engine != nil && in.turn == turn {
			in.planned = false
			in.takeTurn()
		}
	})
}

func (in *instance) takeTurn() {
	if in.s.now < in.paused {
		in.turnBy(in.paused)
		return
	}
	inputs := in.inbox
	in.inbox = nil
	in.s.turns++
	for _, eff := range in.engine.Turn(in.local(), inputs) {
		if _, stopped := eff.(engine.Stopped); stopped {
			in.s.tracef("%s has stopped", in.name)
			in.die(true)
			in.s.after(in.s.between(100*time.Millisecond, 3*time.Second), in.start)
			return
		}
		in.perform(eff)
	}
	in.turnBy(in.born + in.engine.NextTurn())
}

func (in *instance) perform(eff engine.Effect) {
	switch eff := eff.(type) {
	case engine.Run:
		in.execute(eff)
	case engine.Send:
		if c := in.conns[eff.Stream]; c != nil {
			c.toWorker(eff.Words)
		}
	case engine.CloseStream:
		if c := in.conns[eff.Stream]; c != nil {
			c.closeByInstance()
		}
	case engine.LinkAnswered:
		in.answer(eff.Ticket, eff)
	case engine.SubmitAnswered:
		in.answer(eff.Ticket, eff)
	case engine.CancelAnswered:
		in.answer(eff.Ticket, eff)
	case engine.LendReady:
		in.answer(eff.Ticket, eff)
	case engine.TasksEnded:
		in.s.oracle.told(in, eff.IDs)
	default:
		in.performOutside(eff)
	}
}

// performOutside speaks to the other instances. What gets lost costs time and nothing else.
func (in *instance) performOutside(eff engine.Effect) {
	switch eff := eff.(type) {
	case engine.AskPeerToLend:
		in.askToLend(eff)
	case engine.TellPeersStarved:
		for _, peer := range eff.Peers {
			in.tell(peer.Address, engine.PeerStarved{Kinds: eff.Kinds})
		}
	case engine.TellPeersUse:
		for _, peer := range eff.Peers {
			in.tell(peer.Address, engine.PeerUsed{Session: in.engine.Status().Session, Use: eff.Use})
		}
	case engine.TellPeerCancel:
		in.tell(eff.Peer.Address, engine.PeerCancel{Token: eff.Token})
	case engine.PublishHints:
		for _, other := range in.s.instances {
			in.tell(other.name, engine.Hinted(eff))
		}
	}
}

// tell brings words to another instance, most of the time.
func (in *instance) tell(address string, words engine.Input) {
	other := in.s.instanceAt(address)
	if other == nil || in.s.chance(0.1) {
		return
	}
	life := other.life
	in.s.after(in.s.latency(), func() {
		if other.life == life {
			other.post(words)
		}
	})
}

// askToLend asks a peer and gives up after the time that a shell would wait.
func (in *instance) askToLend(eff engine.AskPeerToLend) {
	const patience = 200 * time.Millisecond
	life, answered := in.life, false
	answer := func(rows []scheduler.ReadyRow) {
		if !answered && in.life == life {
			answered = true
			in.post(engine.LendAnswered{Rows: rows, Spill: eff.For != ""})
		}
	}
	in.s.after(patience, func() { answer(nil) })
	other := in.s.instanceAt(eff.Peer.Address)
	if other == nil || in.s.chance(0.05) {
		return
	}
	in.s.after(in.s.latency(), func() {
		other.ask(func(t engine.Ticket) engine.Input {
			return engine.LendAsked{Ticket: t, Room: eff.Room, Offers: eff.Offers, Limit: eff.Limit, For: eff.For}
		}, func(got engine.Effect) {
			if ready, ok := got.(engine.LendReady); ok {
				in.s.after(in.s.latency(), func() { answer(ready.Rows) })
			}
		})
	})
}

// ask puts a question of the edge and has done called with its answer, or with nil when the instance dies before.
func (in *instance) ask(question func(engine.Ticket) engine.Input, done func(engine.Effect)) engine.Ticket {
	if in.engine == nil {
		done(nil)
		return 0
	}
	in.lastTicket++
	in.asked[in.lastTicket] = done
	in.post(question(in.lastTicket))
	return in.lastTicket
}

func (in *instance) answer(t engine.Ticket, eff engine.Effect) {
	if done := in.asked[t]; done != nil {
		delete(in.asked, t)
		done(eff)
	}
}

// shutdown asks for a polite end, and kills the process when that takes too long.
func (in *instance) shutdown() {
	if in.engine == nil || in.stopping {
		return
	}
	in.s.tracef("%s is asked to stop", in.name)
	in.stopping = true
	in.post(engine.ShutdownAsked{})
	life := in.life
	in.s.after(20*time.Second, func() {
		if in.life == life && in.engine != nil {
			in.s.faults |= Crashes // it was not polite in the end
			in.crash(in.s.upTo(time.Second))
		}
	})
}

// crash ends the process at once and starts it again later.
func (in *instance) crash(down time.Duration) {
	if in.engine == nil {
		return
	}
	in.s.tracef("%s is killed, down for %v", in.name, down)
	in.die(in.s.chance(0.8))
	in.s.after(down, in.start)
}

// die forgets everything. Whoever is connected learns it when the operating system still lives to tell.
func (in *instance) die(told bool) {
	in.engine, in.inbox, in.planned = nil, nil, false
	in.turn++
	in.life++
	for _, id := range sortedKeys(in.conns) {
		in.conns[id].instanceDied(told)
	}
	asked := in.asked
	in.asked = map[engine.Ticket]func(engine.Effect){}
	for _, t := range sortedKeys(asked) {
		asked[t](nil)
	}
}

func (in *instance) pause(d time.Duration) {
	if in.engine != nil {
		in.s.tracef("%s is paused for %v", in.name, d)
		in.paused = in.s.now + d
	}
}

// busy tells whether something is still on its way here.
func (in *instance) busy() bool {
	if in.engine == nil || in.stopping {
		return true
	}
	st := in.engine.Status()
	n := st.Counts
	return !st.Trusted || st.Pending > 0 || st.Unsettled > 0 || n.Claiming+n.Sent+n.Running+n.Stopping+n.Ending > 0
}

func (s *sim) instanceAt(name string) *instance {
	i := slices.IndexFunc(s.instances, func(in *instance) bool { return in.name == name })
	if i < 0 {
		return nil
	}
	return s.instances[i]
}

// simObserver writes what a person at night wants to read into the history.
type simObserver struct{ in *instance }

func (simObserver) Batch(string, int)                                    {}
func (simObserver) Claims(int, int)                                      {}
func (simObserver) Started(scheduler.Tier, time.Duration, time.Duration) {}
func (simObserver) Ended(scheduler.Tier, scheduler.State, time.Duration) {}
func (simObserver) Submitted(string, time.Duration)                      {}
func (simObserver) StatementFailed(string, int, error)                   {}
func (o simObserver) Rows(what string, n int) {
	if n > 0 {
		o.in.s.tracef("%s: %d %s", o.in.name, n, what)
	}
}

func (o simObserver) Event(message string, args ...any) {
	o.in.s.tracef("%s: %s %v", o.in.name, message, args)
}

func (o simObserver) Note(message string, args ...any) {
	o.in.s.tracef("%s: %s %v", o.in.name, message, args)
}
