package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Dialect says which of the two supported databases is behind a URL. The SQL text is the same for both; what differs is the
// transaction door, the connection's settings and two small migrations.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota + 1
	CockroachDB
)

// String names the dialect's folder of migrations.
func (d Dialect) String() string {
	if d == CockroachDB {
		return "cockroach"
	}
	return "postgres"
}

func dialectOf(ctx context.Context, conn *pgx.Conn) (Dialect, error) {
	var version string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return 0, fmt.Errorf("ask the store for its version: %w", err)
	}
	if strings.Contains(version, "CockroachDB") {
		return CockroachDB, nil
	}
	return PostgreSQL, nil
}
