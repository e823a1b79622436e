package cron

import (
	_ "embed"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine that tests may have none
)

// allZones are the names of the IANA database, one a line.
//
//go:embed testdata/zones.txt
var allZones string

// clock is what a zone's clock shows, to the minute.
type clock struct {
	month, day, weekday, hour, minute int
}

// A brute is a second opinion on an expression, written by hand: what it matches, and whether it means fixed times.
type brute struct {
	expression string
	fixed      bool
	matches    func(c clock) bool
}

var brutes = []brute{
	{"0 0 * * *", true, func(c clock) bool { return c.hour == 0 && c.minute == 0 }},
	{"30 2 * * *", true, func(c clock) bool { return c.hour == 2 && c.minute == 30 }},
	{"15 1 * * *", true, func(c clock) bool { return c.hour == 1 && c.minute == 15 }},
	{"*/20 0-3 * * *", true, func(c clock) bool { return c.hour <= 3 && c.minute%20 == 0 }},
	{"5,59 2,14 * * SUN", true, func(c clock) bool {
		return (c.minute == 5 || c.minute == 59) && (c.hour == 2 || c.hour == 14) && c.weekday == 0
	}},
	{"0 3 13 * FRI", true, func(c clock) bool { return c.minute == 0 && c.hour == 3 && (c.day == 13 || c.weekday == 5) }},
	{"0 2 */2 * 1-5", true, func(c clock) bool {
		return c.minute == 0 && c.hour == 2 && c.day%2 == 1 && c.weekday >= 1 && c.weekday <= 5
	}},
	{"0 0 1,15 * ?", true, func(c clock) bool { return c.minute == 0 && c.hour == 0 && (c.day == 1 || c.day == 15) }},
	{"0 * * * *", false, func(c clock) bool { return c.minute == 0 }},
	{"10 */2 * * *", false, func(c clock) bool { return c.minute == 10 && c.hour%2 == 0 }},
	{"45 1-5/2 * 3,4,9-11 6,7", false, func(c clock) bool {
		return c.minute == 45 && (c.hour == 1 || c.hour == 3 || c.hour == 5) &&
			(c.month == 3 || c.month == 4 || c.month >= 9 && c.month <= 11) && (c.weekday == 6 || c.weekday == 0)
	}},
	{"@monthly", true, func(c clock) bool { return c.minute == 0 && c.hour == 0 && c.day == 1 }},
}

// dense ones are walked a whole year in few zones, and in all around the changes.
var dense = []brute{
	{"* * * * *", false, func(clock) bool { return true }},
	{"*/7 * * * *", false, func(c clock) bool { return c.minute%7 == 0 }},
	{"* 0-4 * * *", true, func(c clock) bool { return c.hour <= 4 }},
}

// window is a time to walk, in whole minutes.
type window struct{ from, to time.Time }

// walk goes through a window minute by minute and lists what each of the brutes fires: after from, up to to.
func walk(zone *time.Location, w window, all []brute) [][]int64 {
	fired := make([][]int64, len(all))
	shown := int64(math.MinInt64) // the latest reading so far, in minutes
	for u := w.from.Unix()/60 - 2*24*60; u <= w.to.Unix()/60; u++ {
		t := time.Unix(u*60, 0).In(zone)
		_, offset := t.Zone()
		reading := u + int64(offset)/60
		if u*60 > w.from.Unix() {
			now := look(t)
			for i, b := range all {
				fires := b.matches(now) && (!b.fixed || reading > shown)
				for r := shown + 1; b.fixed && r < reading && !fires; r++ { // what was jumped over
					fires = b.matches(look(time.Unix(r*60, 0).UTC()))
				}
				if fires {
					fired[i] = append(fired[i], u*60)
				}
			}
		}
		shown = max(shown, reading)
	}
	return fired
}

func look(t time.Time) clock {
	_, m, d := t.Date()
	h, mi, _ := t.Clock()
	return clock{int(m), d, int(t.Weekday()), h, mi}
}

// agree compares every way to list a window's occurrences with what was walked.
func agree(t *testing.T, zone string, w window, b brute, want []int64) {
	t.Helper()
	s, err := Parse(b.expression, zone, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	forth := seconds(s.Between(w.from, w.to, len(want)+10))
	if !slices.Equal(forth, want) {
		t.Fatalf("%s in %s, %v: Between differs: %s", b.expression, zone, w, difference(s, forth, want))
	}
	back := seconds(s.Latest(w.from, w.to, len(want)+10))
	if !slices.Equal(back, want) {
		t.Fatalf("%s in %s, %v: Latest differs: %s", b.expression, zone, w, difference(s, back, want))
	}
	if n := s.Count(w.from, w.to); n != int64(len(want)) {
		t.Fatalf("%s in %s, %v: Count is %d, want %d", b.expression, zone, w, n, len(want))
	}
	for i := range want { // windows that begin and end at an occurrence, or just before
		if i%97 != 0 {
			continue
		}
		mid := time.Unix(want[i], 0)
		if n := s.Count(w.from, mid); n != int64(i+1) {
			t.Fatalf("%s in %s: Count up to %v is %d, want %d", b.expression, zone, mid.In(s.Location()), n, i+1)
		}
		if n := s.Count(mid.Add(-1), w.to); n != int64(len(want)-i) {
			t.Fatalf("%s in %s: Count from %v is %d, want %d", b.expression, zone, mid.In(s.Location()), n, len(want)-i)
		}
	}
}

func seconds(all []time.Time) []int64 {
	var s []int64
	for _, t := range all {
		s = append(s, t.Unix())
	}
	return s
}

func difference(s *Schedule, got, want []int64) string {
	for i := 0; i < len(got) || i < len(want); i++ {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			at := func(list []int64) string {
				if i >= len(list) {
					return "nothing"
				}
				return time.Unix(list[i], 0).In(s.zone).Format("2006-01-02T15:04:05-0700")
			}
			return fmt.Sprintf("number %d is %s, want %s", i, at(got), at(want))
		}
	}
	return "nowhere"
}

// changes are the instants at which a zone's clock is set, between two times, and a text that is equal for zones that do the same.
func changes(zone *time.Location, w window) (at []time.Time, pattern string) {
	for t := w.from; t.Before(w.to); {
		_, end := t.ZoneBounds()
		_, offset := t.Zone()
		pattern += fmt.Sprint(t.Unix(), " ", offset, ";")
		if end.IsZero() || end.After(w.to) {
			break
		}
		at = append(at, end)
		t = end.In(zone)
	}
	return at, pattern
}

// distinct are zones whose clocks were set between two times, one of those that did the same, with the changes.
func distinct(t *testing.T, w window) (zones []string, at map[string][]time.Time) {
	t.Helper()
	seen := map[string]bool{}
	at = map[string][]time.Time{}
	for name := range strings.FieldsSeq(allZones) {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		when, pattern := changes(zone, window{w.from.In(zone), w.to.In(zone)})
		if len(when) == 0 || seen[pattern] {
			continue
		}
		seen[pattern] = true
		zones = append(zones, name)
		at[name] = when
	}
	return zones, at
}

func compare(t *testing.T, name string, w window, all []brute) {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range walk(zone, w, all) {
		agree(t, name, w, all[i], want)
	}
}

// Every zone whose clock is set between 2024 and 2027, the days around each change, minute by minute.
func TestBruteForceAroundEveryChange(t *testing.T) {
	zones, at := distinct(t, window{day(2024, 1, 1), day(2028, 1, 1)})
	if len(zones) < 30 {
		t.Fatalf("only %d zones: the list is not what it was", len(zones))
	}
	for _, name := range zones {
		for _, change := range at[name] {
			w := window{change.Add(-30 * time.Hour).Truncate(time.Minute), change.Add(30 * time.Hour).Truncate(time.Minute)}
			compare(t, name, w, append(slices.Clone(brutes), dense...))
		}
	}
}

// Every zone through each whole year in which its clock is set: 2025, and as many as ERRAND_CRON_YEARS says.
func TestBruteForceThroughYears(t *testing.T) {
	years := 1
	if more, err := strconv.Atoi(os.Getenv("ERRAND_CRON_YEARS")); err == nil {
		years = more
	}
	for year := 2025; year < 2025+years; year++ {
		w := window{day(year, 1, 1), day(year+1, 1, 1)}
		zones, _ := distinct(t, w)
		for _, name := range zones {
			compare(t, name, w, brutes)
		}
		compare(t, "Australia/Lord_Howe", w, dense)
	}
}

// Clocks were set by a day, at midnight, twice in a month, and by odd minutes, too.
func TestBruteForceInOddTimes(t *testing.T) {
	for name, change := range map[string]time.Time{
		"Pacific/Apia":         day(2011, 12, 30), // a day that never was
		"Pacific/Kwajalein":    day(1993, 8, 21),
		"America/Caracas":      day(2007, 12, 9), // half an hour back
		"Asia/Pyongyang":       day(2018, 5, 4),
		"Antarctica/Casey":     day(2018, 3, 11), // three hours
		"Antarctica/Troll":     day(2025, 3, 30), // two hours
		"America/Sao_Paulo":    day(2017, 10, 15),
		"Asia/Amman":           day(2014, 3, 28),
		"Africa/Cairo":         day(2010, 8, 11), // summer time paused for Ramadan
		"Africa/Casablanca":    day(2012, 7, 20),
		"Asia/Gaza":            day(2011, 8, 1),
		"America/Goose_Bay":    day(2006, 10, 29), // at a minute past midnight
		"Europe/Warsaw":        day(1944, 10, 4),
		"Asia/Kuala_Lumpur":    day(1981, 12, 31),
		"America/St_Johns":     day(1988, 4, 3), // two hours, by halves
		"Antarctica/Macquarie": day(2010, 4, 4),
	} {
		w := window{change.AddDate(0, 0, -4), change.AddDate(0, 0, 4)}
		compare(t, name, w, append(slices.Clone(brutes), dense...))
	}
}

func day(y int, m time.Month, d int) time.Time {
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}
