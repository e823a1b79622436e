package main

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand"
)

// failoverResult is what a scenario found.
type failoverResult struct {
	Name         string   `json:"name"`
	Accepted     int      `json:"accepted"`
	Ended        int      `json:"ended"`         // of those: succeeded
	Lost         int      `json:"lost"`          // accepted, and not found succeeded
	EffectsTwice int      `json:"effects_twice"` // moves beyond one for each task
	EffectsNever int      `json:"effects_never"` // tasks that succeeded without their move
	RunsTwice    int      `json:"runs_twice"`    // handlers that ran again: wasted, not wrong
	Elsewhere    *float64 `json:"restart_elsewhere_s"`
	P99Before    float64  `json:"p99_wait_before_ms"`
	P99During    float64  `json:"p99_wait_during_ms"`
	P99After     float64  `json:"p99_wait_after_ms"`
	Longest      float64  `json:"longest_wait_ms"` // of all
	Total        bool     `json:"total_unchanged"`
	Audit        string   `json:"audit"`
	OK           bool     `json:"ok"`
}

// failoverTimes are when things happened.
type failoverTimes struct{ fault, mended, judged time.Time }

// started is the first run of a task, and the first one in another region than its own after the fault.
type started struct{ first, elsewhere time.Time }

// succeeded are the tasks that have, asked of every region; open is how many have not ended.
func (d *deployment) succeeded(ctx context.Context) (done map[string]bool, open int, err error) {
	done = map[string]bool{}
	for _, p := range d.regions {
		client, err := errand.NewClient(errand.Config{URLs: p.own(), Key: d.tenant})
		if err != nil {
			return nil, 0, err
		}
		for t, err := range client.List(ctx, errand.Filter{}) {
			if err != nil {
				return nil, 0, err
			}
			if !t.State.Ended() {
				open++
			}
			if t.State == errand.Succeeded {
				done[t.ID] = true
			}
		}
	}
	return done, open, nil
}

// settle waits until nothing is open any more, or limit is over, and returns what has succeeded.
func (d *deployment) settle(ctx context.Context, limit time.Duration) (map[string]bool, error) {
	deadline := time.Now().Add(limit)
	for {
		done, open, err := d.succeeded(ctx)
		if err == nil && open == 0 || time.Now().After(deadline) {
			return done, err
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// judge compares what was accepted with what has happened.
func (d *deployment) judge(ctx context.Context, s *failoverScenario, l *clients, done map[string]bool, at failoverTimes) (failoverResult, error) {
	r := failoverResult{Name: s.name, Accepted: len(l.accepted)}
	conn, err := pgx.Connect(ctx, d.postgres.DSN(d.database+"_user"))
	if err != nil {
		return r, err
	}
	defer func() { _ = conn.Close(ctx) }()
	starts, err := readStarts(ctx, conn, at.fault)
	if err != nil {
		return r, err
	}
	r.takeWaits(l, starts, at)
	moved, err := r.takeMoney(ctx, conn)
	if err != nil {
		return r, err
	}
	for id := range l.accepted {
		if done[id] {
			r.Ended++
		} else {
			r.Lost++
		}
		if done[id] && !moved[id] {
			r.EffectsNever++
		}
	}
	r.Audit = d.auditAll(ctx)
	restarted := !s.elsewhere || r.Elsewhere != nil && *r.Elsewhere <= elsewhereWithin.Seconds()
	r.OK = r.Lost == 0 && r.EffectsTwice == 0 && r.EffectsNever == 0 && r.Total && r.Audit == "ok" && restarted
	return r, nil
}

// elsewhereWithin is when tasks of a region that is gone have to start in another.
const elsewhereWithin = 30 * time.Second

func readStarts(ctx context.Context, conn *pgx.Conn, fault time.Time) (map[string]started, error) {
	rows, err := conn.Query(ctx, `
		SELECT task, min(at), min(at) FILTER (WHERE at > $1 AND region <> split_part(task, '.', 1)) FROM runs GROUP BY task`, fault)
	if err != nil {
		return nil, err
	}
	starts := map[string]started{}
	var id string
	var first time.Time
	var elsewhere *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &first, &elsewhere}, func() error {
		s := started{first: first}
		if elsewhere != nil {
			s.elsewhere = *elsewhere
		}
		starts[id] = s
		return nil
	})
	return starts, err
}

// takeWaits puts together how long tasks waited, from the moment they were first sent, or wanted when that is later, until a handler had
// them; those that no handler ever had have waited until now.
func (r *failoverResult) takeWaits(l *clients, starts map[string]started, at failoverTimes) {
	var before, during, after []float64
	for id, sent := range l.accepted {
		s, ran := starts[id]
		if !ran {
			s.first = at.judged
		}
		wait := float64(s.first.Sub(sent).Microseconds()) / 1000
		r.Longest = max(r.Longest, wait)
		switch {
		case sent.Before(at.fault):
			before = append(before, wait)
		case sent.Before(at.mended):
			during = append(during, wait)
		default:
			after = append(after, wait)
		}
		if homeOf(id) == failoverVictim && !s.elsewhere.IsZero() && s.elsewhere.Before(at.mended) {
			since := round3(s.elsewhere.Sub(at.fault).Seconds())
			if r.Elsewhere == nil || since < *r.Elsewhere {
				r.Elsewhere = &since
			}
		}
	}
	r.P99Before, r.P99During, r.P99After = quantile(before, 0.99), quantile(during, 0.99), quantile(after, 0.99)
}

// takeMoney looks at the bank: its total, and that the balances are what the moves make of them.
func (r *failoverResult) takeMoney(ctx context.Context, conn *pgx.Conn) (moved map[string]bool, err error) {
	var total, off int64
	err = conn.QueryRow(ctx, `
		SELECT (SELECT sum(balance) FROM accounts)::bigint,
			(SELECT count(*) FROM accounts WHERE balance <> $1
				- COALESCE((SELECT sum(amount) FROM moves WHERE account_from = id), 0) + COALESCE((SELECT sum(amount) FROM moves WHERE account_to = id), 0)),
			(SELECT count(*) - count(DISTINCT task) FROM moves), (SELECT count(*) - count(DISTINCT task) FROM runs)`,
		accountOpening).Scan(&total, &off, &r.EffectsTwice, &r.RunsTwice)
	if err != nil {
		return nil, err
	}
	r.Total = total == accounts*accountOpening && off == 0
	rows, err := conn.Query(ctx, `SELECT DISTINCT task FROM moves`)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	moved = make(map[string]bool, len(ids))
	for _, id := range ids {
		moved[id] = true
	}
	return moved, err
}

// auditAll has every region prove itself.
func (d *deployment) auditAll(ctx context.Context) string {
	var said []string
	for _, p := range d.regions {
		out, err := d.errand(ctx, []string{"ERRAND_KEY=" + d.admin, "ERRAND_URL=" + p.urls[0]}, "audit")
		if err != nil {
			said = append(said, p.name+": "+strings.TrimSpace(string(out))+" "+err.Error())
		}
	}
	if said == nil {
		return "ok"
	}
	return strings.Join(said, "; ")
}
