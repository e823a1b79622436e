package cron

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Bounds of what Parse takes. The API has the same.
const (
	ExpressionBytesMax = 255
	ZoneBytesMax       = 63
	// EveryMin is the shortest @every, and what each has to be a multiple of.
	EveryMin = time.Second
	// EveryMax is the longest one.
	EveryMax = 366 * 24 * time.Hour
)

// shorthands are names for expressions.
var shorthands = map[string]string{
	"@hourly":  "0 * * * *",
	"@daily":   "0 0 * * *",
	"@weekly":  "0 0 * * 0",
	"@monthly": "0 0 1 * *",
	"@yearly":  "0 0 1 1 *",
}

// Schedule is an expression in a zone. It does not change; make one with Parse.
type Schedule struct {
	expression string
	zone       *time.Location
	calendar   calendar
	fixed      bool  // fires once for each local date and time
	every      int64 // seconds; 0 when the calendar counts
	anchor     int64 // of every, seconds since 1970
}

// Parse reads an expression and the IANA name of its zone; the empty name is UTC. anchor sets the phase of @every and means nothing
// to others: give it what was stored when the schedule was made, for then a restart does not move its occurrences.
//
// Every error is a *ParseError; it is an ErrNever when the expression is well-formed and never fires.
func Parse(expression, zone string, anchor time.Time) (*Schedule, error) {
	if len(expression) > ExpressionBytesMax {
		return nil, refused(expression[:ExpressionBytesMax]+"...", fmt.Sprintf("at most %d bytes", ExpressionBytesMax))
	}
	location, err := loadZone(zone)
	if err != nil {
		return nil, err
	}
	s := &Schedule{expression: expression, zone: location}
	text := strings.TrimSpace(expression)
	if every, is := strings.CutPrefix(text, "@every"); is {
		s.anchor = anchor.Unix()
		return s, s.parseEvery(every)
	}
	if err := s.parseCalendar(text); err != nil {
		return nil, err
	}
	if _, ok := s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return nil, &ParseError{Field: "expression", Value: expression, Reason: ErrNever.Error() + ": no date is like that", never: true}
	}
	return s, nil
}

// String is the expression as it was given.
func (s *Schedule) String() string { return s.expression }

// Location is the zone. Every time that a Schedule answers with is in it.
func (s *Schedule) Location() *time.Location { return s.zone }

func (s *Schedule) parseEvery(text string) error {
	every, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || every < EveryMin || every > EveryMax || every%EveryMin != 0 {
		return refused(s.expression, "@every takes whole seconds, from 1s to 8784h, for instance @every 90s")
	}
	s.every = int64(every / time.Second)
	return nil
}

func (s *Schedule) parseCalendar(text string) error {
	if strings.HasPrefix(text, "@") {
		full, known := shorthands[text]
		if !known {
			return refused(s.expression, "there are @every DURATION, @hourly, @daily, @weekly, @monthly and @yearly")
		}
		text = full
	}
	parts := strings.Fields(text)
	if len(parts) > 0 && strings.Contains(parts[0], "TZ=") {
		return refused(s.expression, "the time zone has a field of its own")
	}
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 6 {
		return refused(s.expression, fmt.Sprintf("an expression has 5 fields (minute, hour, day of month, month, day of week), or 6 with seconds first; this has %d", len(parts)))
	}
	var read [6]values
	for i, f := range []field{secondField, minuteField, hourField, domField, monthField, dowField} {
		var err error
		if read[i], err = f.parse(parts[i]); err != nil {
			return err
		}
	}
	hour, dom, dow := read[2], read[3], read[5]
	s.calendar = calendar{
		seconds: read[0].set, minutes: read[1].set, hours: hour.set, doms: dom.set, months: read[4].set, dows: dow.set,
		bothDays: dom.star || dow.star,
	}
	hours := bits.OnesCount64(hour.set)
	finer := hours == hourField.count() || hour.wild && hours > 1
	s.fixed = !finer
	return nil
}

// loadZone refuses what would be another zone on another machine: Local, and what a machine's own database has beside IANA's names
// (localtime, posixrules, right/...), which begin with a capital.
func loadZone(name string) (*time.Location, error) {
	if len(name) > ZoneBytesMax {
		return nil, &ParseError{Field: "time_zone", Value: name[:ZoneBytesMax] + "...", Reason: fmt.Sprintf("at most %d bytes", ZoneBytesMax)}
	}
	location, err := time.LoadLocation(name)
	if err != nil || location == time.Local || name != "" && (name[0] < 'A' || name[0] > 'Z') {
		return nil, &ParseError{Field: "time_zone", Value: name, Reason: "not the name of an IANA time zone, such as Europe/Berlin"}
	}
	return location, nil
}

func refused(expression, reason string) error {
	return &ParseError{Field: "expression", Value: expression, Reason: reason}
}
