package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/internal/api"
	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

func (c *clientSettings) admin() (errandv1connect.AdminServiceClient, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	if cfg.Key == "" {
		return nil, fmt.Errorf("%w: --key or ERRAND_KEY: an admin key is needed", errUsage)
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
	Weight *float64 `help:"Its share of capacity against other tenants. Default 1."`
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
		return rpcError(err)
	}
	return c.print(resp.GetTenant(), tenantHeader, [][]string{tenantRow(resp.GetTenant())})
}

type tenantUpdateCmd struct {
	Name   string   `arg:"" help:"Which."`
	Weight *float64 `help:"Its share of capacity against other tenants."`
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
		return rpcError(err)
	}
	return c.print(resp.GetTenant(), tenantHeader, [][]string{tenantRow(resp.GetTenant())})
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
	values := []*errandv1.Tenant{}
	for req := (&errandv1.ListTenantsRequest{PageSize: 500}); ; {
		resp, err := admin.ListTenants(ctx, req)
		if err != nil {
			return rpcError(err)
		}
		for _, t := range resp.GetTenants() {
			values, rows = append(values, t), append(rows, tenantRow(t))
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
	Tenant string   `help:"Whose, for a tenant's key."`
	Kinds  []string `help:"Which kinds, for a pool key."`
	Note   string   `help:"For people."`
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
	return c.print(map[string]string{"key_id": id, "secret": secret},
		[]string{"KEY", "SECRET (shown once)"}, [][]string{{id, secret}})
}

type keyListCmd struct {
	Tenant string `help:"Only this tenant's."`
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
	values := []*errandv1.Key{}
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
			values = append(values, k)
			rows = append(rows, []string{
				k.GetKeyId(), strings.ToLower(strings.TrimPrefix(k.GetScope().String(), "KEY_SCOPE_")), k.GetTenant(),
				strings.Join(k.GetKinds(), ","), ago(k.GetCreatedAt().AsTime()), revoked, k.GetNote(),
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
}

// Run ends the key.
func (c *keyRevokeCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	if _, err := admin.RevokeKey(ctx, &errandv1.RevokeKeyRequest{KeyId: c.ID}); err != nil {
		return rpcError(err)
	}
	fmt.Println("revoked", c.ID)
	return nil
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
	var rows [][]string
	for _, w := range resp.GetWorkers() {
		var kinds []string
		for _, k := range w.GetKinds() {
			kinds = append(kinds, fmt.Sprintf("%s=%d", k.GetKind(), k.GetSlots()))
		}
		rows = append(rows, []string{
			w.GetWorker(), w.GetName(), w.GetTenant(), strings.Join(kinds, ","), fmt.Sprint(w.GetConnected()), fmt.Sprint(w.GetDraining()),
			w.GetSilent().AsDuration().String(),
		})
	}
	return c.print(resp.GetWorkers(), []string{"WORKER", "NAME", "TENANT", "KINDS", "CONNECTED", "DRAINING", "SILENT"}, rows)
}

type workersDrainCmd struct {
	Worker string `arg:"" help:"The worker instance."`
	clientSettings
}

// Run drains it.
func (c *workersDrainCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	if _, err := admin.DrainWorker(ctx, &errandv1.DrainWorkerRequest{Worker: c.Worker}); err != nil {
		return rpcError(err)
	}
	fmt.Println("draining", c.Worker)
	return nil
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
	var rows [][]string
	for _, b := range resp.GetBalances() {
		rows = append(rows, []string{
			b.GetTenant(), strings.ToLower(strings.TrimPrefix(b.GetTier().String(), "TIER_")), fmt.Sprint(b.GetAccepted()),
			fmt.Sprint(b.GetEnded()), fmt.Sprint(b.GetOpen()),
		})
	}
	if err := c.print(resp, []string{"TENANT", "TIER", "ACCEPTED", "ENDED", "OPEN"}, rows); err != nil {
		return err
	}
	for _, f := range resp.GetFindings() {
		fmt.Fprintf(os.Stderr, "finding: %s: %d rows, for instance %s: %s\n", f.GetReason(), f.GetRows(), f.GetExampleTaskId(), f.GetMessage())
	}
	if len(resp.GetFindings()) > 0 {
		return errQuiet
	}
	return nil
}
