package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

// starter makes tasks that run under a session.
type starter struct {
	t       *testing.T
	s       *Store
	session scheduler.SessionID
	worker  scheduler.WorkerID
}

func newStarter(t *testing.T, s *Store, n byte) *starter {
	t.Helper()
	st := &starter{t: t, s: s, session: scheduler.SessionID{n}, worker: scheduler.WorkerID{n, 1}}
	_, err := s.OpenSession(context.Background(), scheduler.Session{Region: "eu", ID: st.session}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// start stores n tasks that run at once, in one statement.
func (st *starter) start(n int) []scheduler.Token {
	st.t.Helper()
	in := scheduler.Insert{Region: "eu"}
	tokens := make([]scheduler.Token, n)
	for i := range n {
		var random [scheduler.RandomBytes]byte
		for j := range random {
			random[j] = byte(rand.Uint32())
		}
		id := scheduler.NewID(3, time.Now(), random)
		in.Tasks = append(in.Tasks, scheduler.Task{
			Ref: scheduler.Ref{Region: "eu", ID: id}, Tenant: "acme", Kind: "k", Tier: scheduler.Standard, State: scheduler.Running, Attempt: 1,
			Session: st.session, Worker: st.worker, EffectKey: id, Tolerance: time.Minute,
		})
		tokens[i] = scheduler.Token{ID: id, Attempt: 1, Worker: st.worker}
	}
	answers, err := st.s.Insert(context.Background(), in)
	if err != nil {
		st.t.Fatal(err)
	}
	for _, a := range answers {
		if a.State != scheduler.Running {
			st.t.Fatalf("a start was stored as %v", a.State)
		}
	}
	return tokens
}

func (st *starter) end(tokens []scheduler.Token) {
	st.t.Helper()
	b := scheduler.EndBatch{Region: "eu"}
	for _, token := range tokens {
		b.Endings = append(b.Endings, scheduler.Ending{Token: token, To: scheduler.Succeeded})
	}
	if _, err := st.s.End(context.Background(), b); err != nil {
		st.t.Fatal(err)
	}
}

func (st *starter) attach(tokens []scheduler.Token) {
	st.t.Helper()
	b := scheduler.AttachBatch{Region: "eu", Session: st.session, Tokens: tokens}
	if _, err := st.s.Attach(context.Background(), b); err != nil {
		st.t.Fatal(err)
	}
}

// running reads all pages.
func (st *starter) running() map[scheduler.ID]bool {
	st.t.Helper()
	const page = 7
	all := map[scheduler.ID]bool{}
	for after := (scheduler.ID{}); ; {
		rows, err := st.s.Running(context.Background(), scheduler.RunningQuery{Region: "eu", Session: st.session, After: after, Limit: page})
		if err != nil {
			st.t.Fatal(err)
		}
		for i := range rows {
			all[rows[i].ID] = true
			after = rows[i].ID
		}
		if len(rows) < page {
			return all
		}
	}
}

func (st *starter) rows() (n int) {
	st.t.Helper()
	if err := st.s.general.QueryRow(context.Background(), `SELECT count(*) FROM starts`).Scan(&n); err != nil {
		st.t.Fatal(err)
	}
	return n
}

// What runs is found, whatever has ended meanwhile, and the table of starts stays small.
func TestFoldingStarts(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	a, b := newStarter(t, s, 1), newStarter(t, s, 2)
	var singles []scheduler.Token
	for range 250 { // more than one statement folds
		singles = append(singles, a.start(1)...)
	}
	batch := a.start(100)
	if got := a.running(); len(got) != 350 {
		t.Fatalf("%d run, want 350", len(got))
	}
	if n := a.rows(); n > 3 {
		t.Errorf("after a pass there are %d rows of starts", n)
	}
	a.end(batch[1:])
	a.end(singles)
	if got := a.running(); len(got) != 1 || !got[batch[0].ID] {
		t.Errorf("%v run, want the one that has not ended", got)
	}
	b.attach(batch[:1])
	if mine, theirs := a.running(), b.running(); len(mine) != 0 || !theirs[batch[0].ID] {
		t.Errorf("after a take-over %v and %v", mine, theirs)
	}
	b.end(batch[:1])
	if a.running(); len(b.running()) != 0 || a.rows() != 0 {
		t.Errorf("nothing runs, and %d rows of starts are left", a.rows())
	}
}

// Rows of sessions that are over are folded by whoever is there, and what ran under them stays an orphan until it is taken.
func TestFoldingOthersStarts(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	dead, live := newStarter(t, s, 1), newStarter(t, s, 2)
	tokens := dead.start(5)
	dead.end(tokens[:3])
	if _, err := s.general.Exec(t.Context(), `UPDATE sessions SET ended_at = now() - INTERVAL '1 hour' WHERE id = $1`, [16]byte(dead.session)); err != nil {
		t.Fatal(err)
	}
	live.running()
	orphans, err := s.Orphans(t.Context(), scheduler.OrphanQuery{Region: "eu", Shards: []uint8{3}, Grace: time.Minute, Limit: 10})
	if err != nil || len(orphans) != 2 {
		t.Fatalf("%d orphans, %v; want 2", len(orphans), err)
	}
	if others, err := s.Orphans(t.Context(), scheduler.OrphanQuery{Region: "eu", Shards: []uint8{4}, Grace: time.Minute, Limit: 10}); err != nil || len(others) != 0 {
		t.Errorf("of another shard: %v, %v", others, err)
	}
	live.attach(tokens[3:])
	live.end(tokens[3:])
	live.running()
	if n := live.rows(); n != 0 {
		t.Errorf("%d rows of starts are left", n)
	}
}

// Folding goes on beside starts, ends and take-overs, and never loses sight of what runs: neither of two folds that meet, nor of a
// task that changes hands meanwhile.
func TestFoldingMeetsEverything(t *testing.T) {
	for _, isolation := range []testdb.Isolation{testdb.ReadCommitted, testdb.Serializable} {
		s := open(t, isolation)
		a, b := newStarter(t, s, 1), newStarter(t, s, 2)
		var mu sync.Mutex
		left := map[scheduler.ID]bool{}
		var work, folds sync.WaitGroup
		stop := make(chan struct{})
		for _, session := range []scheduler.SessionID{a.session, b.session, a.session} {
			folds.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					err := s.foldStarts(context.Background(), "eu", session)
					if err != nil && !errors.Is(err, scheduler.ErrUnavailable) && !errors.Is(err, scheduler.ErrLocked) {
						t.Error(err)
					}
				}
			})
		}
		for range 4 {
			work.Go(func() {
				for range 25 {
					tokens := a.start(1 + rand.IntN(20))
					moved, ended := rand.IntN(len(tokens)+1), rand.IntN(len(tokens)+1)
					b.attach(tokens[:moved])
					a.attach(tokens[:moved/2])
					a.end(tokens[:ended])
					mu.Lock()
					for _, token := range tokens[ended:] {
						left[token.ID] = true
					}
					mu.Unlock()
				}
			})
		}
		work.Wait()
		close(stop)
		folds.Wait()
		found := a.running()
		for id := range b.running() {
			found[id] = true
		}
		for id := range left {
			if !found[id] {
				t.Errorf("%s runs, and is not found", id)
			}
		}
		if len(found) != len(left) {
			t.Errorf("%d are found, %d run", len(found), len(left))
		}
	}
}

// A running task that nobody could find is a finding of the audit.
func TestAuditFindsWhatIsNotListed(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	st := newStarter(t, s, 1)
	tokens := st.start(2)
	report := func() int64 {
		r, err := s.Audit(t.Context(), "eu")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Reason == "unlisted" {
				return f.Rows
			}
		}
		return 0
	}
	if n := report(); n != 0 {
		t.Errorf("%d are not listed, though nobody touched anything", n)
	}
	if _, err := s.general.Exec(t.Context(), `UPDATE starts SET ids = array_remove(ids, $1)`, [16]byte(tokens[0].ID)); err != nil {
		t.Fatal(err)
	}
	if n := report(); n != 1 {
		t.Errorf("%d are not listed, want the one that was taken out", n)
	}
}
