package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/errandhq/errand"
)

// watchCmd tells what becomes of tasks.
type watchCmd struct {
	IDs   []string          `arg:"" optional:"" name:"id" help:"Tasks' handles; it ends with the last of them. Default all of the tenant's, until Ctrl-C."`
	State []string          `help:"Tell only these states: ${enum}." enum:"scheduled,ready,running,blocked,succeeded,failed,canceled,expired" env:"-" placeholder:"STATE,..."`
	Kind  []string          `help:"Any of these kinds." env:"-" placeholder:"KIND,..."`
	Label map[string]string `help:"All of these labels; may be repeated." env:"-" placeholder:"KEY=VALUE"`
	clientSettings
	outputSettings
}

// Run prints a line for each change; the open tasks come first. With -o json each line is an object. It ends with 6 when a task that
// was named did not succeed.
func (c *watchCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	filter := errand.Filter{Kinds: c.Kind, Labels: c.Label}
	for _, word := range c.State {
		filter.States = append(filter.States, states[word])
	}
	bad := false
	for t, err := range client.Watch(ctx, filter, c.IDs, true) {
		switch {
		case err != nil && len(c.IDs) == 0 && errors.Is(ctx.Err(), context.Canceled):
			return nil // Ctrl-C is how it ends
		case err != nil:
			return err
		}
		if err := c.line(&t); err != nil {
			return err
		}
		bad = bad || (t.State.Ended() && t.State != errand.Succeeded)
	}
	if bad && len(c.IDs) > 0 {
		return errQuiet
	}
	return nil
}

// line prints one change at once: whoever reads it may be another program.
func (c *watchCmd) line(t *errand.Task) error {
	if c.Output == "json" {
		e := json.NewEncoder(os.Stdout)
		e.SetEscapeHTML(false)
		return e.Encode(summaryOf(t))
	}
	at, what := time.Now(), ""
	switch {
	case t.State.Ended():
		at, what = t.EndedAt, "ran "+between(t.StartedAt, t.EndedAt)
		if t.Reason != "" {
			what += ", " + t.Reason + ": " + printable([]byte(t.Message))
		}
	case t.State == errand.Running:
		at, what = t.StartedAt, "attempt "+strconv.FormatInt(t.Attempt, 10)+" on "+t.Worker
	case t.State == errand.Scheduled:
		what = "due " + moment(t.Due)
	}
	_, err := fmt.Printf("%s  %s  %-10s %-12s %s\n", at.Local().Format("15:04:05.000"), t.ID, t.State, printable([]byte(t.Kind)), what)
	return err
}
