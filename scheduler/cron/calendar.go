package cron

import (
	"math/bits"
	"time"
)

// cycleYears is after how many years the calendar repeats itself, days of the week included: what does not come in that
// time never comes.
const cycleYears = 400

const (
	minuteSeconds = 60
	hourSeconds   = 60 * minuteSeconds
	daySeconds    = 24 * hourSeconds
)

// calendar is what an expression's fields match. It knows no zone: it looks at readings of a clock on the wall, counted in
// seconds as if they were UTC's.
type calendar struct {
	seconds, minutes, hours, doms, months, dows uint64

	bothDays bool // a day has to match by month and by week; otherwise one of them is enough
}

// month is a month of a year, counted from January of year 0.
type month int

// read takes a reading apart: its month, the day of it, and the second of the day.
func read(reading int64) (m month, day, second int) {
	t := time.Unix(reading, 0).UTC()
	y, mon, d := t.Date()
	return month(y*12 + int(mon) - 1), d, t.Hour()*hourSeconds + t.Minute()*minuteSeconds + t.Second()
}

// first is the first day of a month.
func (m month) first() time.Time {
	return time.Date(int(m)/12, time.Month(int(m)%12+1), 1, 0, 0, 0, 0, time.UTC)
}

// reading is the opposite of read.
func (m month) reading(day, second int) int64 {
	return m.first().Unix() + int64(day-1)*daySeconds + int64(second)
}

// days are the days of a month that match, as bits 1 to 31.
func (c *calendar) days(m month) uint64 {
	if c.months&(1<<(int(m)%12+1)) == 0 {
		return 0
	}
	first := m.first()
	length := first.AddDate(0, 1, -1).Day()
	weekday := int(first.Weekday())
	week := (c.dows>>weekday | c.dows<<(7-weekday)) & (1<<7 - 1)     // bit 0: the weekday of the 1st
	weekly := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1 // bit n: the weekday of the n-th
	within := upTo(length) &^ 1                                      // there is no day 0
	if c.bothDays {
		return c.doms & weekly & within
	}
	return (c.doms | weekly) & within
}

// matches tells whether a reading is one that the fields match.
func (c *calendar) matches(reading int64) bool {
	found, ok := c.next(reading)
	return ok && found == reading
}

// next is the first reading from the given one on that matches. There is none when the next cycle of the calendar has none.
func (c *calendar) next(reading int64) (int64, bool) {
	m, day, second := read(reading)
	if c.days(m)&(1<<day) != 0 {
		if at, ok := c.secondFrom(second); ok {
			return m.reading(day, at), true
		}
	}
	start, _ := c.secondFrom(0)
	for past := m + 12*cycleYears; m <= past; m++ {
		if found, ok := lowest(c.days(m), day+1); ok {
			return m.reading(found, start), true
		}
		day = 0
	}
	return 0, false
}

// prev is the last reading up to the given one that matches. There is none when the cycle of the calendar before has none.
func (c *calendar) prev(reading int64) (int64, bool) {
	m, day, second := read(reading)
	if c.days(m)&(1<<day) != 0 {
		if at, ok := c.secondUpTo(second); ok {
			return m.reading(day, at), true
		}
	}
	last, _ := c.secondUpTo(daySeconds - 1)
	for past := max(0, m-12*cycleYears); m >= past; m-- {
		if found, ok := highest(c.days(m), day-1); ok {
			return m.reading(found, last), true
		}
		day = 32
	}
	return 0, false
}

// secondFrom is the first second of a day, from the given one on, that matches.
func (c *calendar) secondFrom(second int) (int, bool) {
	h, m, s := second/hourSeconds, second/minuteSeconds%60, second%60
	if c.hours&(1<<h) != 0 {
		if c.minutes&(1<<m) != 0 {
			if at, ok := lowest(c.seconds, s); ok {
				return h*hourSeconds + m*minuteSeconds + at, true
			}
		}
		if at, ok := lowest(c.minutes, m+1); ok {
			return h*hourSeconds + at*minuteSeconds + bits.TrailingZeros64(c.seconds), true
		}
	}
	at, ok := lowest(c.hours, h+1)
	return at*hourSeconds + bits.TrailingZeros64(c.minutes)*minuteSeconds + bits.TrailingZeros64(c.seconds), ok
}

// secondUpTo is the last second of a day, up to the given one, that matches.
func (c *calendar) secondUpTo(second int) (int, bool) {
	h, m, s := second/hourSeconds, second/minuteSeconds%60, second%60
	if c.hours&(1<<h) != 0 {
		if c.minutes&(1<<m) != 0 {
			if at, ok := highest(c.seconds, s); ok {
				return h*hourSeconds + m*minuteSeconds + at, true
			}
		}
		if at, ok := highest(c.minutes, m-1); ok {
			return h*hourSeconds + at*minuteSeconds + bits.Len64(c.seconds) - 1, true
		}
	}
	at, ok := highest(c.hours, h-1)
	return at*hourSeconds + (bits.Len64(c.minutes)-1)*minuteSeconds + bits.Len64(c.seconds) - 1, ok
}

// count is how many readings from first to last match. It looks at months and never at single readings.
func (c *calendar) count(first, last int64) int64 {
	if first > last {
		return 0
	}
	firstMonth, firstDay, firstSecond := read(first)
	lastMonth, lastDay, lastSecond := read(last)
	var days int
	for m := firstMonth; m <= lastMonth; m++ {
		set := c.days(m)
		if m == firstMonth {
			set &^= upTo(firstDay - 1)
		}
		if m == lastMonth {
			set &= upTo(lastDay)
		}
		days += bits.OnesCount64(set)
	}
	all := c.secondsBefore(daySeconds)
	n := int64(days) * int64(all)
	if c.days(firstMonth)&(1<<firstDay) != 0 {
		n -= int64(c.secondsBefore(firstSecond))
	}
	if c.days(lastMonth)&(1<<lastDay) != 0 {
		n -= int64(all - c.secondsBefore(lastSecond+1))
	}
	return n
}

// secondsBefore is how many seconds of a day before the given one match.
func (c *calendar) secondsBefore(second int) int {
	h, m, s := second/hourSeconds, second/minuteSeconds%60, second%60
	perMinute := bits.OnesCount64(c.seconds)
	n := bits.OnesCount64(c.hours&upTo(h-1)) * bits.OnesCount64(c.minutes) * perMinute
	if h > 23 || c.hours&(1<<h) == 0 {
		return n
	}
	n += bits.OnesCount64(c.minutes&upTo(m-1)) * perMinute
	if c.minutes&(1<<m) != 0 {
		n += bits.OnesCount64(c.seconds & upTo(s-1))
	}
	return n
}
