package cron

import (
	"math"
	"time"
)

// offsetsReach is more than a zone's clock can be away from UTC: what it showed longer ago is less than what it shows, whatever
// it did in between. The largest difference that the database knows is sixteen hours.
const offsetsReach = 48 * hourSeconds

// stretch is a time in which a zone's offset stays the same: from start until just before end, seconds since 1970.
type stretch struct {
	start, end, offset int64
}

// stretchAt is the stretch that holds an instant.
func (s *Schedule) stretchAt(instant int64) stretch {
	t := time.Unix(instant, 0).In(s.zone)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	found := stretch{start: math.MinInt64 / 2, end: math.MaxInt64 / 2, offset: int64(offset)}
	if !start.IsZero() {
		found.start = start.Unix()
	}
	if !end.IsZero() {
		found.end = end.Unix()
	}
	return found
}

// shown is the latest reading that the zone's clock has shown up to an instant, also before it was put back.
func (s *Schedule) shown(instant int64) int64 {
	st := s.stretchAt(instant)
	latest := instant + st.offset
	for st.start > instant-offsetsReach {
		st = s.stretchAt(st.start - 1)
		latest = max(latest, st.end-1+st.offset)
	}
	return latest
}

// reach is the first instant at which the zone's clock shows a reading, or a later one because it was put forward over it.
func (s *Schedule) reach(reading int64) int64 {
	instant := reading - offsetsReach
	for {
		st := s.stretchAt(instant)
		if instant+st.offset >= reading {
			return instant
		}
		if at := reading - st.offset; at < st.end {
			return at
		}
		instant = st.end
	}
}
