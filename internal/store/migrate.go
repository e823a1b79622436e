package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the schema of the database to this release's version and returns the names of the migrations it applied.
// Several may run at once: a row in a table is the lock, since CockroachDB's advisory locks protect nothing.
func Migrate(ctx context.Context, url string, log *slog.Logger) ([]string, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the store's URL: %w", err)
	}
	d, err := askDialect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	defer func() { _ = db.Close() }() // nothing is lost with it
	files, err := migrationsFor(d)
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresTableLocker(lock.WithTableName("errand_migration_lock"))
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName("errand_migrations"), goose.WithLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithSlog(log))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	var applied []string
	for _, r := range results {
		applied = append(applied, r.Source.Path)
	}
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

// askDialect asks the server what it is.
func askDialect(ctx context.Context, cfg *pgx.ConnConfig) (Dialect, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("connect to the store: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return dialectOf(ctx, conn)
}

// migrationsFor merges the shared files with the dialect's.
func migrationsFor(d Dialect) (fs.FS, error) {
	shared, err := fs.Sub(migrations, "migrations/shared")
	if err != nil {
		return nil, err
	}
	own, err := fs.Sub(migrations, "migrations/"+d.String())
	if err != nil {
		return nil, err
	}
	return merged{shared, own}, nil
}

// merged is two flat folders as one.
type merged [2]fs.FS

// Open finds the file in either folder.
func (m merged) Open(name string) (fs.File, error) {
	f, err := m[0].Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m[1].Open(name)
	}
	return f, err
}

// ReadDir lists both folders, by name.
func (m merged) ReadDir(name string) ([]fs.DirEntry, error) {
	var all []fs.DirEntry
	for _, part := range m {
		entries, err := fs.ReadDir(part, name)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int {
		switch {
		case a.Name() < b.Name():
			return -1
		case a.Name() > b.Name():
			return 1
		}
		return 0
	})
	return all, nil
}
