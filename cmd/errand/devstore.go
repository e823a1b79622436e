//go:build unix

package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/errandhq/errand/internal/api"
	"github.com/errandhq/errand/internal/store"
)

const (
	devTenant   = "dev"
	devDatabase = "errand"
	devNote     = "made by errand dev"
)

// devPoolKinds are the kinds that the pool key may serve, whether or not errand dev runs workers for them.
var devPoolKinds = []string{"exec", "http"}

// prepareStore brings the schema to this version, and sees to it that the tenant and the keys of the environment are there.
func prepareStore(ctx context.Context, url string, env devEnv, home string, log *slog.Logger) error {
	if _, err := store.Migrate(ctx, url, log); err != nil {
		return err
	}
	st, err := store.Open(ctx, store.Config{URL: url, Hot: 1, Control: 1, General: 1})
	if err != nil {
		return err
	}
	defer st.Close()
	_, err = st.CreateTenant(ctx, store.Tenant{Name: devTenant, HomeRegion: home, Weight: 1})
	if err != nil && !errors.Is(err, store.ErrExists) {
		return err
	}
	for variable, want := range map[string]store.Key{
		keyVariable:      {Scope: store.ScopeTenant, Tenant: devTenant},
		adminKeyVariable: {Scope: store.ScopeAdmin},
		poolKeyVariable:  {Scope: store.ScopePool, Kinds: devPoolKinds},
	} {
		if env[variable], err = ensureKey(ctx, st, env[variable], want); err != nil {
			return err
		}
	}
	return nil
}

// ensureKey returns the secret when it is that of such a key, and that of a new key otherwise.
func ensureKey(ctx context.Context, st *store.Store, secret string, want store.Key) (string, error) {
	if secret != "" {
		got, err := st.LookupKey(ctx, api.HashSecret(secret))
		switch {
		case err == nil && got.RevokedAt.IsZero() && got.Scope == want.Scope && got.Tenant == want.Tenant && slices.Equal(got.Kinds, want.Kinds):
			return secret, nil
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return "", err
		}
	}
	secret, want.Hash = api.NewSecret()
	want.ID, want.Note = api.NewKeyID(), devNote
	return secret, st.CreateKey(ctx, want)
}
