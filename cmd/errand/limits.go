package main

import (
	"context"
	"errors"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// limitCmd administers named limits.
type limitCmd struct {
	Put    limitPutCmd    `cmd:"" help:"Set a named limit, whether it is stored already or not."`
	Delete limitDeleteCmd `cmd:"" help:"Remove a named limit: its name caps nothing any more."`
	List   limitListCmd   `cmd:"" help:"List a tenant's named limits."`
}

type limitPutCmd struct {
	Name        string   `arg:"" help:"A letter, then up to 62 of a-z 0-9 . _ -"`
	Tenant      string   `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	Concurrency *int32   `help:"Attempts at once, for each key; 0 or nothing for no cap." env:"-" placeholder:"N"`
	Rate        *float64 `help:"Starts per second, for each key; 0 or nothing for no cap." env:"-" placeholder:"N"`
	clientSettings
	outputSettings
}

// Help follows the arguments and flags.
func (*limitPutCmd) Help() string {
	return `The limit is set as a whole: a cap that is not named is taken away.

    errand limit put payments-api --tenant acme --concurrency 10 --rate 2.5
    errand submit charge '{"amount": 5}' --limit payments-api/customer-17`
}

// Validate checks the flags together.
func (c *limitPutCmd) Validate() error {
	if c.Concurrency == nil && c.Rate == nil {
		return errors.New("say what it caps: --concurrency, --rate or both")
	}
	return nil
}

// Run sets the limit.
func (c *limitPutCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	l := &errandv1.NamedLimit{Tenant: c.Tenant, Name: c.Name}
	set(&l.Concurrency, c.Concurrency)
	set(&l.Rate, c.Rate)
	resp, err := admin.PutLimit(ctx, &errandv1.PutLimitRequest{Limit: l})
	if err != nil {
		return about(c.Name+" of "+c.Tenant, err)
	}
	return c.print(limitViewOf(resp.GetLimit()), limitHeader, [][]string{limitRow(resp.GetLimit())})
}

type limitDeleteCmd struct {
	Name   string `arg:"" help:"Which."`
	Tenant string `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	clientSettings
	outputSettings
}

// Run removes the limit.
func (c *limitDeleteCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	if _, err := admin.DeleteLimit(ctx, &errandv1.DeleteLimitRequest{Tenant: c.Tenant, Name: c.Name}); err != nil {
		return about(c.Name+" of "+c.Tenant, err)
	}
	return c.say(map[string]any{"tenant": c.Tenant, "name": c.Name, "deleted": true}, "deleted %s of %s", c.Name, c.Tenant)
}

type limitListCmd struct {
	Tenant string `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	clientSettings
	outputSettings
}

// Run lists the limits.
func (c *limitListCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	values, rows := []limitView{}, [][]string{}
	for req := (&errandv1.ListLimitsRequest{Tenant: c.Tenant, PageSize: listPageMax}); ; {
		resp, err := admin.ListLimits(ctx, req)
		if err != nil {
			return about(c.Tenant, err)
		}
		for _, l := range resp.GetLimits() {
			values, rows = append(values, limitViewOf(l)), append(rows, limitRow(l))
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return c.print(values, limitHeader, rows)
}

// limitView is a named limit. 0 means that there is no cap.
type limitView struct {
	Tenant      string  `json:"tenant"`
	Name        string  `json:"name"`
	Concurrency int32   `json:"concurrency"`
	Rate        float64 `json:"rate"`
}

func limitViewOf(l *errandv1.NamedLimit) limitView {
	return limitView{l.GetTenant(), l.GetName(), l.GetConcurrency(), l.GetRate()}
}

var limitHeader = []string{"TENANT", "LIMIT", "CONCURRENCY", "RATE"}

func limitRow(l *errandv1.NamedLimit) []string {
	return []string{l.GetTenant(), l.GetName(), limited(float64(l.GetConcurrency())), limited(l.GetRate())}
}
