package cron

import "time"

// The years that occurrences lie in.
const (
	yearMin = 1
	yearMax = 9999
)

var (
	instantMin = time.Date(yearMin, 1, 3, 0, 0, 0, 0, time.UTC).Unix()
	instantMax = time.Date(yearMax, 12, 29, 0, 0, 0, 0, time.UTC).Unix()
)

// stretchesMax is how many changes of a zone's clock one search looks at: several a year for a cycle of the calendar.
const stretchesMax = 6 * cycleYears

// Next is the first occurrence strictly after an instant; none when the calendar's next cycle of 400 years has none, or the year
// 9999 ends first.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	from := clamp(after.Unix()) + 1
	var found int64
	var ok bool
	switch {
	case s.every > 0:
		found, ok = s.anchor+(floorDiv(from-1-s.anchor, s.every)+1)*s.every, true
	case s.fixed:
		if found, ok = s.calendar.next(s.shown(from-1) + 1); ok {
			found = s.reach(found)
		}
	default:
		found, ok = s.nextShown(from)
	}
	return s.answer(found, ok)
}

// Prev is the last occurrence strictly before an instant; none when the calendar's cycle of 400 years before has none.
func (s *Schedule) Prev(before time.Time) (time.Time, bool) {
	upTo := before.Unix()
	if before.Nanosecond() == 0 {
		upTo--
	}
	upTo = clamp(upTo)
	var found int64
	var ok bool
	switch {
	case s.every > 0:
		found, ok = s.anchor+floorDiv(upTo-s.anchor, s.every)*s.every, true
	case s.fixed:
		if found, ok = s.calendar.prev(s.shown(upTo)); ok {
			found = s.reach(found)
		}
	default:
		found, ok = s.prevShown(upTo)
	}
	return s.answer(found, ok)
}

// nextShown is the first instant, from the given one on, at which the zone's clock shows a reading that matches.
func (s *Schedule) nextShown(instant int64) (int64, bool) {
	var from, match int64
	known := false
	for range stretchesMax {
		st := s.stretchAt(instant)
		if reading := instant + st.offset; !known || reading < from || reading > match {
			from = reading
			if match, known = s.calendar.next(reading); !known {
				return 0, false
			}
		}
		if at := match - st.offset; at < st.end {
			return at, true
		}
		instant = st.end
	}
	return 0, false
}

// prevShown is the last instant, up to the given one, at which the zone's clock shows a reading that matches.
func (s *Schedule) prevShown(instant int64) (int64, bool) {
	var upTo, match int64
	known := false
	for range stretchesMax {
		st := s.stretchAt(instant)
		if reading := instant + st.offset; !known || reading > upTo || reading < match {
			upTo = reading
			if match, known = s.calendar.prev(reading); !known {
				return 0, false
			}
		}
		if at := match - st.offset; at >= st.start {
			return at, true
		}
		instant = st.start - 1
	}
	return 0, false
}

func (s *Schedule) answer(instant int64, ok bool) (time.Time, bool) {
	if !ok || instant < instantMin || instant > instantMax {
		return time.Time{}, false
	}
	return time.Unix(instant, 0).In(s.zone), true
}

// clamp keeps an instant where the calendar can be computed.
func clamp(instant int64) int64 {
	return min(max(instant, instantMin), instantMax)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
