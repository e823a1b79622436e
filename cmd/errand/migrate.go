package main

import (
	"context"
	"fmt"

	"github.com/errandhq/errand/internal/store"
)

// migrateCmd brings the schema to this version.
type migrateCmd struct {
	Store string `help:"URL of PostgreSQL or CockroachDB." required:"" placeholder:"URL"`
	logSettings
}

// Run migrates.
func (c *migrateCmd) Run(ctx context.Context) error {
	applied, err := store.Migrate(ctx, c.Store, c.logger())
	for _, name := range applied {
		fmt.Println("applied", name)
	}
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		fmt.Println("the schema is up to date")
	}
	return nil
}
