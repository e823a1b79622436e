package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// field is one of an expression's fields: its name, the values it may have, and their names.
type field struct {
	name     string
	min, max int
	names    []string // of min, min+1 ...
	days     bool     // ? stands for *
}

var (
	secondField = field{name: "second", max: 59}
	minuteField = field{name: "minute", max: 59}
	hourField   = field{name: "hour", max: 23}
	domField    = field{name: "day of month", min: 1, max: 31, days: true}
	monthField  = field{name: "month", min: 1, max: 12, names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
	}}
	// dowField ends with 7, Sunday again; values folds it into 0.
	dowField = field{name: "day of week", max: sundayAgain, days: true, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}}
)

// sundayAgain is what crontabs that count from Monday call Sunday.
const sundayAgain = 7

// values are what a field matches.
type values struct {
	set  uint64 // bit n: n matches
	star bool   // it begins with * or ?
	wild bool   // a part of it is *, ? or has a step
}

// parse reads a field's text: a list of parts.
func (f field) parse(text string) (values, error) {
	v := values{star: strings.HasPrefix(text, "*") || text == "?"}
	for part := range strings.SplitSeq(text, ",") {
		set, wild, err := f.part(part)
		if err != "" {
			return values{}, &ParseError{Field: f.name, Value: text, Reason: err}
		}
		v.set |= set
		v.wild = v.wild || wild
	}
	if f.max == sundayAgain && v.set&(1<<sundayAgain) != 0 {
		v.set = v.set&^(1<<sundayAgain) | 1
	}
	return v, nil
}

// part reads a value, a range or *, with a step or without one. The reason of a refusal is empty when there is none.
func (f field) part(part string) (set uint64, wild bool, reason string) {
	span, every, stepped := strings.Cut(part, "/")
	low, high, wild, reason := f.span(span, stepped)
	if reason != "" || !stepped {
		return between(low, high, 1), wild, reason
	}
	step, err := strconv.ParseUint(every, 10, 16)
	if err != nil || step == 0 || !digits(every) {
		return 0, false, fmt.Sprintf("the step in %q has to be a number from 1", part)
	}
	if count := f.count(); int(step) > count {
		return 0, false, fmt.Sprintf("the step in %q is larger than the %d values there are; @every DURATION knows longer ones", part, count)
	}
	return between(low, high, int(step)), true, ""
}

// span reads what stands before a step: the first and last value.
func (f field) span(span string, stepped bool) (low, high int, wild bool, reason string) {
	switch {
	case span == "*", span == "?" && f.days && !stepped:
		return f.min, f.min + f.count() - 1, true, ""
	case span == "?":
		return 0, 0, false, "? stands alone, and only in the fields of days"
	}
	from, to, ranged := strings.Cut(span, "-")
	if low, reason = f.value(from); reason != "" {
		return 0, 0, false, reason
	}
	switch {
	case ranged:
		high, reason = f.value(to)
		if high == 0 && low > 0 && f.max == sundayAgain {
			high = sundayAgain // FRI-SUN
		}
	case stepped:
		high = f.min + f.count() - 1 // a/n goes on to the end
		high = max(high, low)
	default:
		high = low
	}
	if reason == "" && high < low {
		reason = fmt.Sprintf("the range %q runs backwards; a list of two ranges goes around", span)
	}
	return low, high, false, reason
}

// value reads a number or a name.
func (f field) value(text string) (int, string) {
	for i, name := range f.names {
		if strings.EqualFold(name, text) {
			return f.min + i, ""
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || !digits(text) || n < f.min || n > f.max {
		what := fmt.Sprintf("%q is not a number from %d to %d", text, f.min, f.max)
		if len(f.names) > 0 {
			what += fmt.Sprintf(" or a name from %s to %s", f.names[0], f.names[len(f.names)-1])
		}
		return 0, what
	}
	return n, ""
}

// count is how many different values there are; 7 is Sunday again.
func (f field) count() int {
	if f.max == sundayAgain {
		return sundayAgain
	}
	return f.max - f.min + 1
}

// digits refuses the signs that strconv takes.
func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// between are the values from low to high, step apart.
func between(low, high, step int) uint64 {
	var set uint64
	for v := low; v <= high; v += step {
		set |= 1 << v
	}
	return set
}

// lowest is the first value of a set from n on.
func lowest(set uint64, n int) (int, bool) {
	set = set >> n << n
	return bits.TrailingZeros64(set), set != 0
}

// highest is the last value of a set up to n.
func highest(set uint64, n int) (int, bool) {
	set &= upTo(n)
	return bits.Len64(set) - 1, set != 0
}

// upTo are the values 0 to n; none when n is -1.
func upTo(n int) uint64 {
	return 1<<(n+1) - 1
}
