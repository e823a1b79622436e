package fairness

// Part is one of several equal parts of a cap, by a number from 0 on.
type Part struct{ Of, Number int }

// Slots is how many of a cap's slots belong to the part: all parts together have exactly the cap. What does not divide evenly goes to
// different parts for caps with different salts, so that small caps spread over the parts.
func (p Part) Slots(limit int, salt uint64) int {
	if p.Of <= 0 || p.Number < 0 || p.Number >= p.Of || limit <= 0 {
		return 0
	}
	slots, rest := limit/p.Of, limit%p.Of
	if turned := (p.Number + int(salt%uint64(p.Of))) % p.Of; turned < rest {
		slots++
	}
	return slots
}

// Least is how many slots belong to all of several parts: what may be used while it is not known which of them holds.
func Least(parts []Part, limit int, salt uint64) int {
	if len(parts) == 0 {
		return 0
	}
	least := limit
	for _, p := range parts {
		least = min(least, p.Slots(limit, salt))
	}
	return least
}
