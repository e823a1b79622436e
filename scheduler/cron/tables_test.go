package cron

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(t testing.TB, expression, zone string) *Schedule {
	t.Helper()
	s, err := Parse(expression, zone, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// What others met: B10 (gap), B11 (overlap), B14 (zone), B13 and far dates. Each list is all that there is in the window.
func TestOccurrences(t *testing.T) {
	tests := map[string]struct {
		zone, expression, from, to string
		want                       string // in the zone, as it reads there
	}{
		"gap, 02:00": {
			"America/New_York", "0 2 * * *", "2025-03-08T12:00:00Z", "2025-03-10T12:00:00Z",
			"2025-03-09T03:00:00-04:00 2025-03-10T02:00:00-04:00",
		},
		"gap, 02:30": {
			"America/New_York", "30 2 * * *", "2025-03-08T12:00:00Z", "2025-03-10T12:00:00Z",
			"2025-03-09T03:00:00-04:00 2025-03-10T02:30:00-04:00",
		},
		"gap, several times in it and one at its end fire once": {
			"America/New_York", "0,30 2,3 * * *", "2025-03-09T05:00:00Z", "2025-03-09T12:00:00Z",
			"2025-03-09T03:00:00-04:00 2025-03-09T03:30:00-04:00",
		},
		"gap at midnight": {
			"America/Santiago", "0 0 * * *", "2024-09-07T12:00:00Z", "2024-09-09T12:00:00Z",
			"2024-09-08T01:00:00-03:00 2024-09-09T00:00:00-03:00",
		},
		"gap, every minute goes on": {
			"America/New_York", "* * * * *", "2025-03-09T06:58:00Z", "2025-03-09T07:01:00Z",
			"2025-03-09T01:59:00-05:00 2025-03-09T03:00:00-04:00 2025-03-09T03:01:00-04:00",
		},
		"gap, every second hour misses what the clock does not show": {
			"America/New_York", "0 */2 * * *", "2025-03-09T04:00:00Z", "2025-03-09T09:00:00Z",
			"2025-03-09T00:00:00-05:00 2025-03-09T04:00:00-04:00",
		},
		"gap, a step that leaves one hour is a fixed time": {
			"America/Santiago", "0 */24 * * *", "2024-09-08T00:00:00Z", "2024-09-08T12:00:00Z",
			"2024-09-08T01:00:00-03:00",
		},
		"overlap, 02:00": {
			"Europe/Berlin", "0 2 * * *", "2023-10-28T23:00:00Z", "2023-10-30T03:00:00Z",
			"2023-10-29T02:00:00+02:00 2023-10-30T02:00:00+01:00",
		},
		"overlap, asked between the two": {
			"Europe/Berlin", "0 2 * * *", "2023-10-29T00:30:00Z", "2023-10-29T12:00:00Z", "",
		},
		"overlap, every half hour goes on": {
			"Europe/Berlin", "*/30 * * * *", "2023-10-28T23:59:00Z", "2023-10-29T02:00:00Z",
			"2023-10-29T02:00:00+02:00 2023-10-29T02:30:00+02:00 2023-10-29T02:00:00+01:00 2023-10-29T02:30:00+01:00 2023-10-29T03:00:00+01:00",
		},
		"all hours spelled out follow real time": {
			"Europe/Berlin", "0 0-23 * * *", "2023-10-28T23:59:00Z", "2023-10-29T01:00:00Z",
			"2023-10-29T02:00:00+02:00 2023-10-29T02:00:00+01:00",
		},
		"the zone counts, not UTC": {
			"Europe/Paris", "0 19 * * *", "2017-06-14T17:00:00Z", "2017-06-15T17:00:00Z",
			"2017-06-15T19:00:00+02:00",
		},
		"seconds": {
			"UTC", "*/20 59 23 31 12 *", "2025-12-31T23:59:00Z", "2026-12-31T23:59:10Z",
			"2025-12-31T23:59:20Z 2025-12-31T23:59:40Z 2026-12-31T23:59:00Z",
		},
		"29 February over a century": {
			"UTC", "0 0 29 2 *", "2092-03-01T00:00:00Z", "2108-03-01T00:00:00Z",
			"2096-02-29T00:00:00Z 2104-02-29T00:00:00Z 2108-02-29T00:00:00Z",
		},
		"29 February that is a Sunday": {
			"UTC", "0 0 29 2 */7", "2080-01-01T00:00:00Z", "2150-01-01T00:00:00Z",
			"2088-02-29T00:00:00Z 2128-02-29T00:00:00Z",
		},
		"the 31st, seven times a year": {
			"UTC", "0 0 31 * *", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z",
			"2025-01-31T00:00:00Z 2025-03-31T00:00:00Z 2025-05-31T00:00:00Z 2025-07-31T00:00:00Z 2025-08-31T00:00:00Z 2025-10-31T00:00:00Z 2025-12-31T00:00:00Z",
		},
		"either field of days": {
			"UTC", "0 0 13 * FRI", "2025-06-01T00:00:00Z", "2025-06-20T00:00:00Z",
			"2025-06-06T00:00:00Z 2025-06-13T00:00:00Z 2025-06-20T00:00:00Z",
		},
		"both fields of days after a star": {
			"UTC", "0 0 */2 * FRI", "2025-06-01T00:00:00Z", "2025-06-30T00:00:00Z",
			"2025-06-13T00:00:00Z 2025-06-27T00:00:00Z",
		},
		"names, ranges and Sunday as the end": {
			"UTC", "0 12 ? jun Sat-Sun", "2025-06-01T12:00:00Z", "2025-06-09T00:00:00Z",
			"2025-06-07T12:00:00Z 2025-06-08T12:00:00Z",
		},
		"@weekly": {"UTC", "@weekly", "2025-06-02T00:00:00Z", "2025-06-15T00:00:00Z", "2025-06-08T00:00:00Z 2025-06-15T00:00:00Z"},
		"@yearly": {"Asia/Tokyo", "@yearly", "2025-06-02T00:00:00Z", "2026-06-15T00:00:00Z", "2026-01-01T00:00:00+09:00"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := parse(t, test.expression, test.zone)
			var got []string
			for _, o := range s.Between(at(t, test.from), at(t, test.to), 100) {
				got = append(got, o.Format(time.RFC3339))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%s in %s:\n got %s\nwant %s", test.expression, test.zone, strings.Join(got, " "), test.want)
			}
		})
	}
}

// B16: the phase is the anchor's, whoever asks and whenever.
func TestEveryKeepsItsPhase(t *testing.T) {
	anchor := at(t, "2025-03-09T06:30:07.9Z")
	s, err := Parse("@every 90s", "America/New_York", anchor)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[string]string{
		"2025-03-09T06:30:07Z":           "2025-03-09T06:31:37Z",
		"2025-03-09T06:31:36.999999999Z": "2025-03-09T06:31:37Z",
		"2025-03-09T06:31:37Z":           "2025-03-09T06:33:07Z",
		"2025-03-09T06:30:06Z":           "2025-03-09T06:30:07Z",
		"2025-03-09T06:27:00Z":           "2025-03-09T06:27:07Z",
		"2525-03-09T06:30:07Z":           "2525-03-09T06:31:37Z", // further than a time.Duration reaches
	} {
		got, ok := s.Next(at(t, after))
		if !ok || !got.Equal(at(t, want)) {
			t.Errorf("after %s: %v, want %s", after, got.UTC(), want)
		}
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct{ expression, zone, field, reason string }{
		{"", "", "expression", "this has 0"},
		{"* * * *", "", "expression", "this has 4"},
		{"0 0 * * * * 2026", "", "expression", "this has 7"},
		{"60 * * * *", "", "minute", `"60" is not a number from 0 to 59`},
		{"61 * * * * *", "", "second", "from 0 to 59"},
		{"* 24 * * *", "", "hour", "from 0 to 23"},
		{"* * 0 * *", "", "day of month", "from 1 to 31"},
		{"* * L * *", "", "day of month", `"L" is not`},
		{"* * * 13 *", "", "month", "a name from JAN to DEC"},
		{"* * * * 8", "", "day of week", "from 0 to 7 or a name from SUN to SAT"},
		{"* * * * MONDAY", "", "day of week", "MONDAY"},
		{"* * * * 5#2", "", "day of week", "5#2"},
		{"* 22-2 * * *", "", "hour", "runs backwards"},
		{"*/0 * * * *", "", "minute", "from 1"},
		{"*/+5 * * * *", "", "minute", "from 1"},
		{"*/90 * * * *", "", "minute", "@every"},
		{"-5 * * * *", "", "minute", `"" is not`},
		{"1,,2 * * * *", "", "minute", `"" is not`},
		{"? * * * *", "", "minute", "only in the fields of days"},
		{"* * ?/2 * *", "", "day of month", "stands alone"},
		{"CRON_TZ=UTC * * * * *", "", "expression", "field of its own"},
		{"@reboot", "", "expression", "@hourly"},
		{"@every 500ms", "", "expression", "whole seconds"},
		{"@every 1m0.5s", "", "expression", "whole seconds"},
		{"@every -1h", "", "expression", "whole seconds"},
		{"@every 8785h", "", "expression", "8784h"},
		{"@every", "", "expression", "@every 90s"},
		{strings.Repeat("1,", 127) + "1 * * * *", "", "expression", "at most 255 bytes"},
		{"* * * * *", "Local", "time_zone", "IANA"},
		{"* * * * *", "localtime", "time_zone", "IANA"},
		{"* * * * *", "Europe/Atlantis", "time_zone", "IANA"},
		{"* * * * *", "../etc/passwd", "time_zone", "IANA"},
		{"* * * * *", strings.Repeat("A", 64), "time_zone", "at most 63 bytes"},
	}
	for _, test := range tests {
		_, err := Parse(test.expression, test.zone, time.Time{})
		var refusal *ParseError
		if !errors.As(err, &refusal) || refusal.Field != test.field || !strings.Contains(refusal.Reason, test.reason) || errors.Is(err, ErrNever) {
			t.Errorf("%q in %q: %v, want %s: ...%s", test.expression, test.zone, err, test.field, test.reason)
		}
	}
}

// B13: what never fires is refused, and what fires seldom is not.
func TestImpossibleDates(t *testing.T) {
	for _, expression := range []string{"0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * * 30-31 2 */2", "30 2/24 31 2 ?"} {
		if _, err := Parse(expression, "Europe/Berlin", time.Time{}); !errors.Is(err, ErrNever) {
			t.Errorf("%q: %v, want %v", expression, err, ErrNever)
		}
	}
	// Real time, and a time that the clock last showed on such a day in 2004: Next says so, after a bounded search.
	if next, ok := parse(t, "30 1-2/1 25-31 3 */7", "Antarctica/Troll").Next(day(2026, 1, 1)); ok {
		t.Errorf("always in the gap: %v", next)
	}
	for _, expression := range []string{"0 0 29 2 *", "0 0 31 * *", "0 0 31 2 MON", "0 0 29 2 */7"} {
		parse(t, expression, "Europe/Berlin")
	}
}

func TestTheEndOfTime(t *testing.T) {
	s := parse(t, "@daily", "Pacific/Kiritimati")
	for _, after := range []time.Time{time.Unix(1<<60, 0), time.Unix(instantMax, 0)} {
		if next, ok := s.Next(after); ok {
			t.Errorf("after %v: %v", after, next)
		}
	}
	if prev, ok := s.Prev(time.Unix(-1<<60, 0)); ok {
		t.Errorf("before everything: %v", prev)
	}
	if first, ok := s.Next(time.Time{}); !ok || first.Year() != 1 {
		t.Errorf("after the zero time: %v, %v", first, ok)
	}
}

// B12: however long the outage, the last occurrences and their number are found at once. A loop over a year of seconds would be
// seen here: the test makes thousands of calls.
func TestLongOutagesCostNothing(t *testing.T) {
	s := parse(t, "* * * * * *", "Europe/Berlin")
	from, to := at(t, "2025-01-01T00:00:00Z"), at(t, "2026-01-01T00:00:00.5Z")
	for range 2000 {
		last := s.Latest(from, to, 3)
		if want := []int64{to.Unix() - 2, to.Unix() - 1, to.Unix()}; !slices.Equal(seconds(last), want) {
			t.Fatalf("%v, want %v", seconds(last), want)
		}
		if n := s.Count(from, to); n != 365*daySeconds {
			t.Fatalf("%d, want %d", n, 365*daySeconds)
		}
	}
}
