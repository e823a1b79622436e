package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// kindCmd administers the kinds of tenants.
type kindCmd struct {
	Put    kindPutCmd    `cmd:"" help:"Set what a kind's tasks get where their submitter says nothing."`
	Get    kindGetCmd    `cmd:"" help:"Show a kind."`
	List   kindListCmd   `cmd:"" help:"List a tenant's kinds for which something is set."`
	Pause  kindPauseCmd  `cmd:"" help:"Accept a kind's tasks and start none; what runs goes on."`
	Resume kindResumeCmd `cmd:"" help:"Start a kind's tasks again."`
}

type kindPutCmd struct {
	Name            string         `arg:"" help:"A letter, then up to 62 of a-z 0-9 . _ -"`
	Tenant          string         `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	Tier            string         `help:"How long they may wait: urgent, standard or deferrable." enum:",urgent,standard,deferrable" default:"" env:"-"`
	DelayTolerance  *time.Duration `help:"How long they may wait once ready; for those of this tier." env:"-" placeholder:"DURATION"`
	Timeout         *time.Duration `help:"The execution cap of one attempt: 100ms to 168h." env:"-" placeholder:"DURATION"`
	MaxAttempts     *int32         `help:"Most starts that count: 1 to 1000." env:"-" placeholder:"N"`
	MaxWorkerLosses *int32         `help:"Lost workers after which a task is poison: 1 to 100." env:"-" placeholder:"N"`

	InitialBackoff *time.Duration `help:"The longest wait after the first counted attempt: 1ms to 24h." env:"-" placeholder:"DURATION"`
	MaxBackoff     *time.Duration `help:"The cap of the waits: 1ms to 720h." env:"-" placeholder:"DURATION"`
	Multiplier     *float64       `help:"How the waits grow: 1 to 100." env:"-" placeholder:"N"`
	NonRetryable   []string       `help:"Failure reasons after which a task is not tried again; may be repeated." env:"-" placeholder:"REASON,..."`
	amountSettings
	clientSettings
	outputSettings
}

// Help follows the arguments and flags.
func (*kindPutCmd) Help() string {
	return `The defaults are set as a whole: what is not named is as if it had never been set. They count for tasks that are submitted
afterwards. A pause stays as it is.

    errand kind put encode --tenant acme --tier deferrable --timeout 20m --max-attempts 3`
}

// Validate checks what the request could not say.
func (c *kindPutCmd) Validate() error {
	if c.Multiplier != nil && *c.Multiplier == 0 {
		return errors.New("--multiplier: 0 is not between 1 and 100")
	}
	return c.check()
}

func (c *kindPutCmd) defaults() *errandv1.KindDefaults {
	d := &errandv1.KindDefaults{
		Tier: errandv1.Tier(tiers[c.Tier]), DelayTolerance: spanOf(c.DelayTolerance), AttemptTimeout: spanOf(c.Timeout),
		MaxAttempts: c.MaxAttempts, MaxWorkerLosses: c.MaxWorkerLosses,
		Requirements: c.message(),
	}
	if c.InitialBackoff != nil || c.MaxBackoff != nil || c.Multiplier != nil || len(c.NonRetryable) > 0 {
		d.RetryPolicy = &errandv1.RetryPolicy{
			InitialBackoff: spanOf(c.InitialBackoff), MaxBackoff: spanOf(c.MaxBackoff), NonRetryableReasons: c.NonRetryable,
		}
		set(&d.RetryPolicy.Multiplier, c.Multiplier)
	}
	return d
}

// spanOf is nil for what is not named, so that 0 is told from nothing.
func spanOf(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// Run sets the defaults.
func (c *kindPutCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.PutKind(ctx, &errandv1.PutKindRequest{
		Kind: &errandv1.Kind{Tenant: c.Tenant, Name: c.Name, Defaults: c.defaults()},
	})
	return c.kind(c.Tenant, c.Name, resp.GetKind(), err)
}

type kindGetCmd struct {
	Name   string `arg:"" help:"Which."`
	Tenant string `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	clientSettings
	outputSettings
}

// Run shows the kind.
func (c *kindGetCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.GetKind(ctx, &errandv1.GetKindRequest{Tenant: c.Tenant, Name: c.Name})
	return c.kind(c.Tenant, c.Name, resp.GetKind(), err)
}

type kindListCmd struct {
	Tenant string `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	clientSettings
	outputSettings
}

// Run lists the kinds.
func (c *kindListCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	values, rows := []kindView{}, [][]string{}
	for req := (&errandv1.ListKindsRequest{Tenant: c.Tenant, PageSize: listPageMax}); ; {
		resp, err := admin.ListKinds(ctx, req)
		if err != nil {
			return about(c.Tenant, err)
		}
		for _, k := range resp.GetKinds() {
			values, rows = append(values, kindViewOf(k)), append(rows, kindRow(k))
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return c.print(values, kindHeader, rows)
}

type kindPauseCmd struct {
	Name   string `arg:"" help:"A letter, then up to 62 of a-z 0-9 . _ -"`
	Tenant string `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	clientSettings
	outputSettings
}

// Run pauses the kind.
func (c *kindPauseCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.PauseKind(ctx, &errandv1.PauseKindRequest{Tenant: c.Tenant, Name: c.Name})
	return c.kind(c.Tenant, c.Name, resp.GetKind(), err)
}

type kindResumeCmd struct {
	Name   string `arg:"" help:"Which."`
	Tenant string `help:"Whose." required:"" env:"-" placeholder:"NAME"`
	clientSettings
	outputSettings
}

// Run ends the pause.
func (c *kindResumeCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.ResumeKind(ctx, &errandv1.ResumeKindRequest{Tenant: c.Tenant, Name: c.Name})
	return c.kind(c.Tenant, c.Name, resp.GetKind(), err)
}

// kindView is a kind. What is not set is null; time spans are as the flags take them.
type kindView struct {
	Tenant          string   `json:"tenant"`
	Name            string   `json:"name"`
	Paused          bool     `json:"paused"`
	Tier            *string  `json:"tier"`
	DelayTolerance  *string  `json:"delay_tolerance"`
	Timeout         *string  `json:"timeout"`
	MaxAttempts     *int32   `json:"max_attempts"`
	MaxWorkerLosses *int32   `json:"max_worker_losses"`
	InitialBackoff  *string  `json:"initial_backoff"`
	MaxBackoff      *string  `json:"max_backoff"`
	Multiplier      *float64 `json:"multiplier"`
	NonRetryable    []string `json:"non_retryable"`

	Needs *needsView `json:"needs"`
}

func kindViewOf(k *errandv1.Kind) kindView {
	d, retry := k.GetDefaults(), k.GetDefaults().GetRetryPolicy()
	v := kindView{
		Tenant: k.GetTenant(), Name: k.GetName(), Paused: k.GetPaused(),
		DelayTolerance: spanText(d.GetDelayTolerance()), Timeout: spanText(d.GetAttemptTimeout()),
		MaxAttempts: d.MaxAttempts, MaxWorkerLosses: d.MaxWorkerLosses, //nolint:protogetter // nil is told from 0
		InitialBackoff: spanText(retry.GetInitialBackoff()), MaxBackoff: spanText(retry.GetMaxBackoff()),
		NonRetryable: append([]string{}, retry.GetNonRetryableReasons()...),
		Needs:        needsViewOf(requirementsOf(d.GetRequirements())),
	}
	if d.GetTier() != 0 {
		word := wordOf(d.GetTier().String(), "TIER_")
		v.Tier = &word
	}
	if m := retry.GetMultiplier(); m != 0 {
		v.Multiplier = &m
	}
	return v
}

func spanText(d *durationpb.Duration) *string {
	if d == nil {
		return nil
	}
	text := d.AsDuration().String()
	return &text
}

var kindHeader = []string{"TENANT", "KIND", "TIER", "TOLERANCE", "TIMEOUT", "ATTEMPTS", "LOSSES", "BACKOFF", "NOT RETRIED", "PAUSED", "NEEDS"}

func kindRow(k *errandv1.Kind) []string {
	v := kindViewOf(k)
	return []string{
		v.Tenant, v.Name, text(v.Tier), text(v.DelayTolerance), text(v.Timeout), text(v.MaxAttempts), text(v.MaxWorkerLosses),
		v.backoff(), dash(strings.Join(v.NonRetryable, ",")), strconv.FormatBool(v.Paused),
		dash(needsText(requirementsOf(k.GetDefaults().GetRequirements()))),
	}
}

// backoff shows what is set of the waits between tries.
func (v *kindView) backoff() string {
	var parts []string
	if v.InitialBackoff != nil {
		parts = append(parts, "from "+*v.InitialBackoff)
	}
	if v.Multiplier != nil {
		parts = append(parts, "x"+number(*v.Multiplier))
	}
	if v.MaxBackoff != nil {
		parts = append(parts, "to "+*v.MaxBackoff)
	}
	return dash(strings.Join(parts, " "))
}

// text shows a value, or that it is not set.
func text[T any](value *T) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprint(*value)
}

// kind shows a kind that an operator's call has answered, or says what became of the call.
func (o *outputSettings) kind(tenant, name string, k *errandv1.Kind, err error) error {
	if err != nil {
		return about(name+" of "+tenant, err)
	}
	return o.print(kindViewOf(k), kindHeader, [][]string{kindRow(k)})
}
