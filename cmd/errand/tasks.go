package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/api"
)

// clientSettings say where the schedulers are and who calls.
type clientSettings struct {
	URL string `help:"URL of a scheduler." default:"http://127.0.0.1:7070" env:"ERRAND_URL"`
	Key string `help:"API key." env:"ERRAND_KEY" placeholder:"KEY"`
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

// checked is config for a command that makes one call and ends.
func (c *clientSettings) checked(whose string) (errand.Config, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errand.Config{}, fmt.Errorf("%w: --url: %q is not like http://HOST:PORT", errUsage, c.URL)
	}
	if c.Key == "" {
		return errand.Config{}, fmt.Errorf("%w: --key or ERRAND_KEY: %s key is needed; errand dev makes one, or errand key create", errUsage, whose)
	}
	return c.config()
}

func (c *clientSettings) client() (*errand.Client, error) {
	cfg, err := c.checked("a tenant's")
	if err != nil {
		return nil, err
	}
	return errand.NewClient(cfg)
}

var tiers = map[string]errand.Tier{"urgent": errand.Urgent, "standard": errand.Standard, "deferrable": errand.Deferrable}

// getCmd shows a task.
type getCmd struct {
	ID     string `arg:"" help:"The task's handle, REGION.ID."`
	Result bool   `help:"Write only the result, byte by byte." env:"-"`
	clientSettings
	outputSettings
}

// Run shows it; with --result it ends with 6 when there is none.
func (c *getCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	t, err := client.Get(ctx, c.ID)
	if err != nil {
		return fmt.Errorf("%s: %w", c.ID, err)
	}
	if !c.Result {
		return c.show(&t)
	}
	if t.State != errand.Succeeded {
		fmt.Fprintf(os.Stderr, "errand: %s is %v and has no result\n", t.ID, t.State)
		return errQuiet
	}
	_, err = os.Stdout.Write(t.Result)
	return err
}

func (o *outputSettings) show(t *errand.Task) error {
	if o.Output == "json" {
		return printJSON(os.Stdout, viewOf(t))
	}
	until := t.EndedAt
	if t.State == errand.Running {
		until = time.Now()
	}
	rows := [][]string{
		{"task", t.ID},
		{"kind", t.Kind},
		{"tenant", t.Tenant},
		{"state", t.State.String()},
		{"tier", tierWord(t.Tier)},
		{"limits", strings.Join(limitTexts(t.Limits), ", ")},
		{"needs", needsText(t.Needs)},
		{"on workers", textsOf(t.Selectors, selectorText)},
		{"better on", textsOf(t.Preferences, preferenceText)},
		{"near", t.Near},
		{"attempts", fmt.Sprintf("%d (%d counted)", t.Attempt, t.CountedAttempts)},
		{"created", moment(t.CreatedAt)},
		{"due", moment(t.Due)},
		{"started", moment(t.StartedAt)},
		{"ended", moment(t.EndedAt)},
		{"waited", between(t.ReadyAt, t.StartedAt)},
		{"ran", between(t.StartedAt, until)},
		{"worker", t.Worker},
		{"payload", printable(t.Payload)},
		{"result", printable(t.Result)},
		{"reason", t.Reason},
		{"message", printable([]byte(t.Message))},
	}
	shown := rows[:0]
	for _, row := range rows {
		if row[1] != "" && row[1] != "-" {
			shown = append(shown, row)
		}
	}
	return o.print(nil, nil, shown)
}

// listCmd lists tasks.
type listCmd struct {
	State []string          `help:"Any of these states: ${enum}." enum:"scheduled,ready,running,blocked,succeeded,failed,canceled,expired" env:"-" placeholder:"STATE,..."`
	Kind  []string          `help:"Any of these kinds." env:"-" placeholder:"KIND,..."`
	Label map[string]string `help:"All of these labels; may be repeated." env:"-" placeholder:"KEY=VALUE"`
	Since time.Duration     `help:"Only those created within this time." env:"-" placeholder:"DURATION"`
	Limit int               `help:"At most how many." default:"50" env:"-"`
	clientSettings
	outputSettings
}

var states = map[string]errand.State{
	"scheduled": errand.Scheduled, "ready": errand.Ready, "running": errand.Running, "blocked": errand.Blocked,
	"succeeded": errand.Succeeded, "failed": errand.Failed, "canceled": errand.Canceled, "expired": errand.Expired,
}

func (c *listCmd) filter() (errand.Filter, error) {
	filter := errand.Filter{Kinds: c.Kind, Labels: c.Label}
	if c.Limit < 1 || c.Since < 0 {
		return filter, fmt.Errorf("%w: --limit must be above 0, and --since not below", errUsage)
	}
	for _, word := range c.State {
		filter.States = append(filter.States, states[word])
	}
	if c.Since > 0 {
		filter.CreatedAfter = time.Now().Add(-c.Since)
	}
	return filter, nil
}

// Run lists.
func (c *listCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	filter, err := c.filter()
	if err != nil {
		return err
	}
	values, rows, more := []taskView{}, [][]string{}, false
	for t, err := range client.List(ctx, filter) {
		if err != nil {
			return err
		}
		if more = len(rows) == c.Limit; more {
			break
		}
		values = append(values, summaryOf(&t))
		rows = append(rows, []string{
			t.ID, t.Kind, t.State.String(), strconv.FormatInt(t.Attempt, 10), ago(t.CreatedAt), between(t.StartedAt, t.EndedAt), dash(t.Reason),
		})
	}
	err = c.print(values, []string{"TASK", "KIND", "STATE", "ATTEMPT", "CREATED", "RAN", "REASON"}, rows)
	if err == nil && more && c.Output != "json" {
		fmt.Fprintf(os.Stderr, "errand: these are the newest %d; --limit shows more\n", c.Limit)
	}
	return err
}

// cancelCmd cancels a task.
type cancelCmd struct {
	ID     string `arg:"" help:"The task's handle."`
	Reason string `help:"Why, for people." env:"-"`
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
		return fmt.Errorf("%s: %w", c.ID, err)
	}
	err = c.print(canceledView{c.ID, a.State.String(), a.Accepted},
		[]string{"TASK", "STATE", "ACCEPTED"}, [][]string{{c.ID, a.State.String(), strconv.FormatBool(a.Accepted)}})
	switch {
	case err != nil:
		return err
	case !a.Accepted:
		fmt.Fprintln(os.Stderr, "errand: it had ended before: nothing was changed")
		return errQuiet
	case a.State == errand.Running && c.Output != "json":
		fmt.Fprintln(os.Stderr, "errand: its worker is being told; errand wait shows how it ends")
	}
	return nil
}
