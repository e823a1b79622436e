package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandhq/errand"
)

// updateCmd changes a waiting task.
type updateCmd struct {
	ID             string            `arg:"" help:"The task's handle."`
	Tier           string            `help:"How long it may wait: urgent, standard or deferrable." enum:",urgent,standard,deferrable" default:"" env:"-"`
	DelayTolerance time.Duration     `help:"How long it may wait once ready." env:"-"`
	RunAt          string            `help:"Start no sooner than at this time, as 2026-12-24T18:00:00Z." env:"-" placeholder:"TIME"`
	Delay          time.Duration     `help:"Start no sooner than after this time." env:"-"`
	RunNow         bool              `help:"Start as soon as a worker is free." env:"-"`
	StartWithin    time.Duration     `help:"Useless if not started within this time." env:"-"`
	Label          map[string]string `help:"KEY=VALUE, may be repeated; these take the place of all labels." env:"-"`
	clientSettings
	outputSettings
}

// Validate checks the flags together.
func (c *updateCmd) Validate() error {
	when := 0
	for _, said := range []bool{c.RunAt != "", c.Delay != 0, c.RunNow} {
		if said {
			when++
		}
	}
	switch {
	case when > 1:
		return errors.New("--run-at, --delay and --run-now say the same: give one of them")
	case when == 0 && c.Tier == "" && c.DelayTolerance == 0 && c.StartWithin == 0 && len(c.Label) == 0:
		return errors.New("say what to change: --tier, --delay-tolerance, --run-at, --delay, --run-now, --start-within, --label")
	}
	return nil
}

func (c *updateCmd) changes() (errand.Changes, error) {
	changes := errand.Changes{
		Tier: tiers[c.Tier], DelayTolerance: c.DelayTolerance, Delay: c.Delay, RunNow: c.RunNow, StartWithin: c.StartWithin, Labels: c.Label,
	}
	if c.RunAt == "" {
		return changes, nil
	}
	var err error
	if changes.RunAt, err = time.Parse(time.RFC3339, c.RunAt); err != nil {
		return changes, fmt.Errorf("%w: --run-at: %q is not like 2026-12-24T18:00:00Z", errUsage, c.RunAt)
	}
	return changes, nil
}

// Run changes it and shows it as it stands then.
func (c *updateCmd) Run(ctx context.Context) error {
	changes, err := c.changes()
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	t, err := client.Update(ctx, c.ID, changes)
	if err != nil {
		return fmt.Errorf("%s: %w", c.ID, err)
	}
	return c.print(viewOf(&t), []string{"TASK", "KIND", "STATE", "TIER", "STARTS", "DUE"}, [][]string{{
		t.ID, t.Kind, t.State.String(), tierWord(t.Tier), starts(&t), ago(t.Due),
	}})
}

// starts tells when a waiting task may start.
func starts(t *errand.Task) string {
	if t.State == errand.Scheduled {
		return ago(t.RunAt)
	}
	return "at once"
}
