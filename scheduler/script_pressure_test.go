package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// bearsTurn is how often the core is asked while a service is called.
const bearsTurn = 10 * time.Millisecond

// bears lets workers run everything at once, and all that carries the limit call a service that bears so many calls a second:
//
//	bears LIMIT RATE for=DURATION
//
// What comes beyond that in a second meets with backpressure; all else succeeds. It prints for each second how many attempts started,
// how many of them were turned away, and how many others ran.
func (s *script) bears(w words) {
	bearsRate, _ := strconv.Atoi(w.names[1])
	left, served, refused, others := 0, 0, 0, 0
	for turn := range int(w.duration("for", time.Second) / bearsTurn) {
		if second := int(time.Second / bearsTurn); turn%second == 0 {
			left, served, refused, others = bearsRate, 0, 0, 0
		}
		keys := s.core.Refills(s.now, 100)
		s.core.Step(s.refill(keys, s.core.RefillRows(keys, 1)))
		s.plan(s.room)
		for _, id := range slices.SortedFunc(maps.Keys(s.claims), ID.Compare) {
			s.settleClaim(id)
		}
		s.plan(s.room)
		var reports []Report
		for _, h := range s.core.Held() {
			r := Report{Token: h.Token, Outcome: OutcomeSucceeded}
			switch {
			case !slices.ContainsFunc(h.Spec.Limits, func(l LimitKey) bool { return l.Name == w.names[0] }):
				others++
			case left > 0:
				left--
				served++
			default:
				refused++
				r = Report{Token: h.Token, Outcome: OutcomeBackpressure, Limit: w.names[0]}
			}
			reports = append(reports, r)
		}
		s.core.Step(Reported{Reports: reports})
		s.plan(s.room)
		for _, id := range slices.SortedFunc(maps.Keys(s.endings), ID.Compare) {
			s.core.Advance(s.settleEnding(id))
		}
		s.now = s.now.Add(bearsTurn)
		s.core.Tick(s.now)
		if (turn+1)%int(time.Second/bearsTurn) == 0 {
			s.printf("served %d, turned away %d%s", served, refused, unless(others == 0, fmt.Sprintf(", others %d", others)))
		}
	}
}
