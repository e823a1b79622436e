package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/errandhq/errand/internal/api"
	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

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
	for req := (&errandv1.ListKeysRequest{Tenant: c.Tenant, PageSize: listPageMax}); ; {
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
