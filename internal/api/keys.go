package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

func (s *adminService) CreateKey(ctx context.Context, req *errandv1.CreateKeyRequest) (*errandv1.CreateKeyResponse, error) {
	k := store.Key{
		ID: NewKeyID(), Scope: store.KeyScope(req.GetScope()), Tenant: req.GetTenant(), Kinds: req.GetKinds(), Note: req.GetNote(),
	}
	if err := s.checkKey(ctx, &k); err != nil {
		return nil, err
	}
	secret, hash := NewSecret()
	k.Hash = hash
	if err := s.keys.CreateKey(ctx, k); err != nil {
		return nil, err
	}
	return &errandv1.CreateKeyResponse{Key: keyMessage(&k), Secret: secret}, nil
}

// checkKey refuses a key whose parts do not fit its scope: it would allow more, or less, than its maker thinks.
func (s *adminService) checkKey(ctx context.Context, k *store.Key) error {
	switch {
	case k.Scope == store.ScopeTenant && k.Tenant == "":
		return invalid("tenant", "a tenant's key must name its tenant")
	case k.Scope != store.ScopeTenant && k.Tenant != "":
		return invalid("tenant", "only a tenant's key has a tenant")
	case k.Scope == store.ScopePool && len(k.Kinds) == 0:
		return invalid("kinds", "a pool key must name the kinds that it serves")
	case k.Scope != store.ScopePool && len(k.Kinds) > 0:
		return invalid("kinds", "only a pool key has kinds")
	case k.Scope == store.ScopeTenant:
		if _, err := s.tenants.Tenant(ctx, k.Tenant); err != nil {
			return tenantError(err)
		}
	}
	return nil
}

// NewKeyID names a new key; it is not secret.
func NewKeyID() string {
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic("api: the system has no randomness: " + err.Error())
	}
	return "key-" + hex.EncodeToString(raw[:])
}

func (s *adminService) ListKeys(ctx context.Context, req *errandv1.ListKeysRequest) (*errandv1.ListKeysResponse, error) {
	limit, pages := pageSize(req.GetPageSize()), newPager("keys", req.GetTenant(), nil)
	after, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	keys, err := s.keys.ListKeys(ctx, req.GetTenant(), string(after), limit)
	if err != nil {
		return nil, err
	}
	resp := &errandv1.ListKeysResponse{}
	for i := range keys {
		resp.Keys = append(resp.Keys, keyMessage(&keys[i]))
	}
	if len(keys) == limit {
		resp.NextPageToken = pages.token([]byte(keys[limit-1].ID))
	}
	return resp, nil
}

func (s *adminService) RevokeKey(ctx context.Context, req *errandv1.RevokeKeyRequest) (*errandv1.RevokeKeyResponse, error) {
	k, err := s.keys.RevokeKey(ctx, req.GetKeyId())
	if errors.Is(err, store.ErrNotFound) {
		return nil, outside(errKeyNotFound)
	}
	if err != nil {
		return nil, err
	}
	s.auth.forget(func(p Principal) bool { return p.KeyID == k.ID })
	return &errandv1.RevokeKeyResponse{Key: keyMessage(&k)}, nil
}

func keyMessage(k *store.Key) *errandv1.Key {
	return &errandv1.Key{
		KeyId: k.ID, Scope: errandv1.KeyScope(k.Scope), Tenant: k.Tenant, Kinds: k.Kinds, Note: k.Note,
		CreatedAt: stamp(k.CreatedAt), RevokedAt: stamp(k.RevokedAt),
	}
}
