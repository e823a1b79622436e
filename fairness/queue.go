package fairness

import (
	"container/heap"
	"time"
)

// Queue holds tenants that have something to start, those first that have used least for their weight. A tenant may stand in several
// queues of the same shares. It is not safe for concurrent use.
type Queue struct {
	shares *Shares
	seats  map[string]*seat
	order  seatHeap
}

// seat is a tenant's place in a queue.
type seat struct {
	account *account
	queue   *Queue
	index   int
}

// NewQueue returns an empty queue.
func (s *Shares) NewQueue() *Queue { return &Queue{shares: s, seats: map[string]*seat{}} }

// Add lets a tenant into the queue; one that is there stays where it is.
func (q *Queue) Add(tenant string) {
	if q.seats[tenant] != nil {
		return
	}
	a := q.shares.account(tenant, time.Time{})
	seat := &seat{account: a, queue: q}
	q.seats[tenant] = seat
	a.seats = append(a.seats, seat)
	heap.Push(&q.order, seat)
}

// Remove takes a tenant out; one that is not there changes nothing.
func (q *Queue) Remove(tenant string) {
	seat := q.seats[tenant]
	if seat == nil {
		return
	}
	delete(q.seats, tenant)
	heap.Remove(&q.order, seat.index)
	a := seat.account
	for i := range a.seats {
		if a.seats[i] == seat {
			a.seats[i] = a.seats[len(a.seats)-1]
			a.seats = a.seats[:len(a.seats)-1]
			break
		}
	}
}

// Len is the number of tenants in the queue.
func (q *Queue) Len() int { return len(q.order) }

// Peek returns the tenant whose turn it is with its virtual time, and false when the queue is empty. One that has waited for something
// scarce is not left behind without a bound.
func (q *Queue) Peek() (tenant string, virtual float64, some bool) {
	if len(q.order) == 0 {
		return "", 0, false
	}
	a := q.order[0].account
	if least := q.shares.virtual - lagMax; a.virtual < least {
		a.virtual = least
		for _, seat := range a.seats {
			seat.queue.moved(seat)
		}
		a = q.order[0].account
	}
	return a.tenant, a.virtual, true
}

// Tenants lists the tenants, those first that come first.
func (q *Queue) Tenants() []string {
	all := make(seatHeap, len(q.order))
	copy(all, q.order)
	tenants := make([]string, 0, len(all))
	for len(all) > 0 {
		first := 0
		for i := range all {
			if all.Less(i, first) {
				first = i
			}
		}
		tenants = append(tenants, all[first].account.tenant)
		all[first] = all[len(all)-1]
		all = all[:len(all)-1]
	}
	return tenants
}

func (q *Queue) moved(s *seat) { heap.Fix(&q.order, s.index) }

// seatHeap orders seats by virtual time, then by name.
type seatHeap []*seat

func (h seatHeap) Len() int { return len(h) }
func (h seatHeap) Less(i, j int) bool {
	a, b := h[i].account, h[j].account
	if a.virtual != b.virtual {
		return a.virtual < b.virtual
	}
	return a.tenant < b.tenant
}

func (h seatHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *seatHeap) Push(x any) {
	s := x.(*seat)
	s.index = len(*h)
	*h = append(*h, s)
}

func (h *seatHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.index = -1
	return s
}
