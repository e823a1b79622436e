package store

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"testing"

	"github.com/errandhq/errand/internal/testdb"
)

func TestCheckSchema(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	ctx := context.Background()
	if err := s.CheckSchema(ctx); err != nil {
		t.Errorf("migrated: %v", err)
	}
	if _, err := s.general.Exec(ctx, `DELETE FROM errand_migrations WHERE version_id > 1`); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(ctx); !errors.Is(err, ErrSchema) {
		t.Errorf("of an older release: %v, want ErrSchema", err)
	}
	if _, err := s.general.Exec(ctx, `DROP TABLE errand_migrations`); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(ctx); !errors.Is(err, ErrSchema) {
		t.Errorf("without a schema: %v, want ErrSchema", err)
	}
}

// Several may migrate at once, as when instances start together: each migration is applied once.
func TestMigratorsMayMeet(t *testing.T) {
	dsn := testdb.New(t, testdb.ReadCommitted)
	ctx := context.Background()
	s, err := Open(ctx, Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, sql := range []string{`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`} {
		if _, err := s.general.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	const migrators = 3
	applied, errs := make([][]string, migrators), make([]error, migrators)
	var all sync.WaitGroup
	for i := range migrators {
		all.Go(func() { applied[i], errs[i] = Migrate(ctx, dsn, slog.New(slog.DiscardHandler)) })
	}
	all.Wait()
	total := 0
	for i := range migrators {
		if errs[i] != nil {
			t.Errorf("migrator %d: %v", i, errs[i])
		}
		total += len(applied[i])
	}
	files, err := migrationsFor(s.dialect)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := fs.Glob(files, "*.sql"); err != nil || total != len(all) {
		t.Errorf("%v: %d migrations were applied, want each of the %d once (%v)", applied, total, len(all), err)
	}
	if err := s.CheckSchema(ctx); err != nil {
		t.Error(err)
	}
}
