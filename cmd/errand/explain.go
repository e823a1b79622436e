package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/errandhq/errand"
)

// explainCmd says why a task does not run.
type explainCmd struct {
	ID string `arg:"" optional:"" help:"The task's handle."`
	// What a task would say that is not submitted.
	Kind string `help:"Without a handle: the kind of a task that might be submitted." env:"-"`
	Tier string `help:"With --kind: its tier." enum:",urgent,standard,deferrable" default:"" env:"-"`
	clientSettings
	outputSettings
}

// Help follows the arguments and flags.
func (*explainCmd) Help() string {
	return `Says the first thing that keeps a task from running, the workers that come closest with what each lacks, the smallest change that
would let it run, and what became of its attempts. With --kind it answers for a task that is not submitted.

    errand explain eu.0c0t4f0sccrexqmrdc39afv9k4
    errand explain --kind encode`
}

// Validate checks the flags together.
func (c *explainCmd) Validate() error {
	switch {
	case c.ID == "" && c.Kind == "":
		return errors.New("a task's handle, or --kind, is needed")
	case c.ID != "" && (c.Kind != "" || c.Tier != ""):
		return errors.New("--kind and what goes with it are for a task that is not submitted: not together with a handle")
	}
	return nil
}

// Run explains it.
func (c *explainCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var e errand.Explanation
	if c.ID != "" {
		e, err = client.Explain(ctx, c.ID)
	} else {
		e, err = client.ExplainSpec(ctx, errand.Spec{Kind: c.Kind, Tier: tiers[c.Tier]})
	}
	switch {
	case err != nil && c.ID != "":
		return fmt.Errorf("%s: %w", c.ID, err)
	case err != nil:
		return err
	case c.Output == "json":
		return printJSON(os.Stdout, explanationViewOf(&e))
	}
	return c.tell(&e)
}

// tell prints an explanation for people.
func (c *explainCmd) tell(e *errand.Explanation) error {
	rows := [][]string{{"reason", e.Reason}, {"message", e.Message}}
	if e.Position > 0 {
		rows = append(rows, []string{"before it", strconv.Itoa(e.Position)})
	}
	if !e.Start.IsZero() {
		rows = append(rows, []string{"starts about", moment(e.Start)})
	}
	if e.Suggestion != "" {
		rows = append(rows, []string{"to let it run", e.Suggestion})
	}
	if err := c.print(nil, nil, rows); err != nil {
		return err
	}
	var workers, attempts [][]string
	for _, w := range e.Closest {
		lacks := strings.Join(w.Lacks, "; ")
		if lacks == "" {
			lacks = "nothing"
		}
		workers = append(workers, []string{w.Name, w.Worker, lacks})
	}
	for _, a := range e.Attempts {
		attempts = append(attempts, []string{strconv.FormatInt(a.Number, 10), a.Worker, moment(a.Started), between(a.Started, a.Ended), howEnded(&a)})
	}
	for _, part := range []struct {
		header []string
		rows   [][]string
	}{{[]string{"CLOSEST", "WORKER", "LACKS"}, workers}, {[]string{"ATTEMPT", "WORKER", "STARTED", "RAN", "ENDED"}, attempts}} {
		if len(part.rows) == 0 {
			continue
		}
		fmt.Println()
		if err := c.print(nil, part.header, part.rows); err != nil {
			return err
		}
	}
	return nil
}

func howEnded(a *errand.PastAttempt) string {
	switch {
	case a.Ended.IsZero():
		return "runs"
	case a.Reason == "":
		return "by itself"
	case a.Counted:
		return strings.TrimSuffix(a.Reason+": "+a.Message, ": ")
	default:
		return strings.TrimSuffix(a.Reason+": "+a.Message, ": ") + " (not counted)"
	}
}

// explanationView is the shape of explain -o json.
type explanationView struct {
	Reason         string        `json:"reason"`
	Message        string        `json:"message"`
	Position       int           `json:"position"`
	EstimatedStart *time.Time    `json:"estimated_start"`
	Suggestion     string        `json:"suggestion"`
	ClosestWorkers []closeView   `json:"closest_workers"`
	Attempts       []attemptView `json:"attempts"`
}

type closeView struct {
	Worker string   `json:"worker"`
	Name   string   `json:"name"`
	Lacks  []string `json:"lacks"`
}

type attemptView struct {
	Number    int64      `json:"number"`
	Worker    string     `json:"worker"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Reason    string     `json:"reason"`
	Message   string     `json:"message"`
	Counted   bool       `json:"counted"`
}

func explanationViewOf(e *errand.Explanation) explanationView {
	v := explanationView{
		Reason: e.Reason, Message: e.Message, Position: e.Position, EstimatedStart: known(e.Start), Suggestion: e.Suggestion,
		ClosestWorkers: []closeView{}, Attempts: []attemptView{},
	}
	for _, w := range e.Closest {
		lacks := w.Lacks
		if lacks == nil {
			lacks = []string{}
		}
		v.ClosestWorkers = append(v.ClosestWorkers, closeView{Worker: w.Worker, Name: w.Name, Lacks: lacks})
	}
	for _, a := range e.Attempts {
		v.Attempts = append(v.Attempts, attemptView{
			Number: a.Number, Worker: a.Worker, StartedAt: known(a.Started), EndedAt: known(a.Ended), Reason: a.Reason, Message: a.Message, Counted: a.Counted,
		})
	}
	return v
}
