package errand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// goodbye is the end of a connection to a scheduler that stops. It names no fault.
type goodbye struct{ after time.Duration }

func (goodbye) Error() string { return "the scheduler stops" }

var errSilent = errors.New("the scheduler does not answer")

const (
	registerLimit = 5 * time.Second // for a scheduler to answer a register
	// What a scheduler means that does not say it.
	leaseDefault     = 10 * time.Second
	heartbeatDefault = 3 * time.Second
)

type workStream = connect.BidiStreamForClientSimple[errandv1.WorkRequest, errandv1.WorkResponse]

// line is one connection to a scheduler.
type line struct {
	*Worker
	stream   *workStream
	cancel   context.CancelCauseFunc
	watch    watchdog
	parts    sync.WaitGroup
	speaking sync.Mutex // one message at a time
	over     bool       // everything was said
	begun    bool       // it was answered: words go to and fro
}

// connection serves one stream until it ends, and says why it ended.
func (w *Worker) connection(ctx context.Context, service errandv1connect.WorkerServiceClient) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := service.Work(ctx)
	if err != nil {
		return err
	}
	// The transport notices a canceled context only once the request's body has ended: without this, a scheduler that has fallen
	// silent would be waited for until the connection breaks by itself.
	defer context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })()
	l := &line{Worker: w, stream: stream, cancel: cancel, watch: watchdog{limit: registerLimit}}
	l.watch.heard()
	l.parts.Go(func() { cancel(l.watch.run(ctx)) })

	w.box.restart()
	err = stream.Send(&errandv1.WorkRequest{Register: w.registration()})
	if err == nil || errors.Is(err, io.EOF) { // when the stream has ended, the reason is there to be heard
		err = l.listen(ctx)
	}
	var bye goodbye
	if errors.As(err, &bye) {
		timer := time.AfterFunc(goodbyeLimit, func() { cancel(err) })
		l.leave()
		timer.Stop()
	} else if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	cancel(err)
	l.parts.Wait()
	_ = stream.CloseRequest()  // it has ended in any case
	_ = stream.CloseResponse() // the same
	return err
}

// registration names what the worker serves and holds.
func (w *Worker) registration() *errandv1.Register {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.described()
}

// described is the same, with w.mu held.
func (w *Worker) described() *errandv1.Register {
	r := &errandv1.Register{
		Protocol: protocolVersion, WorkerInstance: w.id[:], Name: w.name, Version: sdkVersion, Zone: w.cfg.Zone, Labels: w.labels,
		Capacity: w.capacity.message(), Marks: w.marks,
	}
	for _, name := range w.order {
		r.Kinds = append(r.Kinds, &errandv1.KindSlots{Kind: name, Slots: int32(w.kinds[name].slots)})
	}
	hold := func(id attemptID) {
		if len(r.Holds) < holdsMax { // an end that is not named here is told all the same
			r.Holds = append(r.Holds, id.token())
		}
	}
	for id, a := range w.attempts {
		if !a.lost {
			hold(id)
		}
	}
	for _, id := range w.box.unacknowledged() {
		hold(id)
	}
	if w.draining {
		w.box.add(func(m *errandv1.WorkRequest) { m.Drain = true })
	}
	return r
}

// speak sends what collects in the outbox. A stream that has ended is left to whoever listens: the reason is heard there.
func (l *line) speak(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.box.wake:
		}
		runtime.Gosched() // those who are about to say something too go along in the same message
		err := l.say()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.cancel(fmt.Errorf("send: %w", err))
			return
		}
	}
}

// say sends everything there is.
func (l *line) say() error {
	l.speaking.Lock()
	defer l.speaking.Unlock()
	if l.over {
		return io.EOF
	}
	for more := true; more; {
		var m *errandv1.WorkRequest
		if m, more = l.box.take(); m != nil {
			if err := l.stream.Send(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastWord closes the worker's side of the stream.
func (l *line) lastWord() error {
	l.speaking.Lock()
	defer l.speaking.Unlock()
	l.over = true
	return l.stream.CloseRequest()
}

// leave ends a stream in order: what was accepted or has ended is said before, so that the scheduler need not guess.
func (l *line) leave() {
	if l.say() != nil || l.lastWord() != nil {
		return
	}
	for {
		m, err := l.stream.Receive()
		if err != nil {
			return
		}
		l.hear(m)
	}
}

// listen takes what the scheduler says.
func (l *line) listen(ctx context.Context) error {
	for {
		m, err := l.stream.Receive()
		if err != nil {
			return err
		}
		l.watch.heard()
		if m.GetMarks() != nil {
			l.marked(m.GetMarks())
		}
		if r := m.GetRegistered(); r != nil && !l.begun { // later ones answer changes
			l.begun = true
			l.registered(ctx, r)
		}
		l.hear(m)
		if len(m.GetAssign()) > 0 {
			l.start(m.GetAssign())
		}
		if m.GetDrain() {
			l.log.Info("an operator drains this worker: no more work will come")
		}
		if m.GetGoodbye() {
			return goodbye{after: m.GetReconnectAfter().AsDuration()}
		}
	}
}

// registered begins to speak.
func (l *line) registered(ctx context.Context, r *errandv1.Registered) {
	l.region = r.GetRegion()
	l.log.Info("connected to a scheduler", "session", r.GetSession(), "region", r.GetRegion())
	lease, heartbeat := leaseDefault, heartbeatDefault
	if r.GetLease() != nil {
		lease = r.GetLease().AsDuration()
	}
	if r.GetHeartbeat() != nil {
		heartbeat = r.GetHeartbeat().AsDuration()
	}
	l.watch.expect(lease)
	l.box.cut(r.GetMaxMessageBytes())
	l.parts.Go(func() { l.speak(ctx) })
	l.parts.Go(func() { l.beat(ctx, heartbeat) })
}

// marked keeps what operators have laid over the worker: the next scheduler hears it from the worker only.
func (w *Worker) marked(m *errandv1.WorkerMarks) {
	w.mu.Lock()
	before := w.marks
	w.marks = m
	w.mu.Unlock()
	if m.GetCordoned() != before.GetCordoned() {
		w.log.Info("an operator has changed what this worker gets", "cordoned", m.GetCordoned())
	}
}

// hear takes answers and stops.
func (l *line) hear(m *errandv1.WorkResponse) {
	if h := m.GetHeartbeatAck(); h != nil {
		l.exclusive.extend(h.GetSentAt(), h.GetExclusiveGrant().AsDuration())
	}
	if acks := m.GetAcks(); len(acks) > 0 {
		ids := make([]attemptID, len(acks))
		for i, a := range acks {
			ids[i] = l.idOf(a.GetToken())
		}
		l.box.acknowledged(ids)
	}
	for _, s := range m.GetStops() {
		l.stop(l.idOf(s.GetToken()), s.GetCause())
	}
}

// beat sends heartbeats for one connection, the first at once.
func (w *Worker) beat(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(max(every, 100*time.Millisecond))
	defer ticker.Stop()
	for seq := uint64(1); ; seq++ {
		w.box.add(func(m *errandv1.WorkRequest) { m.Heartbeat = &errandv1.Heartbeat{Seq: seq, SentAt: w.exclusive.now()} })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// watchdog ends a connection on which nothing is heard: a network may fail without closing anything.
type watchdog struct {
	mu    sync.Mutex
	limit time.Duration
	last  time.Time
}

func (d *watchdog) heard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
}

// expect sets the longest silence: heartbeats are answered several times within a lease.
func (d *watchdog) expect(lease time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = max(lease*2/3, time.Second)
}

func (d *watchdog) run(ctx context.Context) error {
	for {
		d.mu.Lock()
		left := time.Until(d.last.Add(d.limit))
		d.mu.Unlock()
		if left <= 0 {
			return errSilent
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(left, time.Second)):
		}
	}
}

// jitter draws from the upper half, so that workers that lost the same scheduler do not come back together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
