package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/errandhq/errand/internal/store"
)

// migrateCmd brings the schema to this version.
type migrateCmd struct {
	Store string `help:"URL of PostgreSQL or CockroachDB." required:"" placeholder:"URL"`
	logSettings
	outputSettings
}

// Run migrates.
func (c *migrateCmd) Run(ctx context.Context) error {
	applied, err := store.Migrate(ctx, c.Store, c.logger())
	if err != nil {
		if len(applied) > 0 {
			fmt.Fprintln(os.Stderr, "errand: applied before the failure:", strings.Join(applied, ", "))
		}
		return err
	}
	if len(applied) == 0 {
		return c.say(map[string]any{"applied": []string{}}, "the schema is up to date")
	}
	return c.say(map[string]any{"applied": applied}, "applied %s", strings.Join(applied, "\napplied "))
}
