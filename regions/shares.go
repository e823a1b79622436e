package regions

import (
	"cmp"
	"slices"
	"time"
)

// ShareFloorPercent is how much of a quota is kept, in equal floors, for regions that are cut off: each may use its floor whatever the
// others do. The rest follows demand.
const ShareFloorPercent = 20

// Demand is how much of a quota a region could use now: what it uses and what waits for it.
type Demand struct {
	Region string
	Amount int64
}

// Share is a region's part of a quota, in the quota's unit. Whoever divides a rate takes thousandths per second, so that small ones divide.
type Share struct {
	Region string
	Amount int64 // as soon as the division has settled
	Before int64 // the least that it had in divisions that have not settled: together with Amount what may be used until then
	Floor  int64 // what may be used when nothing was heard for the profile's ShareHear; at most Amount
}

// Division is how a quota (a tenant's rate or a limit of all regions) is divided among the regions. It is one row of the store,
// replaced only where its version is the one that Divide was given; every region reads it every ShareRead and uses Usable of it.
//
// # The bound
//
// At every moment, all that the regions may use together is at most
//
//	the quota of the newest division that was written ShareHear + ClockOffset ago + what cut off regions have as floors beyond
//	their shares in it.
//
// For by then every region has read that division or a later one, or is at its floor. A division settles ShareSettle after it was written, by
// clocks that may be wrong by ClockOffset; until then nobody uses more than the least of its share in it and in those before it. So
// nobody grows before everybody has shrunk. Consequences:
//
//   - With the same quota and the same regions the sum never exceeds the quota: floors are equal in all divisions.
//   - A quota that is lowered holds that long after it was written, except for the floors of regions that are still cut off: with
//     the same regions at most ShareFloorPercent of the largest quota that one of them heard of last.
//   - A region that is added makes floors smaller, one that is removed has none: the same exception, at most each one's floor.
//
// That is a bound on shares. A token bucket that is given its share of the rate and the same part of the burst, and that lets go of
// what it has beyond its burst when that shrinks, admits in any time span at most its shares over that span + its tokens at the start:
// all regions together quota x span + burst. A concurrency cap, too, is kept by those only who count what they run already.
//
// The instances of one region divide its caps in another way (docs/adr/0007): they can read each other's rows, and grow when these tell
// that the others have shrunk. Regions do not read each other's rows in the steady state; they have time only.
type Division struct {
	Version int64
	Quota   int64
	Since   time.Time // store time at which it was written
	Shares  []Share   // by region
}

// Of returns a region's share, nothing when it has none.
func (d *Division) Of(region string) Share {
	for _, s := range d.Shares {
		if s.Region == region {
			return s
		}
	}
	return Share{Region: region}
}

// Divide returns the division that follows a previous one (at first the zero value), or that one itself when nothing changes. now is store
// time. demands hold each region of the topology once, in any order; of repetitions the largest counts.
//
// While the previous one has not settled it stays, whatever the demand: each new one puts growth off. A smaller quota does not wait.
func Divide(p *Profile, previous *Division, quota int64, demands []Demand, now time.Time) Division {
	quota = max(0, quota)
	settled := !now.Before(previous.Since.Add(p.ShareSettle()))
	if now.Before(previous.Since) || !settled && quota >= previous.Quota {
		return *previous
	}
	next := Division{Version: previous.Version + 1, Quota: quota, Since: now, Shares: target(previous, quota, distinct(demands))}
	if quota == previous.Quota && slices.EqualFunc(next.Shares, previous.Shares, sameAmount) {
		return *previous
	}
	for i := range next.Shares {
		s := &next.Shares[i]
		was := previous.Of(s.Region)
		if s.Before = was.Amount; !settled {
			s.Before = min(s.Before, was.Before)
		}
	}
	return next
}

func sameAmount(a, b Share) bool {
	return a.Region == b.Region && a.Amount == b.Amount && a.Floor == b.Floor
}

// Reading is when a region read a division: the store's time in the answer, and when by the region's own clock (from any start, never back).
type Reading struct {
	At       time.Time     // store time
	Asked    time.Duration // before the question was sent
	Answered time.Duration // after the answer came
}

// Usable is what a region may use of a division that it has read, at a time of its own clock. One that has never read any may use
// nothing. It shrinks at once, grows when the division has settled, and falls to the floor when nothing was heard for too long.
//
// The time that an answer takes is counted against it twice: as old as if it was read when it was asked for, and as fresh as
// if no time had passed before it came.
func Usable(p *Profile, d *Division, region string, r Reading, local time.Duration) int64 {
	s := d.Of(region)
	usable := s.settling(p, d, r.At.Add(local-r.Answered))
	if local-r.Asked > p.ShareHear {
		usable = min(usable, s.Floor)
	}
	return usable
}

func (s Share) settling(p *Profile, d *Division, now time.Time) int64 {
	if now.Before(d.Since.Add(p.ShareSettle())) {
		return min(s.Amount, s.Before)
	}
	return s.Amount
}

// target divides a quota: floors, then what is wanted beyond them by max-min, then what nobody wants in equal parts, so that a
// region whose demand begins finds something at once.
func target(previous *Division, quota int64, demands []Demand) []Share {
	if len(demands) == 0 {
		return nil
	}
	n := int64(len(demands))
	floor := (quota/100*ShareFloorPercent + quota%100*ShareFloorPercent/100) / n
	shares := make([]Share, n)
	wants := make([]want, n)
	for i, d := range demands {
		shares[i] = Share{Region: d.Region, Amount: floor, Floor: floor}
		wants[i] = want{at: i, amount: max(0, d.Amount-floor), held: previous.Of(d.Region).Amount}
	}
	left := quota - floor*n
	for _, w := range maxMin(wants, left) {
		shares[w.at].Amount += w.given
		left -= w.given
	}
	for i := range wants {
		wants[i].amount = left // everybody could take all: equal parts
	}
	for _, w := range maxMin(wants, left) {
		shares[w.at].Amount += w.given
	}
	return shares
}

// want is what somebody could use of an amount that is divided.
type want struct {
	at     int
	amount int64
	held   int64 // what it has had
	given  int64
}

// maxMin divides an amount so that nobody gets more than it wants, and who gets less than it wants gets no less than anybody else but for the one unit
// that does not divide evenly. Those go to who wants most, then to who had most (it need not move), then to the first: so a
// quota smaller than the number of regions follows demand.
func maxMin(wants []want, amount int64) []want {
	all := slices.Clone(wants)
	slices.SortFunc(all, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.amount, b.amount), cmp.Compare(a.held, b.held), cmp.Compare(b.at, a.at))
	})
	for i := range all {
		all[i].given = min(all[i].amount, amount/int64(len(all)-i)) // rounded down: the later ones want more
		amount -= all[i].given
	}
	return all
}

// distinct returns the demands by region, one of each.
func distinct(demands []Demand) []Demand {
	all := slices.Clone(demands)
	slices.SortFunc(all, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(b.Amount, a.Amount))
	})
	return slices.CompactFunc(all, func(a, b Demand) bool { return a.Region == b.Region })
}
