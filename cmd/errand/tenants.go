package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// tenantCmd administers tenants.
type tenantCmd struct {
	Create tenantCreateCmd `cmd:"" help:"Create a tenant."`
	Update tenantUpdateCmd `cmd:"" help:"Change what is named of a tenant."`
	List   tenantListCmd   `cmd:"" help:"List tenants."`
	Get    tenantGetCmd    `cmd:"" help:"Show a tenant."`
	Pause  tenantPauseCmd  `cmd:"" help:"Accept a tenant's tasks and start none; what runs goes on."`
	Resume tenantResumeCmd `cmd:"" help:"Start a tenant's tasks again."`
	Delete tenantDeleteCmd `cmd:"" help:"Remove a tenant that has no open tasks, with its kinds and limits, and revoke its keys."`
}

// tenantNumbers are what can be set of a tenant. What is not named is nil: it stays as it is. 0 takes a limit away.
type tenantNumbers struct {
	Weight       *float64 `help:"Its share of capacity against other tenants: 0.01 to 1000. Default 1." env:"-" placeholder:"N"`
	Rate         *float64 `help:"Submits per second; 0 for no limit." env:"-" placeholder:"N"`
	Burst        *int32   `help:"Submits at once; 0 for no limit." env:"-" placeholder:"N"`
	UrgentRate   *float64 `help:"Urgent submits per second; those beyond it are stored as standard. 0 for no limit." env:"-" placeholder:"N"`
	RefuseUrgent *bool    `help:"Refuse urgent submits beyond --urgent-rate instead." negatable:"" env:"-"`
	MaxOpen      *int64   `help:"Most open tasks; 0 for no limit." env:"-" placeholder:"N"`
	MaxRunning   *int64   `help:"Most attempts that run at once; 0 for no cap." env:"-" placeholder:"N"`
	StartRate    *float64 `help:"Starts per second; 0 for no limit." env:"-" placeholder:"N"`
}

type tenantCreateCmd struct {
	Name string `arg:"" help:"A letter, then up to 62 of a-z 0-9 -, not ending in a dash."`
	tenantNumbers
	clientSettings
	outputSettings
}

// Run creates the tenant.
func (c *tenantCreateCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.CreateTenant(ctx, &errandv1.CreateTenantRequest{
		Name: c.Name, Weight: c.Weight, Rate: c.Rate, Burst: c.Burst, UrgentRate: c.UrgentRate, RefuseUrgent: c.RefuseUrgent,
		MaxOpen: c.MaxOpen, MaxRunning: c.MaxRunning, StartRate: c.StartRate,
	})
	return c.tenant(c.Name, resp.GetTenant(), err)
}

type tenantUpdateCmd struct {
	Name string `arg:"" help:"Which."`
	tenantNumbers
	clientSettings
	outputSettings
}

// Validate checks the flags together.
func (c *tenantUpdateCmd) Validate() error {
	if c.tenantNumbers == (tenantNumbers{}) {
		return errors.New("say what to change: --weight, --rate, --burst, --urgent-rate, --refuse-urgent, --max-open, --max-running, --start-rate")
	}
	return nil
}

// Run changes what is named and nothing else.
func (c *tenantUpdateCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.UpdateTenant(ctx, &errandv1.UpdateTenantRequest{
		Name: c.Name, Weight: c.Weight, Rate: c.Rate, Burst: c.Burst, UrgentRate: c.UrgentRate, RefuseUrgent: c.RefuseUrgent,
		MaxOpen: c.MaxOpen, MaxRunning: c.MaxRunning, StartRate: c.StartRate,
	})
	return c.tenant(c.Name, resp.GetTenant(), err)
}

type tenantListCmd struct {
	clientSettings
	outputSettings
}

// Run lists the tenants.
func (c *tenantListCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	values, rows := []tenantView{}, [][]string{}
	for req := (&errandv1.ListTenantsRequest{PageSize: listPageMax}); ; {
		resp, err := admin.ListTenants(ctx, req)
		if err != nil {
			return rpcError(err)
		}
		for _, t := range resp.GetTenants() {
			values, rows = append(values, tenantViewOf(t)), append(rows, tenantRow(t))
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return c.print(values, tenantHeader, rows)
}

type tenantGetCmd struct {
	Name string `arg:"" help:"Which."`
	clientSettings
	outputSettings
}

// Run shows the tenant.
func (c *tenantGetCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.GetTenant(ctx, &errandv1.GetTenantRequest{Name: c.Name})
	return c.tenant(c.Name, resp.GetTenant(), err)
}

type tenantPauseCmd struct {
	Name string `arg:"" help:"Which."`
	clientSettings
	outputSettings
}

// Run pauses the tenant.
func (c *tenantPauseCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.PauseTenant(ctx, &errandv1.PauseTenantRequest{Name: c.Name})
	return c.tenant(c.Name, resp.GetTenant(), err)
}

type tenantResumeCmd struct {
	Name string `arg:"" help:"Which."`
	clientSettings
	outputSettings
}

// Run ends the pause.
func (c *tenantResumeCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.ResumeTenant(ctx, &errandv1.ResumeTenantRequest{Name: c.Name})
	return c.tenant(c.Name, resp.GetTenant(), err)
}

type tenantDeleteCmd struct {
	Name string `arg:"" help:"Which."`
	clientSettings
	outputSettings
}

// Run removes the tenant.
func (c *tenantDeleteCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	_, err = admin.DeleteTenant(ctx, &errandv1.DeleteTenantRequest{Name: c.Name})
	if connect.CodeOf(err) == connect.CodeFailedPrecondition {
		err = &meant{err, errTenantBusy}
	}
	if err != nil {
		return about(c.Name, err)
	}
	return c.say(map[string]any{"name": c.Name, "deleted": true}, "deleted %s", c.Name)
}

// tenantView is a tenant. 0 means that there is no limit.
type tenantView struct {
	Name         string     `json:"name"`
	HomeRegion   string     `json:"home_region"`
	Weight       float64    `json:"weight"`
	Rate         float64    `json:"rate"`
	Burst        int32      `json:"burst"`
	UrgentRate   float64    `json:"urgent_rate"`
	RefuseUrgent bool       `json:"refuse_urgent"`
	MaxOpen      int64      `json:"max_open"`
	MaxRunning   int64      `json:"max_running"`
	StartRate    float64    `json:"start_rate"`
	Paused       bool       `json:"paused"`
	CreatedAt    *time.Time `json:"created_at"`
}

func tenantViewOf(t *errandv1.Tenant) tenantView {
	return tenantView{
		Name: t.GetName(), HomeRegion: t.GetHomeRegion(), Weight: t.GetWeight(), Rate: t.GetRate(), Burst: t.GetBurst(),
		UrgentRate: t.GetUrgentRate(), RefuseUrgent: t.GetRefuseUrgent(), MaxOpen: t.GetMaxOpen(), MaxRunning: t.GetMaxRunning(),
		StartRate: t.GetStartRate(), Paused: t.GetPaused(), CreatedAt: stampOf(t.GetCreatedAt()),
	}
}

var tenantHeader = []string{
	"TENANT", "HOME", "WEIGHT", "RATE", "BURST", "URGENT RATE", "MAX OPEN", "MAX RUNNING", "START RATE", "PAUSED", "CREATED",
}

func tenantRow(t *errandv1.Tenant) []string {
	urgent := limited(t.GetUrgentRate())
	if t.GetRefuseUrgent() {
		urgent += " (refuse)"
	}
	return []string{
		t.GetName(), t.GetHomeRegion(), number(t.GetWeight()), limited(t.GetRate()), limited(float64(t.GetBurst())), urgent,
		limited(float64(t.GetMaxOpen())), limited(float64(t.GetMaxRunning())), limited(t.GetStartRate()),
		strconv.FormatBool(t.GetPaused()), ago(t.GetCreatedAt().AsTime()),
	}
}

// tenant shows a tenant that an operator's call has answered, or says what became of the call.
func (o *outputSettings) tenant(name string, t *errandv1.Tenant, err error) error {
	if err != nil {
		return about(name, err)
	}
	return o.print(tenantViewOf(t), tenantHeader, [][]string{tenantRow(t)})
}

// number shows a number without an exponent.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// limited shows a number of which 0 means that there is no limit.
func limited(f float64) string {
	if f == 0 {
		return "-"
	}
	return number(f)
}
