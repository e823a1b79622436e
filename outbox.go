package errand

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Bounds of one message to a scheduler; a scheduler may ask for less.
const (
	messageWordsMax = 1000 // of each sort
	messageBytesMax = 4 << 20
	holdsMax        = 100_000 // attempts that a register may name
)

// outbox collects what a worker has to say until its connection can carry it: while one message is on its way the next
// collects. Ends of attempts stay until the scheduler has said that they are recorded.
type outbox struct {
	mu       sync.Mutex
	next     *errandv1.WorkRequest
	ends     map[attemptID]*errandv1.Finished // not acknowledged
	answered int64                            // ends that were acknowledged
	toSend   []attemptID                      // not sent on this connection
	accepted []started
	limit    int           // most bytes of ends in one message
	wake     chan struct{} // capacity 1: there is something to say
	settled  chan struct{} // capacity 1: the last end was acknowledged
}

// started is an attempt that was accepted.
type started struct {
	id    attemptID
	token *errandv1.Token
}

func newOutbox() outbox {
	return outbox{
		ends: map[attemptID]*errandv1.Finished{}, limit: messageBytesMax, wake: make(chan struct{}, 1), settled: make(chan struct{}, 1),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add changes the next message.
func (b *outbox) add(change func(*errandv1.WorkRequest)) {
	b.mu.Lock()
	if b.next == nil {
		b.next = &errandv1.WorkRequest{}
	}
	change(b.next)
	b.mu.Unlock()
	signal(b.wake)
}

// accept tells that an attempt has started.
func (b *outbox) accept(tokens []started) {
	b.mu.Lock()
	b.accepted = append(b.accepted, tokens...)
	b.mu.Unlock()
	signal(b.wake)
}

// end tells how an attempt has ended, until it is acknowledged.
func (b *outbox) end(id attemptID, f *errandv1.Finished) {
	b.mu.Lock()
	b.ends[id] = f
	b.toSend = append(b.toSend, id)
	b.mu.Unlock()
	signal(b.wake)
}

// acknowledged forgets ends that the scheduler has answered, whatever the answer.
func (b *outbox) acknowledged(ids []attemptID) {
	b.mu.Lock()
	before := len(b.ends)
	for _, id := range ids {
		delete(b.ends, id)
	}
	b.answered += int64(before - len(b.ends))
	empty := len(b.ends) == 0
	b.mu.Unlock()
	if empty {
		signal(b.settled)
	}
}

// owes tells whether an attempt has ended and that is not acknowledged.
func (b *outbox) owes(id attemptID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends[id] != nil
}

// unacknowledged lists the attempts whose ends are not recorded yet.
func (b *outbox) unacknowledged() []attemptID {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]attemptID, 0, len(b.ends))
	for id := range b.ends {
		ids = append(ids, id)
	}
	return ids
}

// restart makes a new connection say everything again that is not acknowledged.
func (b *outbox) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted = nil // the register names them
	b.limit = messageBytesMax
	if b.next != nil {
		b.next.Heartbeat, b.next.Register = nil, nil // they were another connection's
	}
	b.toSend = b.toSend[:0]
	for id := range b.ends {
		b.toSend = append(b.toSend, id)
	}
	slices.SortFunc(b.toSend, func(x, y attemptID) int { return slices.Compare(x.id[:], y.id[:]) })
}

// cut makes messages fit for a scheduler that takes no more than so many bytes; 0 means that it takes what we send.
func (b *outbox) cut(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes > 0 {
		b.limit = int(min(bytes/2, messageBytesMax)) // half of it is room for everything that is not an end
	}
	signal(b.wake)
}

// take returns the next message, nil when there is nothing to say, and whether there is more.
func (b *outbox) take() (m *errandv1.WorkRequest, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, b.next = b.next, nil
	if m == nil {
		if len(b.accepted) == 0 && len(b.toSend) == 0 {
			return nil, false
		}
		m = &errandv1.WorkRequest{}
	}
	bytes := 0
	n := 0
	for ; n < len(b.toSend) && len(m.Finished) < messageWordsMax; n++ {
		f := b.ends[b.toSend[n]]
		if f == nil {
			continue // acknowledged meanwhile
		}
		if bytes += proto.Size(f); bytes > b.limit && len(m.Finished) > 0 {
			break
		}
		m.Finished = append(m.Finished, f)
	}
	b.toSend = slices.Delete(b.toSend, 0, n)
	b.takeAccepted(m)
	return m, len(b.toSend) > 0 || len(b.accepted) > 0
}

// takeAccepted moves what was accepted into a message. What has ended meanwhile is left out: its end says that it had started.
func (b *outbox) takeAccepted(m *errandv1.WorkRequest) {
	n := 0
	for ; n < len(b.accepted) && len(m.Accepted) < messageWordsMax; n++ {
		if a := b.accepted[n]; b.ends[a.id] == nil {
			m.Accepted = append(m.Accepted, a.token)
		}
	}
	b.accepted = b.accepted[n:]
	if len(b.accepted) == 0 {
		b.accepted = nil
	}
}

// flushed waits until every end is acknowledged, or the limit, or ctx.
func (b *outbox) flushed(ctx context.Context, limit <-chan time.Time) {
	for {
		b.mu.Lock()
		n := len(b.ends)
		b.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-b.settled:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}
