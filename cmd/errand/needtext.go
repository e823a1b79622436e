package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/errandhq/errand"
)

// How people write what a task needs of a worker.

// processors are thousandths of a processor, written in whole ones: 0.5.
type processors int

// UnmarshalText reads them.
func (p *processors) UnmarshalText(raw []byte) error {
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(n >= 0 && n <= 1024) || math.Abs(n*1000-math.Round(n*1000)) > 1e-6 {
		return fmt.Errorf("%q is not a number of processors: 0 to 1024, with up to three decimals", raw)
	}
	*p = processors(math.Round(n * 1000))
	return nil
}

// UnmarshalJSON takes a number too.
func (p *processors) UnmarshalJSON(raw []byte) error {
	return numberOrText("cpu", raw, p.UnmarshalText)
}

// mebibytes are MiB, written as such or with a unit: 512, 512Mi, 1.5Gi.
type mebibytes int

var memoryUnits = map[string]float64{"": 1, "Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}

// UnmarshalText reads them.
func (m *mebibytes) UnmarshalText(raw []byte) error {
	const most = 16 << 20
	text := string(raw)
	digits := strings.TrimRight(text, "TGMi")
	unit, known := memoryUnits[text[len(digits):]]
	n, err := strconv.ParseFloat(digits, 64)
	if n *= unit; err != nil || !known || !(n >= 0 && n <= most) || n != math.Trunc(n) {
		return fmt.Errorf("%q is not an amount of memory: whole MiB up to 16Ti, or with one of the units Mi, Gi, Ti", raw)
	}
	*m = mebibytes(n)
	return nil
}

// UnmarshalJSON takes a number too.
func (m *mebibytes) UnmarshalJSON(raw []byte) error {
	return numberOrText("memory", raw, m.UnmarshalText)
}

// numberOrText names the field, which the reader of JSON does not.
func numberOrText(field string, raw []byte, read func([]byte) error) error {
	text := string(raw)
	if quoted := ""; json.Unmarshal(raw, &quoted) == nil {
		text = quoted
	}
	if err := read([]byte(text)); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// selectorOf reads a condition on a label: key=a,b key!=a,b key>5 key<5 or key. A key has none of the signs in it.
func selectorOf(text string) (errand.Selector, error) {
	at := strings.IndexAny(text, "=!<>")
	if at < 0 {
		at = len(text)
	}
	s, rest := errand.Selector{Key: text[:at], Operator: errand.Exists}, text[at:]
	switch {
	case s.Key == "" && strings.HasPrefix(rest, "!"):
		return s, fmt.Errorf("%q: a label cannot be asked to be missing; KEY!=VALUE also holds where there is none", text)
	case s.Key == "" || s.Key != strings.TrimSpace(s.Key):
		return s, fmt.Errorf("%q is not KEY=VALUE,... KEY!=VALUE,... KEY>NUMBER KEY<NUMBER or KEY", text)
	case rest == "":
	case strings.HasPrefix(rest, "!="):
		s.Operator, s.Values = errand.NotIn, strings.Split(rest[2:], ",")
	case rest[0] == '=':
		s.Operator, s.Values = errand.In, strings.Split(rest[1:], ",")
	case rest[0] == '!':
		return s, fmt.Errorf("%q: after ! comes =", text)
	default:
		if n, err := strconv.ParseFloat(rest[1:], 64); err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return s, fmt.Errorf("%q: %q is not a number", text, rest[1:])
		}
		s.Operator, s.Values = errand.Greater, []string{rest[1:]}
		if rest[0] == '<' {
			s.Operator = errand.Less
		}
	}
	return s, nil
}

var operatorSigns = map[errand.Operator]string{errand.In: "=", errand.NotIn: "!=", errand.Greater: ">", errand.Less: "<"}

// selectorText is the other way round, for people: a value with a comma looks like two.
func selectorText(s *errand.Selector) string {
	return s.Key + operatorSigns[s.Operator] + strings.Join(s.Values, ",")
}

// preferenceOf reads WEIGHT:CONDITION.
func preferenceOf(text string) (errand.Preference, error) {
	before, condition, found := strings.Cut(text, ":")
	weight, err := strconv.Atoi(before)
	if !found || err != nil || weight < 1 || weight > 100 {
		return errand.Preference{}, fmt.Errorf("%q is not WEIGHT:CONDITION with a weight of 1 to 100", text)
	}
	s, err := selectorOf(condition)
	return errand.Preference{Selector: s, Weight: weight}, err
}

func preferenceText(p *errand.Preference) string {
	return strconv.Itoa(p.Weight) + ":" + selectorText(&p.Selector)
}

// eachOf reads a list, nil for an empty one.
func eachOf[T any](texts []string, read func(string) (T, error)) ([]T, error) {
	var list []T
	var bad []error
	for _, text := range texts {
		one, err := read(text)
		list, bad = append(list, one), append(bad, err)
	}
	return list, errors.Join(bad...)
}

// textsOf is the other way round.
func textsOf[T any](list []T, text func(*T) string) string {
	var texts []string
	for i := range list {
		texts = append(texts, text(&list[i]))
	}
	return strings.Join(texts, ", ")
}

// needsText shows amounts; empty for none.
func needsText(r errand.Requirements) string {
	var parts []string
	if r.CPUMilli > 0 {
		parts = append(parts, "cpu "+number(float64(r.CPUMilli)/1000))
	}
	for _, a := range []struct {
		format string
		amount int
	}{{"mem %dMi", r.MemoryMiB}, {"gpu %d", r.GPUs}, {"gpu %dm", r.GPUMilli}, {"slots %d", r.Slots}} {
		if a.amount > 0 {
			parts = append(parts, fmt.Sprintf(a.format, a.amount))
		}
	}
	return strings.Join(parts, " ")
}
