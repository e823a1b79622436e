package cron

import (
	"slices"
	"time"
)

// Between are the first n occurrences after from and up to to, oldest first.
func (s *Schedule) Between(from, to time.Time, n int) []time.Time {
	var found []time.Time
	for len(found) < n {
		next, ok := s.Next(from)
		if !ok || next.After(to) {
			break
		}
		found = append(found, next)
		from = next
	}
	return found
}

// Latest are the last n occurrences after from and up to to, oldest first. It walks back from the end, so a long window costs
// nothing.
func (s *Schedule) Latest(from, to time.Time, n int) []time.Time {
	var found []time.Time
	before := to.Add(1) // Prev is strict
	for len(found) < n {
		prev, ok := s.Prev(before)
		if !ok || !prev.After(from) {
			break
		}
		found = append(found, prev)
		before = prev
	}
	slices.Reverse(found)
	return found
}

// Preview are the next n occurrences after an instant. Each is in the schedule's zone, hence has its offset from UTC.
func (s *Schedule) Preview(after time.Time, n int) []time.Time {
	return s.Between(after, time.Unix(instantMax, 0), n)
}

// Count is how many occurrences there are after from and up to to. It looks at months and at changes of the zone's clock, never
// at single occurrences: a year of seconds is counted as fast as a year of days.
func (s *Schedule) Count(from, to time.Time) int64 {
	first, last := clamp(from.Unix())+1, clamp(to.Unix())
	switch {
	case first > last:
		return 0
	case s.every > 0:
		return floorDiv(last-s.anchor, s.every) - floorDiv(first-1-s.anchor, s.every)
	case s.fixed:
		return s.countFixed(first, last)
	default:
		return s.countShown(first, last)
	}
}

// countShown counts what the zone's clock shows, stretch by stretch.
func (s *Schedule) countShown(first, last int64) int64 {
	var n int64
	for first <= last {
		st := s.stretchAt(first)
		until := min(st.end-1, last)
		n += s.calendar.count(first+st.offset, until+st.offset)
		first = until + 1
	}
	return n
}

// countFixed counts readings once each, and all those that fall into one gap as the one occurrence at its end.
func (s *Schedule) countFixed(first, last int64) int64 {
	n := s.calendar.count(s.shown(first-1)+1, s.shown(last))
	for st := s.stretchAt(first - 1); st.end <= last; {
		next := s.stretchAt(st.end)
		resumes := st.end + next.offset
		if lost := s.calendar.count(s.shown(st.end-1)+1, resumes-1); lost > 0 {
			n -= lost
			if !s.calendar.matches(resumes) {
				n++
			}
		}
		st = next
	}
	return n
}
