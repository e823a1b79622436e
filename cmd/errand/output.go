package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// outputSettings say how results are printed.
type outputSettings struct {
	Output string `help:"table or json." short:"o" enum:"table,json" default:"table"`
}

// print shows rows as a table, or the value as JSON.
func (o *outputSettings) print(value any, header []string, rows [][]string) error {
	if o.Output == "json" {
		return printJSON(os.Stdout, value)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(w, strings.Join(header, "\t")); err != nil {
		return err
	}
	for _, row := range rows {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

func printJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// ago shows how long ago something was.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

// printable makes bytes of unknown kind fit for a terminal.
func printable(b []byte) string {
	const most = 200
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}
