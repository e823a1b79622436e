package errand

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// B45: what ends by itself within the grace is reported as it ended; only what is interrupted goes back.
func TestADrainReportsEveryEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		after := func(d time.Duration, end func() (Result, error)) Handler {
			return func(ctx context.Context, _ *Attempt) (Result, error) {
				select {
				case <-time.After(d):
					return end()
				case <-ctx.Done():
					if !errors.Is(context.Cause(ctx), ErrDraining) {
						t.Errorf("the cause is %v", context.Cause(ctx))
					}
					return Result{}, ctx.Err()
				}
			}
		}
		w := n.works(WorkerConfig{DrainGrace: 10 * time.Second}, map[string]Handler{
			"succeeds": after(2*time.Second, func() (Result, error) { return Result{Data: []byte("ok")}, nil }),
			"fails":    after(2*time.Second, func() (Result, error) { return Result{}, errors.New("by itself") }),
			"panics":   after(2*time.Second, func() (Result, error) { panic("by itself") }),
			"runs-on":  after(time.Hour, func() (Result, error) { return Result{}, nil }),
		}, s)
		l := until(t, "the worker", s.lines)
		l.assign(0, "succeeds", "fails", "panics", "runs-on")
		synctest.Wait()
		began := time.Now()
		w.quit()
		until(t, "the word that it drains", l.drained)
		got := l.reported(t, 3, true)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the ends came after %v", took)
		}
		for number, want := range []string{"succeeded ok", "failed: by itself", "failed panic: panic: by itself"} {
			if ending(got[number]) != want {
				t.Errorf("%s, want %s", ending(got[number]), want)
			}
		}
		l.assign(4, "succeeds") // it takes no more
		if got := ending(l.reported(t, 1, true)[4]); got != "handed back: refused" {
			t.Error(got)
		}
		never(t, "a goodbye before the last end", l.bye)
		if got := ending(l.reported(t, 1, true)[3]); got != "handed back: drained" {
			t.Error(got)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it was interrupted after %v", took)
		}
		l.farewell(t)
		if err := until(t, "the end of Run", w.ran); err != nil {
			t.Error(err)
		}
	})
}

// B46: the lease is kept alive until the last end is told, and a second signal ends the grace at once.
func TestHeartbeatsGoOnInADrain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu", func(s *scripted) { s.lease = 5 * time.Second })
		h := newStub()
		w := n.works(WorkerConfig{DrainGrace: time.Minute}, map[string]Handler{"k": h.handle}, s)
		l := until(t, "the worker", s.lines)
		l.assign(1, "k", "k")
		until(t, "the handler", h.started)
		until(t, "the handler", h.started)
		w.quit()
		for last, began := time.Now(), time.Now(); time.Since(began) < 30*time.Second; {
			beat := until(t, "a heartbeat", l.beats)
			if beat.Sub(last) > s.lease/3 {
				t.Errorf("%v without a heartbeat", beat.Sub(last))
			}
			last = beat
		}
		h.release <- nil
		for _, f := range l.reported(t, 1, true) {
			if ending(f) != "succeeded" {
				t.Error(ending(f))
			}
		}
		began := time.Now()
		w.HandBack()
		w.HandBack() // a third signal changes nothing
		f := until(t, "the hand-back", l.finished)
		if ending(f) != "handed back: drained" || time.Since(began) != 0 {
			t.Errorf("%s after %v", ending(f), time.Since(began))
		}
		for range 3 { // it is not acknowledged yet
			until(t, "a heartbeat", l.beats)
		}
		never(t, "a goodbye before the last end is acknowledged", l.bye)
		l.ack(f.GetToken())
		l.farewell(t)
		if err := until(t, "the end of Run", w.ran); err != nil {
			t.Error(err)
		}
	})
}

// A drain goes on over a change of schedulers.
func TestADrainSurvivesACut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		h := newStub()
		w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle}, s)
		l := until(t, "the worker", s.lines)
		l.assign(1, "k")
		until(t, "the handler", h.started)
		w.quit()
		until(t, "the word that it drains", l.drained)
		n.cut()
		l = until(t, "the worker again", s.lines)
		until(t, "the word that it drains, again", l.drained)
		h.release <- nil
		until(t, "the end", l.finished)
		n.cut() // before it is acknowledged
		l = until(t, "the worker again", s.lines)
		l.reported(t, 1, true)
		l.farewell(t)
		if err := until(t, "the end of Run", w.ran); err != nil {
			t.Error(err)
		}
	})
}

// Handlers that do not obey: their attempts go back and nothing that they say later counts; exclusive ones stay until their lease
// is over, since nobody may start them meanwhile.
func TestHandlersThatDoNotReturn(t *testing.T) {
	for name, exclusive := range map[string]bool{"plain": false, "exclusive": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, n *network) {
				s := n.scheduler("eu", func(s *scripted) { s.grant = time.Hour })
				deaf, started := make(chan struct{}), make(chan struct{}, 2)
				w := n.works(WorkerConfig{DrainGrace: time.Second, StopGrace: time.Second}, map[string]Handler{"deaf": func(context.Context, *Attempt) (Result, error) {
					started <- struct{}{}
					<-deaf
					return Result{}, nil
				}}, s)
				defer close(deaf)
				l := until(t, "the worker", s.lines)
				until(t, "a heartbeat", l.beats)
				synctest.Wait()
				a := assignment(1, "deaf")
				a.Exclusive = exclusive
				l.say(&errandv1.WorkResponse{Assign: []*errandv1.Assignment{a}})
				until(t, "the handler", started)
				began := time.Now()
				w.quit()
				if !exclusive {
					f := until(t, "the hand-back", l.finished)
					if ending(f) != "handed back: drained" || time.Since(began) != 2*time.Second {
						t.Errorf("%s after %v", ending(f), time.Since(began))
					}
					n.cut()
					l = until(t, "the worker again", s.lines)
					if holds := numbersOf(l.register.GetHolds()); !holds[1] {
						t.Errorf("it holds %v", holds)
					}
					l.reported(t, 1, true)
					l.farewell(t)
				}
				if err := until(t, "the end of Run", w.ran); err != nil {
					t.Error(err)
				}
				if exclusive {
					never(t, "a goodbye", l.bye)
					never(t, "an end", l.finished)
				}
			})
		})
	}
}

// Nobody is there: the worker ends all the same, within its limits.
func TestADrainWithoutAScheduler(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		h := newStub()
		w := n.works(WorkerConfig{DrainGrace: 10 * time.Second}, map[string]Handler{"k": h.handle}, s)
		l := until(t, "the worker", s.lines)
		l.assign(1, "k")
		until(t, "the handler", h.started)
		n.host("eu:80").hangs.Store(true)
		n.cut()
		began := time.Now()
		w.quit()
		if err := until(t, "the end of Run", w.ran); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second+farewell+goodbyeLimit {
			t.Errorf("it took %v", took)
		}
	})
}
