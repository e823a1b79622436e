package scheduler

import "github.com/errandhq/errand/placement"

// lentRoom is what a borrower has left while rows are chosen for it.
type lentRoom struct {
	kinds   map[string]int // slots of its pool workers, also of those that it does not offer
	own     map[ownKind]bool
	offered *placement.Pool // nil when it offers nothing
	counted bool            // an offered worker counts more than slots
	refused map[lentNeed]bool
	looks   int // left, at classes that find no room
}

// ownKind is a kind that offered workers of a single tenant serve.
type ownKind struct{ tenant, kind string }

// lentNeed names what one refusal answers for; room only shrinks while rows are chosen.
type lentNeed struct {
	class   Class
	suspect bool
	tenant  string // empty unless workers of the tenant's own are offered
}

func newLentRoom(kinds []KindRoom, offers []placement.Offer) *lentRoom {
	r := &lentRoom{kinds: map[string]int{}, own: map[ownKind]bool{}, refused: map[lentNeed]bool{}, looks: lendLookMax}
	for _, k := range kinds {
		r.kinds[k.Kind] = max(k.Slots, 0)
	}
	if len(offers) == 0 {
		return r
	}
	r.offered = placement.PoolOf(offers)
	for _, o := range offers[:min(len(offers), placement.OffersMax)] {
		r.counted = r.counted || o.Free != nil
		for kind := range o.Slots {
			if o.Tenant != "" {
				r.own[ownKind{o.Tenant, kind}] = true
			}
		}
	}
	return r
}

// may tells whether there is any room for a buffer's kind.
func (r *lentRoom) may(buf *buffer) bool {
	return r.kinds[buf.kind] > 0 || r.own[ownKind{buf.key.tenant, buf.kind}]
}

// take takes room for one row, and says no when there is none.
func (r *lentRoom) take(class Class, n placement.Need) bool {
	own := r.own[ownKind{n.Tenant, n.Kind}]
	shared := r.kinds[n.Kind] > 0
	switch {
	case !shared && !own:
		return false
	case shared && n.Shape == nil && !r.counted: // any free slot will do, whoever has it
		r.kinds[n.Kind]--
		return true
	case r.offered == nil:
		return false // an older version, which would take it for a row that needs a slot and nothing else
	}
	key := lentNeed{class: class, suspect: n.Suspect}
	if own {
		key.tenant = n.Tenant
	}
	if r.refused[key] || (r.looks == 0 && n.Shape != nil) {
		return false
	}
	if r.place(n, shared) {
		return true
	}
	r.refused[key] = true
	r.looks = max(r.looks-1, 0)
	return false
}

// place takes room on an offered worker, on one of the pool only while its kind is shared.
func (r *lentRoom) place(n placement.Need, shared bool) bool {
	at, refusal := r.offered.Place(n, placement.Fill{Part: 1})
	switch {
	case refusal != placement.Placed:
		return false
	case r.offered.IsOwn(at.Worker):
		return true
	case !shared:
		r.offered.Free(at, n)
		return false
	}
	slots := 1
	if n.Shape != nil {
		slots = int(max(n.Shape.Slots, 1))
	}
	r.kinds[n.Kind] = max(r.kinds[n.Kind]-slots, 0)
	return true
}
