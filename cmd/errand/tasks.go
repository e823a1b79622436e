package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/api"
)

// clientSettings say where the schedulers are and who calls.
type clientSettings struct {
	URL string `help:"URL of a scheduler. Without it, where the errand dev of this folder is (see errand dev --help)." default:"http://127.0.0.1:7070" env:"ERRAND_URL"`
	Key string `help:"API key. Without it, as for --url." env:"ERRAND_KEY" placeholder:"KEY"`
	CA  string `help:"File with the server's authority, for https." placeholder:"FILE"`

	ClientCert    string `help:"File with a client certificate, where servers want one." placeholder:"FILE"`
	ClientCertKey string `help:"File with its key." placeholder:"FILE"`
}

func (c *clientSettings) config() (errand.Config, error) {
	cfg := errand.Config{URLs: []string{c.URL}, Key: c.Key}
	var err error
	cfg.TLS, err = api.TLSClientConfig(c.CA, c.ClientCert, c.ClientCertKey)
	return cfg, err
}

func (c *clientSettings) client() (*errand.Client, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	return errand.NewClient(cfg)
}

var tiers = map[string]errand.Tier{"urgent": errand.Urgent, "standard": errand.Standard, "deferrable": errand.Deferrable}

// submitCmd submits a task.
type submitCmd struct {
	Kind           string            `arg:"" help:"Which handler runs it."`
	Payload        string            `arg:"" optional:"" help:"What the handler gets; - reads standard input."`
	ContentType    string            `help:"How to read the payload."`
	Label          map[string]string `help:"KEY=VALUE, may be repeated."`
	Tier           string            `help:"urgent, standard or deferrable." enum:"urgent,standard,deferrable" default:"standard"`
	Delay          time.Duration     `help:"Start no sooner than after this time."`
	StartWithin    time.Duration     `help:"Useless if not started within this time."`
	Timeout        time.Duration     `help:"The execution cap of one attempt. Default 1h."`
	MaxAttempts    int               `help:"Most starts that count. Default 5."`
	IdempotencyKey string            `help:"Submissions with the same key are stored once." name:"idempotency-key"`
	Exclusive      bool              `help:"A handler must have stopped before another attempt may start."`
	Wait           bool              `help:"Wait for the task to end."`
	clientSettings
	outputSettings
}

// Run submits.
func (c *submitCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	payload := []byte(c.Payload)
	if c.Payload == "-" {
		const most = 256<<10 + 1 // one more than a payload may have: the server refuses it
		if payload, err = io.ReadAll(io.LimitReader(os.Stdin, most)); err != nil {
			return err
		}
	}
	got, err := client.Submit(ctx, errand.Spec{
		Kind: c.Kind, Payload: payload, ContentType: c.ContentType, Labels: c.Label, Tier: tiers[c.Tier], Delay: c.Delay,
		StartWithin: c.StartWithin, AttemptTimeout: c.Timeout, MaxAttempts: c.MaxAttempts, IdempotencyKey: c.IdempotencyKey,
		Exclusive: c.Exclusive,
	})
	if err != nil {
		return err
	}
	if c.Wait {
		return (&waitCmd{IDs: []string{got.ID}, clientSettings: c.clientSettings, outputSettings: c.outputSettings}).Run(ctx)
	}
	return c.print(map[string]any{"task_id": got.ID, "state": got.State.String(), "existed": got.Existed},
		[]string{"TASK", "STATE", "EXISTED"}, [][]string{{got.ID, got.State.String(), fmt.Sprint(got.Existed)}})
}

// getCmd shows a task.
type getCmd struct {
	ID string `arg:"" help:"The task's handle, REGION.ID."`
	clientSettings
	outputSettings
}

// Run shows it.
func (c *getCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	t, err := client.Get(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(os.Stdout, taskJSON(&t))
	}
	rows := [][]string{
		{"task", t.ID},
		{"kind", t.Kind},
		{"tenant", t.Tenant},
		{"state", t.State.String()},
		{"attempt", fmt.Sprintf("%d (%d counted)", t.Attempt, t.CountedAttempts)},
		{"created", ago(t.CreatedAt)},
		{"due", t.Due.Format(time.RFC3339)},
		{"started", ago(t.StartedAt)},
		{"ended", ago(t.EndedAt)},
		{"worker", t.Worker},
		{"payload", printable(t.Payload)},
		{"result", printable(t.Result)},
		{"reason", t.Reason},
		{"message", t.Message},
	}
	return c.print(nil, []string{"FIELD", "VALUE"}, rows)
}

func taskJSON(t *errand.Task) map[string]any {
	return map[string]any{
		"task_id": t.ID, "kind": t.Kind, "tenant": t.Tenant, "state": t.State.String(), "tier": int(t.Tier), "attempt": t.Attempt,
		"counted_attempts": t.CountedAttempts, "payload": t.Payload, "result": t.Result, "result_type": t.ResultType,
		"reason": t.Reason, "message": t.Message, "labels": t.Labels, "effect_key": t.EffectKey, "worker": t.Worker,
		"cancel_requested": t.CancelRequested, "created_at": t.CreatedAt, "ready_at": t.ReadyAt, "due": t.Due,
		"started_at": t.StartedAt, "ended_at": t.EndedAt,
	}
}

// waitCmd waits for tasks to end.
type waitCmd struct {
	IDs     []string      `arg:"" name:"id" help:"The tasks' handles."`
	Timeout time.Duration `help:"Give up after this time. Default never."`
	clientSettings
	outputSettings
}

// Run waits; it ends with 6 when a task did not succeed.
func (c *waitCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	var rows [][]string
	var values []any
	bad := false
	for _, id := range c.IDs {
		t, err := client.Wait(ctx, id)
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s is still %s after %v", id, t.State, c.Timeout)
		}
		if err != nil {
			return err
		}
		bad = bad || t.State != errand.Succeeded
		values = append(values, taskJSON(&t))
		rows = append(rows, []string{t.ID, t.Kind, t.State.String(), fmt.Sprint(t.Attempt), t.Reason, printable(t.Result)})
	}
	if err := c.print(values, []string{"TASK", "KIND", "STATE", "ATTEMPT", "REASON", "RESULT"}, rows); err != nil {
		return err
	}
	if bad {
		return errQuiet
	}
	return nil
}

// listCmd lists tasks.
type listCmd struct {
	State []string          `help:"Any of these states."`
	Kind  []string          `help:"Any of these kinds."`
	Label map[string]string `help:"All of these labels, KEY=VALUE."`
	Limit int               `help:"At most how many." default:"50"`
	clientSettings
	outputSettings
}

var states = map[string]errand.State{
	"scheduled": errand.Scheduled, "ready": errand.Ready, "running": errand.Running, "blocked": errand.Blocked,
	"succeeded": errand.Succeeded, "failed": errand.Failed, "canceled": errand.Canceled, "expired": errand.Expired,
}

// Run lists.
func (c *listCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	filter := errand.Filter{Kinds: c.Kind, Labels: c.Label}
	for _, word := range c.State {
		state, known := states[word]
		if !known {
			return fmt.Errorf("%w: --state: there is no state %q", errUsage, word)
		}
		filter.States = append(filter.States, state)
	}
	values, rows := []any{}, [][]string{}
	for t, err := range client.List(ctx, filter) {
		if err != nil {
			return err
		}
		if len(rows) >= c.Limit {
			break
		}
		values = append(values, taskJSON(&t))
		rows = append(rows, []string{t.ID, t.Kind, t.State.String(), fmt.Sprint(t.Attempt), ago(t.CreatedAt), t.Reason})
	}
	return c.print(values, []string{"TASK", "KIND", "STATE", "ATTEMPT", "CREATED", "REASON"}, rows)
}

// cancelCmd cancels a task.
type cancelCmd struct {
	ID     string `arg:"" help:"The task's handle."`
	Reason string `help:"Why, for people."`
	clientSettings
	outputSettings
}

// Run cancels; it ends with 6 when the task had ended before.
func (c *cancelCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	a, err := client.Cancel(ctx, c.ID, c.Reason)
	if err != nil {
		return err
	}
	err = c.print(map[string]any{"task_id": c.ID, "state": a.State.String(), "accepted": a.Accepted},
		[]string{"TASK", "STATE", "ACCEPTED"}, [][]string{{c.ID, a.State.String(), fmt.Sprint(a.Accepted)}})
	if err == nil && !a.Accepted {
		return errQuiet
	}
	return err
}
