package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/errandhq/errand"
)

// submitCmd submits a task, or with --many one of every line.
type submitCmd struct {
	Kind           string            `arg:"" optional:"" help:"Which handler runs it."`
	Payload        string            `arg:"" optional:"" help:"What the handler gets; - reads standard input."`
	Many           string            `help:"File with a task on every line, as JSON; - reads standard input. What a line does not say, the other flags say." env:"-" placeholder:"FILE"`
	ContentType    string            `help:"How to read the payload." env:"-"`
	Label          map[string]string `help:"KEY=VALUE, may be repeated." env:"-"`
	Tier           string            `help:"How long it may wait: urgent, standard or deferrable. Default the kind's, then standard." enum:",urgent,standard,deferrable" default:"" env:"-"`
	DelayTolerance time.Duration     `help:"How long it may wait once ready. Default the kind's, then by tier: 1s, 1m, 24h." env:"-"`
	Delay          time.Duration     `help:"Start no sooner than after this time." env:"-"`
	StartWithin    time.Duration     `help:"Useless if not started within this time." env:"-"`
	Feasible       bool              `name:"reject-if-infeasible" help:"Fail rather than store what would not start in time as things are." env:"-"`
	Timeout        time.Duration     `help:"The execution cap of one attempt. Default the kind's, then 1h." env:"-"`
	MaxAttempts    int               `help:"Most starts that count. Default the kind's, then 5." env:"-"`
	Limit          []string          `help:"A named limit that a start must pass, and a key within it; may be repeated." sep:"none" env:"-" placeholder:"NAME[/KEY]"`
	IdempotencyKey string            `help:"Submissions with the same key are stored once." env:"-"`
	UniqueKey      string            `help:"At most one open task has it; while there is one, that task is the answer." env:"-"`
	RefuseHeld     bool              `help:"With --unique-key: fail while an open task has it." env:"-"`
	Exclusive      bool              `help:"A handler must have stopped before another attempt may start." env:"-"`
	Wait           bool              `help:"Wait for the task to end." env:"-"`
	needSettings
	clientSettings
	outputSettings
}

// Help follows the arguments and flags.
func (*submitCmd) Help() string {
	return `Examples:

    errand submit http '{"url": "https://example.com/", "method": "GET"}' --wait
    errand submit encode - --idempotency-key upload-17 < upload.json
    errand submit train - --gpus 1 --memory 16Gi --select 'gpu_model=A100,H100' --prefer 10:disk=ssd < night.json
    errand submit --many tasks.ndjson

A line of --many has fields with the names of the flags, for instance:

    {"kind": "http", "payload": {"url": "https://example.com/"}, "labels": {"run": "7"}, "idempotency_key": "a"}`
}

// Validate checks the flags together.
func (c *submitCmd) Validate() error {
	switch {
	case c.Many == "" && c.Kind == "":
		return errors.New("<kind> or --many is needed")
	case c.Many != "" && c.Wait:
		return errors.New("--wait is for one task; the handles that --many -o json prints can be given to errand wait")
	case c.Many != "" && c.IdempotencyKey != "":
		return errors.New("--idempotency-key is for one task; with --many every line has its own idempotency_key")
	case c.Many != "" && c.UniqueKey != "":
		return errors.New("--unique-key is for one task; with --many every line has its own unique_key")
	case c.RefuseHeld && c.UniqueKey == "" && c.Many == "":
		return errors.New("--refuse-held is for --unique-key")
	case c.Many == "-" && c.Payload == "-":
		return errors.New("standard input is either the payload or what --many reads")
	}
	return c.check()
}

// Run submits.
func (c *submitCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	spec, err := c.spec()
	if err != nil {
		return err
	}
	if c.Many != "" {
		return c.many(ctx, client, &spec)
	}
	got, err := patiently(ctx, client, spec)
	var refused *errand.Error
	if errors.Is(err, errand.ErrKeyHeld) && errors.As(err, &refused) {
		return fmt.Errorf("%s: %w", refused.TaskID, err)
	}
	if err != nil {
		return err
	}
	if got.Demoted {
		fmt.Fprintf(os.Stderr, "errand: %s is stored as standard: the tenant's urgent rate is used up\n", got.ID)
	}
	if c.Wait {
		return c.wait(ctx, client, got.ID)
	}
	return c.submitted(&got)
}

// submitNoticed is how long a submission may take before a word is said about it: the client tries again by itself meanwhile.
const submitNoticed = 3 * time.Second

// patiently submits, and tells whoever waits that it is still being tried.
func patiently(ctx context.Context, client *errand.Client, spec errand.Spec) (errand.Submitted, error) {
	notice := time.AfterFunc(submitNoticed, func() {
		fmt.Fprintln(os.Stderr, "errand: no answer yet; still trying (Ctrl-C stops)")
	})
	defer notice.Stop()
	got, err := client.Submit(ctx, spec)
	if errors.Is(err, context.Canceled) {
		return got, errors.Join(err, errMaybeStored)
	}
	return got, err
}

// spec is what the command line says.
func (c *submitCmd) spec() (errand.Spec, error) {
	payload := []byte(c.Payload)
	if c.Payload == "-" {
		const most = 256<<10 + 1 // one more than a payload may have: the server refuses it
		var err error
		if payload, err = io.ReadAll(io.LimitReader(os.Stdin, most)); err != nil {
			return errand.Spec{}, fmt.Errorf("read the payload: %w", err)
		}
	}
	limits, err := limitsOf(c.Limit)
	if err != nil {
		return errand.Spec{}, fmt.Errorf("%w: --limit: %w", errUsage, err)
	}
	spec := errand.Spec{
		Kind: c.Kind, Payload: payload, ContentType: c.ContentType, Labels: c.Label, Tier: tiers[c.Tier],
		RejectInfeasible: c.Feasible,
		DelayTolerance:   c.DelayTolerance, Delay: c.Delay, StartWithin: c.StartWithin, AttemptTimeout: c.Timeout, MaxAttempts: c.MaxAttempts, IdempotencyKey: c.IdempotencyKey,
		UniqueKey: c.UniqueKey, RefuseHeld: c.RefuseHeld, Exclusive: c.Exclusive, Limits: limits,
	}
	return spec, c.into(&spec)
}

// wait shows the task when it has ended; it ends with 6 when it did not succeed.
func (c *submitCmd) wait(ctx context.Context, client *errand.Client, id string) error {
	w := &waiting{client: client, of: 1, line: newProgress()}
	tasks, err := w.all(ctx, []string{id})
	if err != nil {
		return fmt.Errorf("%s is stored: %w", id, err)
	}
	t := &tasks[0]
	if err := c.print(viewOf(t), endHeader, [][]string{endRow(t)}); err != nil {
		return err
	}
	if t.State != errand.Succeeded {
		return errQuiet
	}
	return nil
}
