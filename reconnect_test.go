package errand

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// What runs and what has ended unheard is named on every new connection, and the ends are said again until one is answered.
func TestReconnects(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		long, short := newStub(), newStub()
		w := n.works(WorkerConfig{}, map[string]Handler{"long": long.handle, "short": short.handle}, s)
		l := until(t, "the worker", s.lines)
		if len(l.register.GetHolds()) != 0 || len(l.register.GetKinds()) != 2 || len(l.register.GetWorkerInstance()) != 16 {
			t.Errorf("the first register is %v", l.register)
		}
		instance := l.register.GetWorkerInstance()
		l.assign(1, "long", "short", "short")
		until(t, "the long handler", long.started)
		short.release <- nil
		short.release <- errors.New("oops")
		l.reported(t, 2, false)
		for range 4 {
			n.cut()
			l = until(t, "the worker again", s.lines)
			if holds := numbersOf(l.register.GetHolds()); len(holds) != 3 || !holds[1] || !holds[2] || !holds[3] {
				t.Errorf("it holds %v", holds)
			}
			if string(l.register.GetWorkerInstance()) != string(instance) {
				t.Error("it comes back as somebody else")
			}
			l.reported(t, 2, false)
		}
		l.ack(&errandv1.Token{Id: taskID(2), Attempt: 1}) // one of them, without the region: it is the connection's
		synctest.Wait()
		l.end <- nil // an end without an error is an accident as well
		l = until(t, "the worker again", s.lines)
		if holds := numbersOf(l.register.GetHolds()); len(holds) != 2 || !holds[1] || !holds[3] {
			t.Errorf("it holds %v", holds)
		}
		if ends := l.reported(t, 1, true); ends[3] == nil {
			t.Errorf("said again: %v", ends)
		}
		l.assign(1, "long") // one that runs
		until(t, "the word that it runs", l.accepted)
		never(t, "a second start", long.started)
		long.release <- nil
		l.reported(t, 1, false)
		l.assign(1, "long") // one that has ended
		never(t, "a second start", long.started)
		l.ack(&errandv1.Token{Id: taskID(1), Attempt: 1})
		never(t, "a second end", l.finished)
		w.leaves(l)
	})
}

// An attempt that was lost is not named, and its end is not told.
func TestALostAttemptIsNotNamed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		deaf, started := make(chan struct{}), make(chan struct{}, 1)
		w := n.works(WorkerConfig{}, map[string]Handler{"deaf": func(context.Context, *Attempt) (Result, error) {
			started <- struct{}{}
			<-deaf
			return Result{}, nil
		}}, s)
		l := until(t, "the worker", s.lines)
		l.assign(1, "deaf")
		until(t, "the handler", started)
		l.stop(errandv1.StopCause_STOP_CAUSE_LOST, &errandv1.Token{Id: taskID(1), Attempt: 1})
		synctest.Wait()
		n.cut()
		l = until(t, "the worker again", s.lines)
		if len(l.register.GetHolds()) != 0 {
			t.Errorf("it holds %v", l.register.GetHolds())
		}
		close(deaf)
		never(t, "its end", l.finished)
		w.leaves(l)
	})
}

// A task belongs to the region of the scheduler that gave it out, also on a connection to another region's.
func TestTokensNameTheirRegion(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		eu, us := n.scheduler("eu"), n.scheduler("us", func(s *scripted) { s.region = "us" })
		h := newStub()
		w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle}, eu, us)
		l := until(t, "the worker", eu.lines)
		l.assign(1, "k")
		until(t, "the handler", h.started)
		n.cut()
		l = until(t, "the worker elsewhere", us.lines)
		holds := l.register.GetHolds()
		if len(holds) != 1 || holds[0].GetRegion() != "eu" {
			t.Errorf("it holds %v", holds)
		}
		l.stop(errandv1.StopCause_STOP_CAUSE_LOST, &errandv1.Token{Id: taskID(1), Attempt: 1}) // another task: us has one of this id
		never(t, "a stop of the wrong task", h.causes)
		h.release <- nil
		f := until(t, "the end", l.finished)
		if f.GetToken().GetRegion() != "eu" {
			t.Errorf("the end is of %v", f.GetToken())
		}
		l.ack(f.GetToken())
		w.leaves(l)
	})
}

// B07: a scheduler that falls silent without closing anything is left, wherever that happens.
func TestSilence(t *testing.T) {
	t.Run("after a while", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, n *network) {
			s := n.scheduler("eu")
			h := newStub()
			w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle}, s)
			l := until(t, "the worker", s.lines)
			l.assign(1, "k")
			until(t, "the handler", h.started)
			for range 100 { // as long as heartbeats are answered it stays
				until(t, "a heartbeat", l.beats)
			}
			synctest.Wait()
			n.swallow()
			began := time.Now()
			l = until(t, "the worker again", s.lines)
			if gone := time.Since(began); gone > s.lease*3/4 {
				t.Errorf("it came back after %v of a lease of %v", gone, s.lease)
			}
			if holds := numbersOf(l.register.GetHolds()); !holds[1] {
				t.Errorf("it holds %v", holds)
			}
			never(t, "a stop", h.causes)
			h.release <- nil
			l.reported(t, 1, true)
			w.leaves(l)
		})
	})
	t.Run("at the register", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, n *network) {
			mute := n.scheduler("mute", func(s *scripted) { s.mute = true })
			s := n.scheduler("eu")
			began := time.Now()
			w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, mute, s)
			l := until(t, "the worker elsewhere", s.lines)
			if took := time.Since(began); took > registerLimit+time.Second {
				t.Errorf("after %v", took)
			}
			w.leaves(l)
		})
	})
	t.Run("at the dial", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, n *network) {
			gone := n.scheduler("gone")
			n.host("gone:80").hangs.Store(true)
			s := n.scheduler("eu")
			began := time.Now()
			w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, gone, s)
			l := until(t, "the worker elsewhere", s.lines)
			if took := time.Since(began); took > connectLimit+time.Second {
				t.Errorf("after %v", took)
			}
			w.leaves(l)
		})
	})
}

// A scheduler that stops is told everything and left for the next one at once; handlers notice nothing.
func TestGoodbye(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		first, second := n.scheduler("first"), n.scheduler("second")
		long, short := newStub(), newStub()
		w := n.works(WorkerConfig{}, map[string]Handler{"long": long.handle, "short": short.handle}, first, second)
		l := until(t, "the worker", first.lines)
		l.assign(1, "long", "short", "long")
		until(t, "a handler", long.started)
		until(t, "a handler", long.started)
		short.release <- nil
		synctest.Wait()
		began := time.Now()
		l.say(&errandv1.WorkResponse{Goodbye: true})
		until(t, "everything", tell(l.said))
		if n := len(l.accepted); (n != 2 && n != 3) || len(l.finished) != 1 { // an end says that there was a start
			t.Errorf("before it left it said %d starts and %d ends", len(l.accepted), len(l.finished))
		}
		f := until(t, "the end", l.finished)
		l.ack(f.GetToken())
		l.stop(errandv1.StopCause_STOP_CAUSE_CANCELED, &errandv1.Token{Id: taskID(3), Attempt: 1}) // said late is said as well
		if cause := until(t, "the stop", long.causes); !errors.Is(cause, ErrCanceled) {
			t.Errorf("the cause is %v", cause)
		}
		l.end <- nil
		l = until(t, "the worker at the next one", second.lines)
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		if holds := numbersOf(l.register.GetHolds()); len(holds) != 2 || !holds[1] || !holds[3] {
			t.Errorf("it holds %v", holds)
		}
		never(t, "another stop", long.causes)
		long.release <- nil
		l.reported(t, 2, true)
		w.leaves(l)
	})
}

func tell(closed <-chan struct{}) <-chan bool {
	c := make(chan bool, 1)
	go func() {
		<-closed
		c <- true
	}()
	return c
}

// One that says goodbye and does not let go is left all the same.
func TestGoodbyeOfAStubbornScheduler(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		first, second := n.scheduler("first"), n.scheduler("second")
		w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, first, second)
		l := until(t, "the worker", first.lines)
		began := time.Now()
		l.say(&errandv1.WorkResponse{Goodbye: true})
		l = until(t, "the worker at the next one", second.lines)
		if took := time.Since(began); took > goodbyeLimit {
			t.Errorf("it took %v", took)
		}
		w.leaves(l)
	})
}

// B52: schedulers that take workers in and send them off again are not stormed.
func TestNoStorm(t *testing.T) {
	for name, send := range map[string]func(*session){
		"goodbye": func(l *session) { l.say(&errandv1.WorkResponse{Goodbye: true}); l.end <- nil },
		"dropped": func(l *session) { l.end <- problem(connect.CodeUnavailable, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, n *network) {
				first, second := n.scheduler("first"), n.scheduler("second")
				w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, first, second)
				minute := time.After(time.Minute)
				came := 0
				for open := true; open; {
					select {
					case l := <-first.lines:
						came++
						send(l)
					case l := <-second.lines:
						came++
						send(l)
					case <-minute:
						open = false
					}
				}
				if came < 20 || came > 80 { // a pause of 1 to 2 s at the end
					t.Errorf("it came %d times within a minute", came)
				}
				w.quit()
				if err := until(t, "the end of Run", w.ran); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Much to say is said in messages that the scheduler takes.
func TestMessagesAreCut(t *testing.T) {
	for name, tt := range map[string]struct {
		maxBytes int64
		result   int
		most     int // ends in one message
	}{
		"many small ones":   {0, 0, messageWordsMax},
		"large ones":        {0, resultMax, messageBytesMax / resultMax},
		"a small scheduler": {1 << 20, 100 << 10, 5},
		"a tiny scheduler":  {1, 100, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, n *network) {
				s := n.scheduler("eu", func(s *scripted) { s.maxBytes = tt.maxBytes })
				release := make(chan struct{})
				const tasks = 1500
				started := make(chan struct{}, tasks)
				w := n.works(WorkerConfig{}, map[string]Handler{"k": func(context.Context, *Attempt) (Result, error) {
					started <- struct{}{}
					<-release
					return Result{Data: make([]byte, tt.result)}, nil
				}}, s)
				l := until(t, "the worker", s.lines)
				count := tasks
				if tt.result > 0 {
					count = 40
				}
				l.assign(0, slices.Repeat([]string{"k"}, count)...)
				for range count {
					until(t, "a start", started)
				}
				synctest.Wait()
				n.cut() // so that all is said at once
				until(t, "the worker again", s.lines)
				synctest.Wait()
				n.host("eu:80").hangs.Store(true)
				n.cut()
				close(release)
				synctest.Wait()
				n.host("eu:80").hangs.Store(false)
				for l = until(t, "the worker again", s.lines); len(s.lines) > 0; {
					l = <-s.lines
				}
				got := l.reported(t, count, true)
				if len(got) != count {
					t.Errorf("%d ends of %d", len(got), count)
				}
				synctest.Wait()
				for len(l.sizes) > 0 {
					if k := <-l.sizes; k > tt.most {
						t.Errorf("%d ends in one message, at most %d fit", k, tt.most)
					}
				}
				w.leaves(l)
			})
		})
	}
}

// The outbox has a bound for every part, and loses nothing on the way.
func TestOutbox(t *testing.T) {
	b := newOutbox()
	if m, more := b.take(); m != nil || more {
		t.Errorf("nothing to say became %v, %v", m, more)
	}
	id := func(i int) attemptID { return attemptID{region: "eu", id: [16]byte(taskID(i)), number: 1} }
	const count = 2*messageWordsMax + 1
	for i := range count {
		b.end(id(i), handedBack(id(i), reasonDrained))
		b.accept([]started{{id(i), id(i).token()}})
	}
	b.add(func(m *errandv1.WorkRequest) { m.Heartbeat = &errandv1.Heartbeat{Seq: 1} })
	b.acknowledged([]attemptID{id(0)}) // before it was sent
	b.restart()
	ended, accepted := 0, 0
	for more := true; more; {
		var m *errandv1.WorkRequest
		m, more = b.take()
		if m.GetHeartbeat() != nil {
			t.Error("a heartbeat of an earlier connection")
		}
		if len(m.GetFinished()) > messageWordsMax || len(m.GetAccepted()) > messageWordsMax || proto.Size(m) > 2*messageBytesMax {
			t.Errorf("a message of %d ends, %d starts", len(m.GetFinished()), len(m.GetAccepted()))
		}
		ended, accepted = ended+len(m.GetFinished()), accepted+len(m.GetAccepted())
	}
	if ended != count-1 || accepted != 0 || len(b.unacknowledged()) != count-1 {
		t.Errorf("%d ends, %d starts; want %d and none: the register names those", ended, accepted, count-1)
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		b.flushed(t.Context(), nil)
	}()
	for i := range count {
		b.acknowledged([]attemptID{id(i)})
	}
	<-flushed
}
