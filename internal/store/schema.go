package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

// ErrSchema means that the store's schema is older than this release needs. The remedy is in the text.
var ErrSchema = errors.New("the store's schema is not up to date: run `errand migrate`")

// schemaVersion tells the latest migration that was applied.
const schemaVersion = `SELECT COALESCE(max(version_id), 0) FROM errand_migrations WHERE is_applied`

// CheckSchema tells whether the schema has everything that this release needs. A newer schema is fine: migrations only add.
func (s *Store) CheckSchema(ctx context.Context) error {
	needed, err := latestMigration(s.dialect)
	if err != nil {
		return err
	}
	var found int64
	err = again(ctx, func() error { return s.general.QueryRow(ctx, schemaVersion).Scan(&found) })
	var pg *pgconn.PgError
	const undefinedTable = "42P01"
	if errors.As(err, &pg) && pg.Code == undefinedTable {
		return fmt.Errorf("%w: it has none", ErrSchema)
	}
	if err != nil {
		return translate("read the schema's version", err)
	}
	if found < needed {
		return fmt.Errorf("%w: it is at version %d, this release needs %d", ErrSchema, found, needed)
	}
	return nil
}

func latestMigration(d Dialect) (int64, error) {
	files, err := migrationsFor(d)
	if err != nil {
		return 0, err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return 0, err
	}
	latest := int64(0)
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		latest = max(latest, version)
	}
	return latest, nil
}
