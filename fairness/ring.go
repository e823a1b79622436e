package fairness

// Ring serves tenants in turn. It is not safe for concurrent use. The zero value is empty.
type Ring struct {
	seats map[string]*seat
	next  *seat // whose turn it is
}

type seat struct {
	tenant     string
	prev, next *seat
}

// Add puts a tenant at the end of the turn. Adding one that is there changes nothing.
func (r *Ring) Add(tenant string) {
	if r.seats[tenant] != nil {
		return
	}
	if r.seats == nil {
		r.seats = map[string]*seat{}
	}
	s := &seat{tenant: tenant}
	r.seats[tenant] = s
	if r.next == nil {
		s.prev, s.next = s, s
		r.next = s
		return
	}
	last := r.next.prev
	s.prev, s.next = last, r.next
	last.next, r.next.prev = s, s
}

// Remove takes a tenant out of the turn.
func (r *Ring) Remove(tenant string) {
	s := r.seats[tenant]
	if s == nil {
		return
	}
	delete(r.seats, tenant)
	if s.next == s {
		r.next = nil
		return
	}
	s.prev.next, s.next.prev = s.next, s.prev
	if r.next == s {
		r.next = s.next
	}
}

// Len is the number of tenants in the ring.
func (r *Ring) Len() int { return len(r.seats) }

// Peek returns the tenant whose turn it is, and false when the ring is empty.
func (r *Ring) Peek() (string, bool) {
	if r.next == nil {
		return "", false
	}
	return r.next.tenant, true
}

// Pass ends the tenant's turn. When it is another's turn (since this tenant has left the ring meanwhile) it changes nothing.
func (r *Ring) Pass(tenant string) {
	if r.next != nil && r.next.tenant == tenant {
		r.next = r.next.next
	}
}
