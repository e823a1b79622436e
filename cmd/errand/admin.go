package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/internal/api"
	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

func (c *clientSettings) admin() (errandv1connect.AdminServiceClient, error) {
	cfg, err := c.checked("an admin")
	if err != nil {
		return nil, err
	}
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg.TLS}}
	key := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+cfg.Key)
			return next(ctx, req)
		}
	})
	return errandv1connect.NewAdminServiceClient(hc, c.URL, connect.WithInterceptors(key)), nil
}

// tenantCmd administers tenants.
type tenantCmd struct {
	Create tenantCreateCmd `cmd:"" help:"Create a tenant."`
	Update tenantUpdateCmd `cmd:"" help:"Change a tenant."`
	List   tenantListCmd   `cmd:"" help:"List tenants."`
}

type tenantCreateCmd struct {
	Name   string   `arg:"" help:"A letter, then letters, digits and dashes."`
	Weight *float64 `help:"Its share of capacity against other tenants. Default 1." env:"-"`
	clientSettings
	outputSettings
}

// Run creates the tenant.
func (c *tenantCreateCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.CreateTenant(ctx, &errandv1.CreateTenantRequest{Name: c.Name, Weight: c.Weight})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, rpcError(err))
	}
	return c.print(tenantViewOf(resp.GetTenant()), tenantHeader, [][]string{tenantRow(resp.GetTenant())})
}

type tenantUpdateCmd struct {
	Name   string   `arg:"" help:"Which."`
	Weight *float64 `help:"Its share of capacity against other tenants." env:"-"`
	clientSettings
	outputSettings
}

// Run changes the tenant.
func (c *tenantUpdateCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.UpdateTenant(ctx, &errandv1.UpdateTenantRequest{Name: c.Name, Weight: c.Weight})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, rpcError(err))
	}
	return c.print(tenantViewOf(resp.GetTenant()), tenantHeader, [][]string{tenantRow(resp.GetTenant())})
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
	var rows [][]string
	values := []tenantView{}
	for req := (&errandv1.ListTenantsRequest{PageSize: 500}); ; {
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

var tenantHeader = []string{"TENANT", "HOME", "WEIGHT", "PAUSED", "CREATED"}

func tenantRow(t *errandv1.Tenant) []string {
	return []string{
		t.GetName(), t.GetHomeRegion(), fmt.Sprint(t.GetWeight()), fmt.Sprint(t.GetPaused()), ago(t.GetCreatedAt().AsTime()),
	}
}

// keyCmd administers API keys.
type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Create a key; its secret is shown this once."`
	List   keyListCmd   `cmd:"" help:"List keys."`
	Revoke keyRevokeCmd `cmd:"" help:"End a key."`
}

type keyCreateCmd struct {
	Scope  string   `arg:"" help:"tenant, pool or admin." enum:"tenant,pool,admin"`
	Tenant string   `help:"Whose, for a tenant's key." env:"-"`
	Kinds  []string `help:"Which kinds, for a pool key." env:"-"`
	Note   string   `help:"For people." env:"-"`
	Store  string   `help:"Write to the store itself: for the first admin key." placeholder:"URL"`
	clientSettings
	outputSettings
}

var scopes = map[string]errandv1.KeyScope{
	"tenant": errandv1.KeyScope_KEY_SCOPE_TENANT, "pool": errandv1.KeyScope_KEY_SCOPE_POOL, "admin": errandv1.KeyScope_KEY_SCOPE_ADMIN,
}

// Run creates the key.
func (c *keyCreateCmd) Run(ctx context.Context) error {
	if c.Store != "" {
		return c.first(ctx)
	}
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.CreateKey(ctx, &errandv1.CreateKeyRequest{Scope: scopes[c.Scope], Tenant: c.Tenant, Kinds: c.Kinds, Note: c.Note})
	if err != nil {
		return rpcError(err)
	}
	return c.show(resp.GetKey().GetKeyId(), resp.GetSecret())
}

// first makes an admin key with nothing but access to the store.
func (c *keyCreateCmd) first(ctx context.Context) error {
	if c.Scope != "admin" {
		return fmt.Errorf("%w: --store is for admin keys; others are created with an admin key", errUsage)
	}
	st, err := store.Open(ctx, store.Config{URL: c.Store, Hot: 1, Control: 1, General: 1})
	if err != nil {
		return err
	}
	defer st.Close()
	secret, hash := api.NewSecret()
	k := store.Key{ID: api.NewKeyID(), Hash: hash, Scope: store.ScopeAdmin, Note: c.Note}
	if err := st.CreateKey(ctx, k); err != nil {
		return err
	}
	return c.show(k.ID, secret)
}

func (c *keyCreateCmd) show(id, secret string) error {
	return c.print(createdKeyView{id, secret},
		[]string{"KEY", "SECRET (shown once)"}, [][]string{{id, secret}})
}

type keyListCmd struct {
	Tenant string `help:"Only this tenant's." env:"-"`
	clientSettings
	outputSettings
}

// Run lists the keys.
func (c *keyListCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	var rows [][]string
	values := []keyView{}
	for req := (&errandv1.ListKeysRequest{Tenant: c.Tenant, PageSize: 500}); ; {
		resp, err := admin.ListKeys(ctx, req)
		if err != nil {
			return rpcError(err)
		}
		for _, k := range resp.GetKeys() {
			revoked := "-"
			if k.GetRevokedAt() != nil {
				revoked = ago(k.GetRevokedAt().AsTime())
			}
			v := keyViewOf(k)
			values = append(values, v)
			rows = append(rows, []string{
				v.KeyID, v.Scope, dash(v.Tenant), dash(strings.Join(v.Kinds, ",")), ago(k.GetCreatedAt().AsTime()), revoked, v.Note,
			})
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return c.print(values, []string{"KEY", "SCOPE", "TENANT", "KINDS", "CREATED", "REVOKED", "NOTE"}, rows)
}

type keyRevokeCmd struct {
	ID string `arg:"" help:"The key's id."`
	clientSettings
	outputSettings
}

// Run ends the key.
func (c *keyRevokeCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	if _, err := admin.RevokeKey(ctx, &errandv1.RevokeKeyRequest{KeyId: c.ID}); err != nil {
		return fmt.Errorf("%s: %w", c.ID, rpcError(err))
	}
	return c.say(map[string]any{"key_id": c.ID, "revoked": true}, "revoked %s", c.ID)
}

// workersCmd looks at the workers of an instance.
type workersCmd struct {
	List  workersListCmd  `cmd:"" default:"withargs" help:"List the workers connected to the instance that answers."`
	Drain workersDrainCmd `cmd:"" help:"Give a worker no more work."`
}

type workersListCmd struct {
	clientSettings
	outputSettings
}

// Run lists them.
func (c *workersListCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.ListWorkers(ctx, &errandv1.ListWorkersRequest{})
	if err != nil {
		return rpcError(err)
	}
	values, rows := []workerView{}, [][]string{}
	for _, w := range resp.GetWorkers() {
		v := workerViewOf(w)
		values = append(values, v)
		rows = append(rows, []string{
			v.Worker, dash(v.Name), dash(v.Tenant), slotsText(v.Slots), strconv.FormatBool(v.Connected), strconv.FormatBool(v.Draining),
			short(w.GetSilent().AsDuration()),
		})
	}
	return c.print(values, []string{"WORKER", "NAME", "TENANT", "SLOTS", "CONNECTED", "DRAINING", "SILENT"}, rows)
}

// slotsText shows slots by kind, in order.
func slotsText(slots map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(slots)) {
		parts = append(parts, fmt.Sprintf("%s=%d", kind, slots[kind]))
	}
	return dash(strings.Join(parts, ","))
}

type workersDrainCmd struct {
	Worker string `arg:"" help:"The worker instance."`
	clientSettings
	outputSettings
}

// Run drains it.
func (c *workersDrainCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	if _, err := admin.DrainWorker(ctx, &errandv1.DrainWorkerRequest{Worker: c.Worker}); err != nil {
		return fmt.Errorf("%s: %w", c.Worker, rpcError(err))
	}
	return c.say(map[string]any{"worker": c.Worker, "draining": true}, "draining %s", c.Worker)
}

// auditCmd proves P2 and P3.
type auditCmd struct {
	clientSettings
	outputSettings
}

// Run audits; it ends with 6 when something was found.
func (c *auditCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.Audit(ctx, &errandv1.AuditRequest{})
	if err != nil {
		return rpcError(err)
	}
	v := auditViewOf(resp)
	var rows [][]string
	for _, b := range v.Balances {
		rows = append(rows, []string{
			b.Tenant, b.Tier, strconv.FormatInt(b.Accepted, 10), strconv.FormatInt(b.Ended, 10), strconv.FormatInt(b.Open, 10),
		})
	}
	if err := c.print(v, []string{"TENANT", "TIER", "ACCEPTED", "ENDED", "OPEN"}, rows); err != nil {
		return err
	}
	for _, f := range v.Findings {
		fmt.Fprintf(os.Stderr, "finding: %s: %d rows, for instance %s: %s\n", f.Reason, f.Rows, dash(f.ExampleTaskID), f.Message)
	}
	if !v.OK {
		return errQuiet
	}
	if c.Output != "json" {
		fmt.Println("\nall is well: accepted = ended + open, and every open task has a reason to be looked at again")
	}
	return nil
}
