package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/errandhq/errand"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// admissionCmd measures what a tenant's rate costs its submits: the same tasks for a tenant without a rate, for one whose bucket is never
// near empty, and for one whose bucket holds a single token, which is there again at once: for that one Redis is asked every time. Nobody works, so that nothing but the submits is measured.
type admissionCmd struct {
	JSON    string `help:"Write the results to this file." placeholder:"FILE"`
	Rounds  int    `help:"Rounds, each of all tenants: first from one caller, then from many." default:"5"`
	Tasks   int    `help:"Submits of a tenant in each half of a round, one task each." default:"6000"`
	Callers int    `help:"Callers at once in the second half of a round." default:"16"`
	Bytes   int    `help:"Bytes of a payload." default:"100"`
	Keep    bool   `help:"Keep the servers' logs."`
}

// hugeRate is never reached; it is the largest that a tenant may have.
const hugeRate = 1e6

// turnTasks is how many submits of one tenant come before it is the other's turn: what else the machine does meanwhile, both feel.
const turnTasks = 200

// bucketGoal is how much longer a submit may take because a bucket is asked.
const bucketGoal = 0.10

// admissionRound is one round: submits per second of each tenant, one by one and from many callers. A rated tenant is far from its limit,
// a tight one always near it.
type admissionRound struct {
	AlonePlain float64 `json:"alone_plain_per_s"`
	AloneRated float64 `json:"alone_rated_per_s"`
	AloneTight float64 `json:"alone_tight_per_s"`
	Plain      float64 `json:"plain_per_s"`
	Rated      float64 `json:"rated_per_s"`
	Tight      float64 `json:"tight_per_s"`
}

// Run measures.
func (c *admissionCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Tasks < turnTasks || c.Callers < 1 || c.Bytes < 0 {
		return fmt.Errorf("--rounds and --callers are at least 1, --tasks at least %d, --bytes at least 0", turnTasks)
	}
	dir, err := workFolder("admission")
	if err != nil {
		return err
	}
	cl, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	if err := cl.fresh(ctx, "admission", 1, 0); err != nil {
		return err
	}
	rounds, err := c.measure(ctx, cl)
	if err != nil {
		return fmt.Errorf("%w (logs in %s)", err, dir)
	}
	if err := c.report(ctx, cl, rounds); err != nil {
		return err
	}
	if c.Keep {
		fmt.Fprintln(os.Stderr, "logs in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}

func (c *admissionCmd) measure(ctx context.Context, cl *cluster) ([]admissionRound, error) {
	plain, err := cl.submitter(cl.tenant)
	if err != nil {
		return nil, err
	}
	rated, err := c.ratedTenant(ctx, cl, "rated", 0)
	if err != nil {
		return nil, err
	}
	tight, err := c.ratedTenant(ctx, cl, "tight", 1)
	if err != nil {
		return nil, err
	}
	clients := []*errand.Client{plain, rated, tight}
	for _, client := range clients { // connections, and plans of the first statements
		if _, err := c.submits(ctx, client, turnTasks, c.Callers); err != nil {
			return nil, err
		}
	}
	before, err := cl.answered(ctx)
	if err != nil {
		return nil, err
	}
	var rounds []admissionRound
	bar := progress(c.Rounds, "rounds")
	for range c.Rounds {
		var r admissionRound
		alone, err := c.half(ctx, clients, 1)
		if err != nil {
			return nil, err
		}
		many, err := c.half(ctx, clients, c.Callers)
		if err != nil {
			return nil, err
		}
		r.AlonePlain, r.AloneRated, r.AloneTight = alone[0], alone[1], alone[2]
		r.Plain, r.Rated, r.Tight = many[0], many[1], many[2]
		rounds = append(rounds, r)
		_ = bar.Add(1)
	}
	after, err := cl.answered(ctx)
	if want := float64(4 * c.Rounds * (c.Tasks / turnTasks) * turnTasks); err == nil && after-before < want {
		err = fmt.Errorf("buckets were asked %.0f times only, want %.0f: this is not what was to be measured", after-before, want)
	}
	return rounds, err
}

// half submits all tenants' tasks, turn by turn, and returns how many there were per second of each one's time.
func (c *admissionCmd) half(ctx context.Context, clients []*errand.Client, callers int) ([]float64, error) {
	took := make([]time.Duration, len(clients))
	turns := c.Tasks / turnTasks
	for n := range turns {
		for i := range clients {
			who := (i + n) % len(clients) // each goes first in its turn
			one, err := c.submits(ctx, clients[who], turnTasks, callers)
			if err != nil {
				return nil, err
			}
			took[who] += one
		}
	}
	perS := make([]float64, len(clients))
	for i := range perS {
		perS[i] = float64(turns*turnTasks) / took[i].Seconds()
	}
	return perS, nil
}

// submits submits tasks and returns how long that took.
func (c *admissionCmd) submits(ctx context.Context, client *errand.Client, tasks, callers int) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range callers {
		all.Go(func() {
			for next.Add(1) <= int64(tasks) {
				if _, err := client.Submit(ctx, errand.Spec{Kind: "noop", Payload: make([]byte, c.Bytes)}); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began), context.Cause(ctx)
}

func (c *cluster) submitter(key string) (*errand.Client, error) {
	return errand.NewClient(errand.Config{URLs: c.urls, Key: key})
}

// ratedTenant makes a tenant with a huge rate, and waits until its bucket is asked. A burst of 0 is the rate's.
func (c *admissionCmd) ratedTenant(ctx context.Context, cl *cluster, name string, burst int32) (*errand.Client, error) {
	key, err := cl.makeTenant(ctx, name, 1)
	if err != nil {
		return nil, err
	}
	operator := errandv1connect.NewAdminServiceClient(http.DefaultClient, cl.urls[0], connect.WithInterceptors(bearer(cl.admin)))
	rate := hugeRate
	if _, err := operator.UpdateTenant(ctx, &errandv1.UpdateTenantRequest{Name: name, Rate: &rate, Burst: &burst}); err != nil {
		return nil, err
	}
	client, err := cl.submitter(key)
	if err != nil {
		return nil, err
	}
	before, err := cl.answered(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, noticedWithin)
	defer cancel()
	for {
		if _, err := client.Submit(limited, errand.Spec{Kind: "noop"}); err != nil {
			return nil, err
		}
		if n, err := cl.answered(limited); n > before || err != nil {
			return client, err
		}
	}
}

// noticedWithin is how long a scheduler may take to notice what an operator has set.
const noticedWithin = 30 * time.Second

// bearer sends a key with every unary call.
func bearer(key string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+key)
			return next(ctx, req)
		}
	}
}

// answered reads from the first scheduler's metrics how often its buckets answered, by Redis or by what it had just said.
func (c *cluster) answered(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.metrics[0]+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "errand_admission_answers_total{") && !strings.Contains(line, `by="twin"`) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, lines.Err()
}

func (c *admissionCmd) report(ctx context.Context, cl *cluster, rounds []admissionRound) error {
	of := func(value func(admissionRound) float64) float64 { return median(column(rounds, value)) }
	// In each round apart: the machine's speed changes from one to the next.
	alone := round3(of(func(r admissionRound) float64 { return r.AlonePlain/r.AloneRated - 1 }))
	many := round3(of(func(r admissionRound) float64 { return r.Plain/r.Rated - 1 }))
	aloneEach := round3(of(func(r admissionRound) float64 { return r.AlonePlain/r.AloneTight - 1 }))
	each := round3(of(func(r admissionRound) float64 { return r.Plain/r.Tight - 1 }))
	out := map[string]any{
		"scenario": "admission", "machine": machineFacts(ctx, cl), "commit": commit(), "rounds": rounds, "tasks": c.Tasks, "callers": c.Callers,
		"payload_bytes": c.Bytes, "bucket_cost_ratio": many, "bucket_cost_ratio_alone": alone, "goal_met": many <= bucketGoal,
		"bucket_cost_ratio_asked_each_time": each, "bucket_cost_ratio_asked_each_time_alone": aloneEach,
	}
	w := newTable("SUBMITS", "WITHOUT A RATE /S", "WITH ONE /S", "EXTRA TIME", "GOAL")
	row := func(about string, plain, rated func(admissionRound) float64, ratio float64, goal string) {
		w.row(about, fmt.Sprintf("%.0f", of(plain)), fmt.Sprintf("%.0f", of(rated)), fmt.Sprintf("%.1f%%", 100*ratio), goal)
	}
	row("one by one", func(r admissionRound) float64 { return r.AlonePlain }, func(r admissionRound) float64 { return r.AloneRated }, alone, "")
	row(fmt.Sprintf("from %d callers", c.Callers), func(r admissionRound) float64 { return r.Plain },
		func(r admissionRound) float64 { return r.Rated }, many, "10%")
	row("one by one, Redis asked each time", func(r admissionRound) float64 { return r.AlonePlain },
		func(r admissionRound) float64 { return r.AloneTight }, aloneEach, "")
	row(fmt.Sprintf("from %d callers, Redis asked each time", c.Callers), func(r admissionRound) float64 { return r.Plain },
		func(r admissionRound) float64 { return r.Tight }, each, "")
	w.flush()
	return writeJSON(c.JSON, out)
}
