package errand

import (
	"context"
	"slices"
	"sync"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Bounds of one message to a scheduler.
const (
	messageEndsMax  = 1000
	messageBytesMax = 4 << 20
)

// outbox collects what a worker has to say until its connection can carry it: while one message is on its way the next
// collects. Ends of attempts stay until the scheduler has said that they are recorded.
type outbox struct {
	mu       sync.Mutex
	next     *errandv1.WorkRequest
	ends     map[attemptID]*errandv1.Finished // not acknowledged
	toSend   []attemptID                      // not sent on this connection
	wake     chan struct{}                    // capacity 1
	accepted []*errandv1.Token
}

func (b *outbox) signal() {
	select {
	case b.wake <- struct{}{}:
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
	b.signal()
}

// accept tells that an attempt has started.
func (b *outbox) accept(tokens []*errandv1.Token) {
	b.mu.Lock()
	b.accepted = append(b.accepted, tokens...)
	b.mu.Unlock()
	b.signal()
}

// end tells how an attempt has ended, until it is acknowledged.
func (b *outbox) end(id attemptID, f *errandv1.Finished) {
	b.mu.Lock()
	if b.ends == nil {
		b.ends = map[attemptID]*errandv1.Finished{}
	}
	b.ends[id] = f
	b.toSend = append(b.toSend, id)
	b.mu.Unlock()
	b.signal()
}

// acknowledged forgets ends that the scheduler has answered, whatever the answer.
func (b *outbox) acknowledged(acks []*errandv1.Ack) {
	b.mu.Lock()
	for _, a := range acks {
		delete(b.ends, idOf(a.GetToken()))
	}
	empty := len(b.ends) == 0
	b.mu.Unlock()
	if empty {
		b.signal()
	}
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
	b.toSend = b.toSend[:0]
	for id := range b.ends {
		b.toSend = append(b.toSend, id)
	}
	slices.SortFunc(b.toSend, func(x, y attemptID) int { return slices.Compare(x.id[:], y.id[:]) })
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
	m.Accepted, b.accepted = b.accepted, nil
	bytes := 0
	n := 0
	for ; n < len(b.toSend) && n < messageEndsMax && bytes < messageBytesMax; n++ {
		if f := b.ends[b.toSend[n]]; f != nil {
			m.Finished = append(m.Finished, f)
			bytes += len(f.GetSucceeded().GetData())
		}
	}
	b.toSend = slices.Delete(b.toSend, 0, n)
	return m, len(b.toSend) > 0
}

// flushed waits until every end is acknowledged, or the limit.
func (b *outbox) flushed(ctx context.Context, limit <-chan time.Time) {
	const look = 20 * time.Millisecond // the signal may have gone to the sender
	for {
		b.mu.Lock()
		n := len(b.ends)
		b.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-time.After(look):
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

func idOf(t *errandv1.Token) attemptID {
	var id attemptID
	copy(id.id[:], t.GetId())
	id.number = t.GetAttempt()
	return id
}

func (id attemptID) token() *errandv1.Token {
	return &errandv1.Token{Id: id.id[:], Attempt: id.number}
}
