package schedulertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// fate is what happens to one execution of a statement.
type fate struct {
	lands   time.Duration // after how long the store executes it
	returns time.Duration // after how long more the answer is there
	never   bool          // it gets lost before the store executes it
	deaf    bool          // its answer gets lost: the outcome is unknown
	partly  bool          // the store executes the first rows only, and says that it failed
	err     error         // what is said when it does not execute
}

var (
	errSimLost   = fmt.Errorf("connection lost: %w", scheduler.ErrUnavailable)
	errSimLate   = fmt.Errorf("no answer in time: %w", scheduler.ErrUnavailable)
	errSimLocked = fmt.Errorf("somebody's open transaction: %w", scheduler.ErrLocked)
)

// drawFate decides what will happen to a statement.
func (s *sim) drawFate() fate {
	f := fate{lands: s.between(200*time.Microsecond, 4*time.Millisecond), returns: s.between(200*time.Microsecond, 2*time.Millisecond), err: errSimLost}
	if s.healed || s.faults&StatementFaults == 0 || !s.chance(s.unlucky) {
		return f
	}
	switch s.rand.IntN(6) {
	case 0:
		f.never = true
	case 1:
		f.deaf = true
	case 2: // lands late, perhaps after it was given up and executed again
		f.lands = s.between(100*time.Millisecond, 20*time.Second)
	case 3: // its answer comes late
		f.returns = s.between(100*time.Millisecond, 6*time.Second)
	case 4:
		f.never, f.err = true, errSimLocked
	case 5:
		f.partly = true
	}
	return f
}

// stall decides that a write waits in the store for long, and that its instance stands still meanwhile: when it lands, others
// have gone on.
func (s *sim) stall(request any) bool {
	const both = StatementFaults | Pauses
	if s.healed || s.faults&both != both {
		return false
	}
	switch r := request.(type) {
	case scheduler.AttachBatch:
		return s.chance(0.08)
	case scheduler.EndBatch:
		if slices.ContainsFunc(r.Endings, func(e scheduler.Ending) bool { return !e.Session.IsZero() }) {
			return s.chance(0.2)
		}
		return s.chance(0.01)
	case scheduler.Insert, scheduler.ClaimBatch:
		return s.chance(0.01)
	case scheduler.InsertLinked, scheduler.CloseEdges, scheduler.ReleaseBatch, scheduler.RestBatch:
		return s.chance(0.1)
	default:
		return false
	}
}

// execute runs a statement of an instance as a shell would: the answer comes within the statement's limit, or an error does,
// and then the store may execute it yet.
func (in *instance) execute(run engine.Run) {
	s, life := in.s, in.life
	s.statements++
	limit := s.timing.Statement
	switch run.Request.(type) {
	case engine.OpenSession, engine.RenewSession, engine.EndSession:
		limit = s.timing.RenewalCall
	}
	f, answered := s.drawFate(), false
	if s.stall(run.Request) {
		f = fate{lands: s.between(7*time.Second, 20*time.Second), returns: f.returns}
		in.pause(s.between(8*time.Second, 20*time.Second))
	}
	number := s.statements
	answer := func(got any, err error) {
		if answered || in.life != life {
			return
		}
		answered = true
		if err != nil {
			s.tracef("%s statement %d: %v", in.name, number, err)
		}
		in.post(engine.StatementDone{ID: run.ID, Answer: got, Err: err})
	}
	s.after(limit, func() { answer(nil, errSimLate) })
	s.after(f.lands, func() {
		if f.never || s.now < s.outage || s.now < in.cut {
			if s.chance(0.7) {
				s.after(f.returns, func() { answer(nil, f.err) })
			}
			return
		}
		got, err := s.land(in, number, run.Request, f.partly)
		s.after(f.returns, func() {
			switch {
			case f.deaf || s.now < s.outage:
				answer(nil, errSimLost)
			case s.now < in.cut: // nothing is heard
			default:
				answer(got, err)
			}
		})
	})
}

// land executes a statement on the store.
func (s *sim) land(in *instance, number int, request any, partly bool) (any, error) {
	if partly {
		request = firstRows(request, s.rand.IntN(4))
	}
	s.running = request
	if s.trace != nil && writes(request) {
		s.tracef("%s statement %d: %s", in.name, number, requestText(request))
	}
	got, err := engine.Execute(context.Background(), s.store, request)
	s.running = nil
	if partly {
		return nil, errSimLost
	}
	return got, err
}

// firstRows cuts a batch: a store may execute it in parts, and fail between them.
func firstRows(request any, n int) any {
	switch r := request.(type) {
	case scheduler.Insert:
		r.Tasks = r.Tasks[:min(len(r.Tasks), n)]
		return r
	case scheduler.EndBatch:
		r.Endings = r.Endings[:min(len(r.Endings), n)]
		return r
	case scheduler.ReleaseBatch:
		r.IDs = r.IDs[:min(len(r.IDs), n)]
		return r
	default:
		return request
	}
}

func writes(request any) bool {
	switch request.(type) {
	case scheduler.DiscoverQuery, scheduler.RefillQuery, scheduler.TimedQuery, scheduler.RunningQuery, scheduler.OrphanQuery,
		engine.RenewSession, engine.Payloads:
		return false
	default:
		return true
	}
}

// requestText names the rows that a write is about.
func requestText(request any) string {
	var rows []string
	add := func(id scheduler.ID, format string, args ...any) {
		rows = append(rows, short(id)+fmt.Sprintf(format, args...))
	}
	switch r := request.(type) {
	case scheduler.Insert:
		for _, t := range r.Tasks {
			add(t.ID, " %s key=%q", t.State, t.IdempotencyKey)
		}
	case scheduler.ClaimBatch:
		for _, c := range r.Claims {
			add(c.ID, " seen %d for %s", c.Seen, short(c.Worker))
		}
	case scheduler.EndBatch:
		for _, e := range r.Endings {
			why := scheduler.Reason("")
			if e.Failure != nil {
				why = e.Failure.Reason
			}
			add(e.ID, "/%d at %s: %s %s session=%s", e.Attempt, short(e.Worker), e.To, why, short(e.Session))
		}
	case scheduler.AttachBatch:
		for _, t := range r.Tokens {
			add(t.ID, "/%d at %s for %s", t.Attempt, short(t.Worker), short(r.Session))
		}
	case scheduler.CancelBatch:
		for _, id := range r.IDs {
			add(id, "")
		}
	default:
		if !linkedRows(request, add) {
			return fmt.Sprintf("%T %v", request, request)
		}
	}
	return fmt.Sprintf("%T %v", request, rows)
}

// short names an identity by its last bytes.
func short[T ~[16]byte](id T) string { return fmt.Sprintf("%x", id[12:]) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// isUnknown tells whether an answer to a submitter leaves open what stands.
func isUnknown(err error) bool { return errors.Is(err, engine.ErrOutcomeUnknown) }
