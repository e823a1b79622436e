package errand

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

var (
	errGoodbye = errors.New("the scheduler stops")
	errSilent  = errors.New("the scheduler does not answer heartbeats")
)

// registerLimit is how long a scheduler may take to answer a register.
const registerLimit = 5 * time.Second

type workStream = connect.BidiStreamForClientSimple[errandv1.WorkRequest, errandv1.WorkResponse]

// connection serves one stream until it ends, and says why it ended.
func (w *Worker) connection(ctx context.Context, service errandv1connect.WorkerServiceClient, registered func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := service.Work(ctx)
	if err != nil {
		return err
	}
	// The transport notices a canceled context only once the request's body has ended: without this, a scheduler that has fallen
	// silent would be waited for until the connection breaks by itself.
	defer context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })()
	w.box.restart()
	if err := stream.Send(&errandv1.WorkRequest{Register: w.registration()}); err != nil {
		_, err := stream.Receive() // the reason is there
		return err
	}
	watch := &watchdog{limit: registerLimit}
	watch.heard()

	var parts sync.WaitGroup
	parts.Go(func() { cancel(w.speak(ctx, stream)) })
	parts.Go(func() { cancel(watch.run(ctx)) })
	err = w.listen(stream, watch, func(r *errandv1.Registered) {
		registered()
		parts.Go(func() { w.beat(ctx, r.GetHeartbeat().AsDuration()) })
	})
	if errors.Is(err, errGoodbye) {
		timer := time.AfterFunc(goodbyeLimit, func() { cancel(err) })
		w.leave(stream)
		timer.Stop()
	} else if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	cancel(err)
	parts.Wait()
	_ = stream.CloseRequest()  // it has ended in any case
	_ = stream.CloseResponse() // the same
	return err
}

// registration names what the worker serves and holds.
func (w *Worker) registration() *errandv1.Register {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &errandv1.Register{Protocol: protocolVersion, WorkerInstance: w.id[:], Name: w.name, Version: sdkVersion}
	for _, name := range w.order {
		r.Kinds = append(r.Kinds, &errandv1.KindSlots{Kind: name, Slots: int32(w.kinds[name].slots)})
	}
	for id, a := range w.attempts {
		if !a.lost {
			r.Holds = append(r.Holds, id.token())
		}
	}
	for _, id := range w.box.unacknowledged() {
		if w.attempts[id] == nil {
			r.Holds = append(r.Holds, id.token())
		}
	}
	if w.draining {
		w.box.add(func(m *errandv1.WorkRequest) { m.Drain = true })
	}
	return r
}

// speak sends what collects in the outbox.
func (w *Worker) speak(ctx context.Context, stream *workStream) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.box.wake:
		}
		if err := w.say(stream); err != nil {
			return err
		}
	}
}

func (w *Worker) say(stream *workStream) error {
	w.speaking.Lock()
	defer w.speaking.Unlock()
	for more := true; more; {
		var m *errandv1.WorkRequest
		if m, more = w.box.take(); m != nil {
			if err := stream.Send(m); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
	}
	return nil
}

// leave ends a stream in order: what was accepted or has ended is said before, so that the scheduler need not guess.
func (w *Worker) leave(stream *workStream) {
	if w.say(stream) != nil || stream.CloseRequest() != nil {
		return
	}
	for {
		m, err := stream.Receive()
		if err != nil {
			return
		}
		w.box.acknowledged(m.GetAcks())
	}
}

// listen takes what the scheduler says.
func (w *Worker) listen(stream *workStream, watch *watchdog, registered func(*errandv1.Registered)) error {
	for {
		m, err := stream.Receive()
		if err != nil {
			return err
		}
		watch.heard()
		if r := m.GetRegistered(); r != nil {
			w.mu.Lock()
			w.region = r.GetRegion()
			w.mu.Unlock()
			registered(r)
			w.log.Info("connected to a scheduler", "session", r.GetSession(), "region", r.GetRegion())
			watch.expect(r.GetLease().AsDuration())
			w.box.signal()
		}
		if h := m.GetHeartbeatAck(); h != nil {
			w.exclusive.extend(h.GetSentAt(), h.GetExclusiveGrant().AsDuration())
		}
		w.box.acknowledged(m.GetAcks())
		for _, s := range m.GetStops() {
			w.stop(idOf(s.GetToken()), s.GetCause())
		}
		if len(m.GetAssign()) > 0 {
			w.start(m.GetAssign())
		}
		if m.GetDrain() {
			w.log.Info("an operator drains this worker: no more work will come")
		}
		if m.GetGoodbye() {
			return errGoodbye
		}
	}
}

// beat sends heartbeats for one connection, the first at once.
func (w *Worker) beat(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(max(every, 100*time.Millisecond))
	defer ticker.Stop()
	for seq := uint64(1); ; seq++ {
		w.box.add(func(m *errandv1.WorkRequest) { m.Heartbeat = &errandv1.Heartbeat{Seq: seq, SentAt: monotonic()} })
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

var processStart = time.Now()

// monotonic is this process's clock; it is only compared with itself.
func monotonic() int64 { return int64(time.Since(processStart)) }

// jitter draws from the upper half, so that workers that lost the same scheduler do not come back together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
