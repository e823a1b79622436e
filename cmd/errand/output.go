package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// outputSettings say how results are printed.
type outputSettings struct {
	Output string `help:"table or json." short:"o" enum:"table,json" default:"table"`
}

// print shows rows as a table, or the value as JSON. Cells are what tenants and workers wrote: none can change the terminal.
func (o *outputSettings) print(value any, header []string, rows [][]string) error {
	if o.Output == "json" {
		return printJSON(os.Stdout, value)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if len(header) > 0 {
		rows = append([][]string{header}, rows...)
	}
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t ")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// say prints a sentence, or the value as JSON.
func (o *outputSettings) say(value any, format string, args ...any) error {
	if o.Output == "json" {
		return printJSON(os.Stdout, value)
	}
	_, err := fmt.Printf(format+"\n", args...)
	return err
}

func printJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// ago shows how long ago something was, or how soon it will be.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := time.Since(t)
	if d < 0 {
		return "in " + short(-d)
	}
	return short(d) + " ago"
}

// moment shows a time by the clock and by how far away it is.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST") + " (" + ago(t) + ")"
}

// short shows a time span in at most two units, as exact as people care for.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		if d = d.Round(time.Second); d >= time.Minute && d%time.Minute == 0 {
			return fmt.Sprintf("%dm", d/time.Minute)
		}
		return d.String()
	case d < 2*day:
		minutes := d.Round(time.Minute) / time.Minute
		return fmt.Sprintf("%dh%dm", minutes/60, minutes%60)
	}
	return fmt.Sprintf("%dd", d/day)
}

// between shows how long it was from one time to another, as far as both are known.
func between(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "-"
	}
	return short(max(to.Sub(from), 0))
}

// dash stands for what is empty, so that columns can be told apart.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printableMax is the most bytes that are shown of a payload, a result or a message.
const printableMax = 200

// clean makes a text that others wrote fit for a terminal, on one line.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// escaped is a text that others wrote, on one line: whatever is not plainly visible is shown as its code, so that two names that differ
// look different.
func escaped(s string) string {
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// printable makes bytes of unknown kind fit for a terminal, and short.
func printable(b []byte) string {
	s := clean(string(b))
	if len(s) <= printableMax {
		return s
	}
	end := printableMax
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
