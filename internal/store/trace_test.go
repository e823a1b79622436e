package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/internal/testdb"
)

func TestStatementsAreTracedByName(t *testing.T) {
	var mu sync.Mutex
	seen, failed := map[string]int{}, 0
	s, err := Open(t.Context(), Config{
		URL: testdb.New(t, testdb.ReadCommitted),
		Trace: func(what string, took time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			seen[what]++
			if err != nil {
				failed++
			}
			if took <= 0 {
				t.Errorf("%q took %v", what, took)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.ListTenants(t.Context(), "", 10); err != nil {
		t.Fatal(err)
	}
	broken := s.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "SELECT 1/0")
		return err
	})
	if broken == nil || errors.Is(broken, context.Canceled) {
		t.Fatalf("the transaction says %v, want a division by zero", broken)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen["list tenants"] != 1 || failed != 1 {
		t.Errorf("traced %v with %d failures, want one list and one failure", seen, failed)
	}
}
