package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/errandhq/errand"
)

// tally is what became of the lines so far.
type tally struct {
	stored  int
	existed int
	demoted int // of those stored
	atRisk  int // of those stored
	refused int
	first   error // why the first of the refused was
}

// manyView is what -o json prints for every line, each on a line of its own.
type manyView struct {
	Line    int    `json:"line"`
	TaskID  string `json:"task_id"` // empty when it was refused
	State   string `json:"state"`
	Existed bool   `json:"existed"`
	Demoted bool   `json:"demoted"`
	Error   string `json:"error"` // empty when it is stored

	EstimatedStart *time.Time `json:"estimated_start"`
	AtRisk         string     `json:"at_risk"` // why; empty when it is not
}

// many submits a task for every line, batch by batch. A bad line stops it before anything of its batch is stored.
func (c *submitCmd) many(ctx context.Context, client *errand.Client, defaults *errand.Spec) error {
	in, name, err := openMany(c.Many)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	began, line := time.Now(), newProgress()
	defer line.clear()
	var t tally
	for r := newSpecReader(in, defaults); ; {
		b, bad, err := r.next()
		if err != nil {
			return fmt.Errorf("%s: %w; %s", name, err, t.before(b.first))
		}
		if len(bad) > 0 {
			return badLines(name, &b, bad, &t)
		}
		if len(b.specs) == 0 && b.last < b.first {
			break
		}
		if err := c.send(ctx, client, name, &b, &t); err != nil {
			return err
		}
		line.show(fmt.Sprintf("%d tasks stored, %s", t.stored+t.existed, short(time.Since(began))))
	}
	line.clear()
	return c.summary(&t, time.Since(began))
}

func openMany(name string) (io.ReadCloser, string, error) {
	if name == "-" {
		return io.NopCloser(os.Stdin), "standard input", nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, "", fmt.Errorf("%w: --many: %w", errUsage, err)
	}
	return f, name, nil
}

// send stores a batch and notes what became of it.
func (c *submitCmd) send(ctx context.Context, client *errand.Client, name string, b *specBatch, t *tally) error {
	if len(b.specs) == 0 {
		return nil
	}
	outcomes, err := client.SubmitMany(ctx, b.specs)
	if err != nil {
		if line, text, is := b.blame(err); is {
			return badLines(name, b, []lineError{{line, errors.New(text)}}, t)
		}
		return fmt.Errorf("%s: lines %d to %d: %w; %s", name, b.first, b.last, err, t.before(b.first))
	}
	for i, o := range outcomes {
		v := manyView{Line: b.lines[i], TaskID: o.ID, State: o.State.String(), Existed: o.Existed, Demoted: o.Demoted}
		switch {
		case o.Err != nil:
			t.refuse(b.lines[i], o.Err)
			v = manyView{Line: b.lines[i], Error: strings.TrimPrefix(o.Err.Error(), "errand: ")}
		case o.Existed:
			t.existed++
		default:
			v.EstimatedStart, v.AtRisk = known(o.EstimatedStart), o.AtRisk
			if o.AtRisk != "" {
				t.atRisk++
			}
			t.stored++
		}
		if o.Demoted {
			t.demoted++
		}
		if c.Output == "json" {
			if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// complaintsMax is how many bad lines are told one by one.
const complaintsMax = 10

func (t *tally) refuse(line int, err error) {
	t.refused++
	if t.first == nil {
		t.first = err
	}
	if t.refused <= complaintsMax {
		fmt.Fprintf(os.Stderr, "errand: line %d: %s\n", line, strings.TrimPrefix(err.Error(), "errand: "))
	}
}

// before says what happened to the lines before one.
func (t *tally) before(line int) string {
	if line == 1 {
		return "nothing was stored before"
	}
	return fmt.Sprintf("the lines before line %d are done (%d stored, %d existed, %d refused)", line, t.stored, t.existed, t.refused)
}

// blame finds the line that a refusal of the whole batch is about.
func (b *specBatch) blame(err error) (line int, text string, is bool) {
	var e *errand.Error
	if !errors.Is(err, errand.ErrInvalid) || !errors.As(err, &e) {
		return 0, "", false
	}
	index, field, is := strings.Cut(strings.TrimPrefix(e.Field, "specs["), "]")
	i, atoiErr := strconv.Atoi(index)
	if !is || atoiErr != nil || i < 0 || i >= len(b.lines) {
		return 0, "", false
	}
	_, text, _ = strings.Cut(e.Error(), e.Field)
	return b.lines[i], strings.TrimPrefix(field, ".") + text, true
}

// badLines says which lines are bad, and from where to go on once they are mended.
func badLines(name string, b *specBatch, bad []lineError, t *tally) error {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: nothing from line %d on was stored:", name, b.first)
	for i, l := range bad {
		if i == complaintsMax {
			fmt.Fprintf(&s, "\n  and %d more lines", len(bad)-i)
			break
		}
		fmt.Fprintf(&s, "\n  line %d: %v", l.line, l.err)
	}
	if b.first > 1 {
		fmt.Fprintf(&s, "\n%s; go on with tail -n +%d", t.before(b.first), b.first)
	}
	return fmt.Errorf("%w: %s", errUsage, s.String())
}

// summary ends the command: with the first refusal's exit code when there was one.
func (c *submitCmd) summary(t *tally, took time.Duration) error {
	if c.Output != "json" {
		header := []string{"STORED", "EXISTED", "REFUSED", "TOOK"}
		row := []string{strconv.Itoa(t.stored), strconv.Itoa(t.existed), strconv.Itoa(t.refused), short(took)}
		if t.atRisk > 0 {
			header, row = append(header, "AT RISK"), append(row, strconv.Itoa(t.atRisk))
		}
		if err := c.print(nil, header, [][]string{row}); err != nil {
			return err
		}
	}
	if t.demoted > 0 {
		fmt.Fprintf(os.Stderr, "errand: %d tasks are stored as standard: the tenant's urgent rate is used up\n", t.demoted)
	}
	if t.refused > 0 {
		return fmt.Errorf("%d tasks were refused, the first because: %w", t.refused, t.first)
	}
	return nil
}
