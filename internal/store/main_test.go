package store

import (
	"context"
	"log/slog"
	"testing"

	"github.com/errandhq/errand/internal/testdb"
)

func TestMain(m *testing.M) {
	testdb.Main(m, func(ctx context.Context, dsn string) error {
		_, err := Migrate(ctx, dsn, slog.New(slog.DiscardHandler))
		return err
	})
}

func open(t testing.TB, isolation testdb.Isolation) *Store {
	t.Helper()
	s, err := Open(context.Background(), Config{URL: testdb.New(t, isolation)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
