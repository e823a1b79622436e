package cron

import (
	"testing"
	"time"
)

// Whatever Parse takes, every way to walk the occurrences agrees with the others, and goes strictly on.
func FuzzSchedules(f *testing.F) {
	for _, expression := range []string{
		"* * * * *", "30 2 * * *", "0 0 29 2 */7", "*/7 1-5/2 ? JAN-MAR MON,WED", "59 59 23 31 12 *", "@every 90s", "@weekly", "0 0 31 2 *", "1-/,", "30 1-2/1 25-31 3 */7",
	} {
		f.Add(expression, "Europe/Berlin", int64(1_743_296_400), int64(7_200))
		f.Add(expression, "America/Santiago", int64(1_725_768_000), int64(90_000))
		f.Add(expression, "Pacific/Apia", int64(1_325_200_000), int64(90_000))
	}
	f.Fuzz(func(t *testing.T, expression, zone string, from, length int64) {
		s, err := Parse(expression, zone, time.Unix(from/2, 0))
		if err != nil {
			return
		}
		start := time.Unix(from, from&1)
		end := start.Add(time.Duration(clampLength(length)) * time.Second)
		all := s.Between(start, end, 50)
		before := start
		for _, o := range all {
			if !o.After(before) || o.After(end) {
				t.Fatalf("%s in %s: %v does not come after %v and up to %v", expression, zone, o, before, end)
			}
			if prev, ok := s.Prev(o.Add(1)); !ok || !prev.Equal(o) {
				t.Fatalf("%s in %s: back from %v: %v", expression, zone, o, prev)
			}
			before = o
		}
		if len(all) < 50 {
			if n := s.Count(start, end); n != int64(len(all)) {
				t.Fatalf("%s in %s: %d counted, %d listed", expression, zone, n, len(all))
			}
			if back := s.Latest(start, end, 51); len(back) != len(all) {
				t.Fatalf("%s in %s: %d listed backwards, %d forwards", expression, zone, len(back), len(all))
			}
		}
	})
}

func clampLength(n int64) int64 {
	return max(0, n) % (10 * 366 * daySeconds)
}

// What is well-formed is within the bounds; what is not says in which field.
func FuzzParse(f *testing.F) {
	for _, expression := range []string{"* * * * *", "*/5,1-3 0 L * 7", "@every 1h", "@", "? ? ? ? ?", "0 0 1 1 1 1"} {
		f.Add(expression)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		s, err := Parse(expression, "UTC", time.Time{})
		if err != nil {
			if err.Error() == "" {
				t.Fatal("no reason")
			}
			return
		}
		again, err := Parse(s.String(), "UTC", time.Time{})
		if err != nil || *again != *s {
			t.Fatalf("%q: read again it is something else: %v", expression, err)
		}
	})
}
