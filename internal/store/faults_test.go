package store

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand/internal/faultproxy"
	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

// behind opens a store whose every connection goes through a fault proxy.
func behind(t *testing.T) (*Store, *faultproxy.Proxy) {
	t.Helper()
	cfg, err := pgx.ParseConfig(testdb.New(t, testdb.ReadCommitted))
	if err != nil {
		t.Fatal(err)
	}
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p, err := faultproxy.New(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: p.Addr(), Path: "/" + cfg.Database,
		RawQuery: "sslmode=disable",
	}
	s, err := Open(context.Background(), Config{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, p
}

func readyTask(n byte) scheduler.Task {
	id := scheduler.NewID(1, time.Now(), [scheduler.RandomBytes]byte{n})
	return scheduler.Task{
		Ref: scheduler.Ref{Region: "eu", ID: id}, Tenant: "acme", Kind: "encode", Tier: scheduler.Standard, State: scheduler.Ready,
		Tolerance: time.Minute, EffectKey: id,
	}
}

// settle executes a write again until it answers, as an engine does.
func settle[T any](t *testing.T, write func(ctx context.Context) (T, error)) (answer T, failed int) {
	t.Helper()
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		answer, err := write(ctx)
		cancel()
		if err == nil {
			return answer, failed
		}
		if errors.Is(err, scheduler.ErrRefused) || errors.Is(err, scheduler.ErrLocked) {
			t.Fatalf("%v: a connection's fault was taken for a fault of the rows", err)
		}
		failed++
	}
	t.Fatal("never settled")
	return answer, failed
}

// P1, P2, P4, P5, B42: whatever happens to a statement's answer, executing the same statement again tells what stands, and
// nothing happens twice.
func TestUnknownOutcomesAreSettledByExecutingAgain(t *testing.T) {
	faults := map[string]faultproxy.Rule{
		"refused by a conflict ten times":       {Fault: faultproxy.Refuse, Code: "40001", Times: 10},
		"a deadlock":                            {Fault: faultproxy.Refuse, Code: "40P01", Times: 2},
		"unknown, and it did not happen":        {Fault: faultproxy.Refuse, Code: "40003", Times: 1},
		"unknown, and it did happen":            {Fault: faultproxy.RefuseAfter, Code: "40003", Times: 1},
		"cut before":                            {Fault: faultproxy.CutBefore, Times: 2},
		"cut after it happened":                 {Fault: faultproxy.CutAfter, Times: 2},
		"a server that never answers":           {Fault: faultproxy.Hang, Times: 1},
		"a conflict reported after it happened": {Fault: faultproxy.RefuseAfter, Code: "40001", Times: 1},
	}
	session, worker := scheduler.SessionID{1}, scheduler.WorkerID{2}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxy := behind(t)
			ctx := context.Background()
			if _, err := s.OpenSession(ctx, scheduler.Session{Region: "eu", ID: session}, time.Minute); err != nil {
				t.Fatal(err)
			}
			strike := func(contains string) {
				r := fault
				r.Contains = contains
				proxy.Add(r)
			}
			one := readyTask(1)
			one.IdempotencyKey, one.Fingerprint = "k", []byte("f")
			strike("INSERT INTO tasks")
			stored, _ := settle(t, func(ctx context.Context) ([]scheduler.Inserted, error) {
				return s.Insert(ctx, scheduler.Insert{Region: "eu", Tasks: []scheduler.Task{one}})
			})
			if stored[0].Verdict != scheduler.InsertStored {
				t.Errorf("insert: %+v", stored[0])
			}
			strike("SET state = 3")
			claimed, _ := settle(t, func(ctx context.Context) ([]scheduler.Claimed, error) {
				return s.Claim(ctx, scheduler.ClaimBatch{Region: "eu", Session: session, Claims: []scheduler.Claim{
					{ID: one.ID, From: scheduler.Ready, Worker: worker},
				}})
			})
			if claimed[0].Verdict != scheduler.Won || claimed[0].Start.Attempt != 1 {
				t.Errorf("claim: %+v", claimed[0])
			}
			strike("SET state = 5")
			ended, _ := settle(t, func(ctx context.Context) ([]scheduler.Ended, error) {
				return s.End(ctx, scheduler.EndBatch{Region: "eu", Endings: []scheduler.Ending{
					{Token: scheduler.Token{ID: one.ID, Attempt: 1, Worker: worker}, To: scheduler.Succeeded, Result: []byte("r")},
				}})
			})
			if ended[0].Verdict != scheduler.Won {
				t.Errorf("end: %+v", ended[0])
			}
			if proxy.Hits() < 3 {
				t.Errorf("the proxy struck %d times: the faults were not tried", proxy.Hits())
			}
			report, err := s.Audit(ctx, "eu")
			if err != nil || len(report.Balances) != 1 || report.Balances[0] != (Balance{Tenant: "acme", Tier: scheduler.Standard, Accepted: 1, Ended: 1}) {
				t.Errorf("ledger %+v, %v: want one accepted, one ended", report.Balances, err)
			}
			task, err := s.Task(ctx, "acme", one.Ref)
			if err != nil || task.State != scheduler.Succeeded || task.Attempt != 1 {
				t.Errorf("task %+v, %v", task, err)
			}
		})
	}
}

// The door returns the error of COMMIT: cockroach-go's would return nil here, with the rows gone.
func TestAFailedCommitSurfaces(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	ctx := context.Background()
	for _, sql := range []string{
		`CREATE TABLE door (id INT PRIMARY KEY, other INT REFERENCES door (id) DEFERRABLE INITIALLY DEFERRED)`,
	} {
		if _, err := s.general.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	err := s.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO door VALUES (1, 2)`) // refused at COMMIT only
		return err
	})
	if err == nil {
		t.Error("COMMIT failed, and the door said nothing")
	}
	var n int
	if err := s.general.QueryRow(ctx, `SELECT count(*) FROM door`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// A conflict inside, or at COMMIT, starts the whole transaction again.
func TestAConflictStartsTheTransactionAgain(t *testing.T) {
	for name, contains := range map[string]string{"inside": "INSERT INTO door", "at the commit": "commit"} {
		t.Run(name, func(t *testing.T) {
			s, proxy := behind(t)
			ctx := context.Background()
			if _, err := s.general.Exec(ctx, `CREATE TABLE door (id INT PRIMARY KEY)`); err != nil {
				t.Fatal(err)
			}
			proxy.Add(faultproxy.Rule{Contains: contains, Fault: faultproxy.Refuse, Code: "40001", Times: 3})
			runs := 0
			err := s.InTx(ctx, func(tx pgx.Tx) error {
				runs++
				_, err := tx.Exec(ctx, `INSERT INTO door VALUES ($1)`, runs)
				return err
			})
			if err != nil || runs != 4 {
				t.Errorf("%d runs, %v: want 4 and none", runs, err)
			}
		})
	}
}

// The caller's own error comes back as it is, and nothing is stored.
func TestTheClosuresErrorComesBack(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	mine := errors.New("mine")
	if err := s.InTx(context.Background(), func(pgx.Tx) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("%v, want the closure's error", err)
	}
}

// A row that somebody's open transaction holds makes a batch fail soon, as locked, and nothing of it is written.
func TestALockedRowIsToldApart(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	ctx := context.Background()
	session, worker := scheduler.SessionID{1}, scheduler.WorkerID{2}
	if _, err := s.OpenSession(ctx, scheduler.Session{Region: "eu", ID: session}, time.Minute); err != nil {
		t.Fatal(err)
	}
	free, held := readyTask(1), readyTask(2)
	if _, err := s.Insert(ctx, scheduler.Insert{Region: "eu", Tasks: []scheduler.Task{free, held}}); err != nil {
		t.Fatal(err)
	}
	tx, err := s.general.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT 1 FROM tasks WHERE id = $1 FOR UPDATE`, [16]byte(held.ID)); err != nil {
		t.Fatal(err)
	}
	claims := []scheduler.Claim{
		{ID: free.ID, From: scheduler.Ready, Worker: worker}, {ID: held.ID, From: scheduler.Ready, Worker: worker},
	}
	_, err = s.Claim(ctx, scheduler.ClaimBatch{Region: "eu", Session: session, Claims: claims})
	if !errors.Is(err, scheduler.ErrLocked) {
		t.Errorf("%v, want ErrLocked", err)
	}
	if a, err := s.Claim(ctx, scheduler.ClaimBatch{Region: "eu", Session: session, Claims: claims[:1]}); err != nil || a[0].Verdict != scheduler.Won {
		t.Errorf("the half without the locked row: %+v, %v", a, err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
}

// B44: while batches and lists hold every one of their connections, sessions are renewed, keys are looked up and tasks canceled.
func TestBusyBatchesDoNotStarveSessions(t *testing.T) {
	s, err := Open(context.Background(), Config{URL: testdb.New(t, testdb.ReadCommitted), Hot: 2, Control: 1, General: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	session, one := scheduler.SessionID{1}, readyTask(1)
	if _, err := s.OpenSession(ctx, scheduler.Session{Region: "eu", ID: session}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(ctx, scheduler.Insert{Region: "eu", Tasks: []scheduler.Task{one}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, pool := range []*pgxpool.Pool{s.hot, s.general} {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Release)
		}
	}
	if r, err := s.RenewSession(ctx, scheduler.Session{Region: "eu", ID: session}, time.Minute); err != nil || !r.Alive {
		t.Errorf("renewal: %+v, %v", r, err)
	}
	if _, err := s.LookupKey(ctx, []byte("unknown")); !errors.Is(err, ErrNotFound) {
		t.Errorf("key: %v, want ErrNotFound", err)
	}
	if a, err := s.Cancel(ctx, scheduler.CancelBatch{Region: "eu", Tenant: "acme", IDs: []scheduler.ID{one.ID}}); err != nil || a[0].State != scheduler.Canceled {
		t.Errorf("cancel: %+v, %v", a, err)
	}
}
