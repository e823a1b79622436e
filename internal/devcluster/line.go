package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"
)

// LineState is what a line does with what is sent over it.
type LineState string

// The states of a line.
const (
	// LineOpen delivers after the delay.
	LineOpen LineState = "open"
	// LineCut delivers nothing, and nobody is told: a black hole. What was sent arrives when the line is open again, as TCP would repeat
	// it. (The kernel of this machine still accepts connections; they hear nothing.)
	LineCut LineState = "cut"
	// LineClosed closes connections, and every new one at once, as a firewall that refuses.
	LineClosed LineState = "closed"
)

// LineConnsMax is the most connections over one line at once. More are closed at once.
const LineConnsMax = 1024

// Line is a TCP proxy that stands for a long way to one address: every byte takes half of a round trip, and a new connection a whole
// one. Order and bandwidth are kept. It is for tests and for trying things on one machine, and reached from this machine only.
type Line struct {
	listener net.Listener
	ends     LineEnds
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	delay   time.Duration // a round trip
	state   LineState
	changed chan struct{} // closed, and replaced, with every change of the state
	conns   map[net.Conn]bool
}

// LineEnds say where a line begins and ends.
type LineEnds struct {
	// Network and Target are where it ends, see net.Dial.
	Network string
	Target  string
	// Socket is the path of a unix socket where it begins, so that only those reach it who may enter its folder. What is there is
	// replaced. Default a free port of the loopback interface.
	Socket string
}

func (e LineEnds) listen() (net.Listener, error) {
	if e.Socket == "" {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	if err := os.Remove(e.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", e.Socket)
}

// NewLine listens, with a round trip of 0 or more.
func NewLine(ends LineEnds, roundTrip time.Duration) (*Line, error) {
	l, err := ends.listen()
	if err != nil {
		return nil, fmt.Errorf("a line to %s: %w", ends.Target, err)
	}
	line := newLine(roundTrip)
	line.listener, line.ends = l, ends
	line.running.Go(line.accept)
	return line, nil
}

// newLine is a line without its ends.
func newLine(roundTrip time.Duration) *Line {
	l := &Line{state: LineOpen, delay: roundTrip, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Addr is where it listens: HOST:PORT, or the path of its socket.
func (l *Line) Addr() string { return l.listener.Addr().String() }

// SetRoundTrip changes the delay of what is sent from now on.
func (l *Line) SetRoundTrip(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// SetState opens, cuts or closes the line.
func (l *Line) SetState(s LineState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == s {
		return
	}
	l.state = s
	close(l.changed)
	l.changed = make(chan struct{})
	if s == LineClosed {
		l.closeConns()
	}
}

// State is what it does now.
func (l *Line) State() LineState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// RoundTrip is its delay now.
func (l *Line) RoundTrip() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// Close ends the line and its connections, and waits for them.
func (l *Line) Close() {
	l.cancel()
	_ = l.listener.Close() // nobody else closes it
	l.mu.Lock()
	l.closeConns()
	l.mu.Unlock()
	l.running.Wait()
}

func (l *Line) closeConns() {
	for c := range l.conns {
		_ = c.Close() // it may have ended by itself
	}
}

func (l *Line) oneWay() time.Duration { return l.RoundTrip() / 2 }

func (l *Line) now() (state LineState, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

var errLineClosed = errors.New("the line is closed")

// arrives returns when something arrives that is due at a time: not while the line is cut, and never when it is closed.
func (l *Line) arrives(due time.Time) error {
	if err := l.until(due); err != nil {
		return err
	}
	for {
		state, changed := l.now()
		switch state {
		case LineOpen:
			return nil
		case LineClosed:
			return errLineClosed
		case LineCut:
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
}

// until waits for a moment.
func (l *Line) until(t time.Time) error {
	left := time.Until(t)
	if left <= 0 {
		return l.ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

func (l *Line) accept() {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors left, for instance: whoever waits waits longer
			if l.until(time.Now().Add(acceptPause)) != nil {
				return
			}
			continue
		}
		if !l.keep(conn) {
			_ = conn.Close() // refused
			continue
		}
		l.running.Go(func() {
			defer l.forget(conn)
			l.carry(conn)
		})
	}
}

const acceptPause = 50 * time.Millisecond

// keep remembers a connection as long as it lasts, unless there is no room for it.
func (l *Line) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || l.state == LineClosed || len(l.conns) >= 2*LineConnsMax { // each has two ends
		return false
	}
	l.conns[c] = true
	return true
}

func (l *Line) forget(c net.Conn) {
	_ = c.Close() // mostly it is closed already
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// carry connects to the target as one does over a long way, and moves both directions until they end.
func (l *Line) carry(near net.Conn) {
	ready := time.Now().Add(l.RoundTrip())
	if l.arrives(time.Now().Add(l.oneWay())) != nil {
		return
	}
	far, err := (&net.Dialer{}).DialContext(l.ctx, l.ends.Network, l.ends.Target)
	if err != nil {
		return // closed without a word, as by a host whose port is closed
	}
	if !l.keep(far) {
		_ = far.Close()
		return
	}
	defer l.forget(far)
	var both sync.WaitGroup
	both.Go(newCarrier(l, near, far, ready).run)
	both.Go(newCarrier(l, far, near, ready.Add(-l.oneWay())).run)
	both.Wait()
}
