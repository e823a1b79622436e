package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// table is what people read; the JSON is for programs.
type table struct{ w *tabwriter.Writer }

func newTable(columns ...string) table {
	t := table{tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t table) flush() {
	_ = t.w.Flush() // to a terminal or a pipe that somebody closed
	fmt.Println()
}

// writeJSON writes results to a file, if one is named.
func writeJSON(file string, out any) error {
	if file == "" {
		return nil
	}
	raw, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(file), append(raw, '\n'), 0o644)
}

// progress shows how far a measurement is, to people only.
func progress(steps int, about string) *progressbar.ProgressBar {
	return progressbar.NewOptions(steps, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription(about),
		progressbar.OptionThrottle(progressEvery), progressbar.OptionSetVisibility(term.IsTerminal(int(os.Stderr.Fd()))))
}

const progressEvery = 100 * time.Millisecond
