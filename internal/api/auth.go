package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/singleflight"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// Bounds of authentication.
const (
	keyCacheFor     = 4 * time.Second // a revoked key works no longer than this and one credentialEvery
	keyStaleFor     = time.Minute     // with the store away, who was known stays known this long
	keyCacheMax     = 10_000
	secretBytes     = 32
	secretPrefix    = "errand_"
	authLookupLimit = 2 * time.Second
)

// Principal is who calls, as the credential says. It is never taken from a request.
type Principal struct {
	KeyID  string
	Scope  store.KeyScope
	Tenant string   // for a tenant's key
	Kinds  []string // for a pool key
}

// caller is a principal with the way to ask whether it still is one.
type caller struct {
	Principal
	hash secretHash
	auth *authenticator
}

type callerKey struct{}

// principal returns who calls. The door has put it there; without it nobody calls.
func principal(ctx context.Context) Principal {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.Principal
}

// revoked returns an error when the credential of a long call has been revoked since. A store that is away revokes nobody.
func revoked(ctx context.Context) error {
	c, called := ctx.Value(callerKey{}).(caller)
	if !called {
		return unauthenticated("nobody calls")
	}
	if known, err := c.auth.lookup(ctx, c.hash); err == nil && !known.good {
		return unauthenticated("the API key was revoked")
	}
	return nil
}

type secretHash [sha256.Size]byte

// NewSecret makes the secret of a new key and its hash. The secret is shown once and kept nowhere.
func NewSecret() (secret string, hash []byte) {
	var raw [secretBytes]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic("api: the system has no randomness: " + err.Error())
	}
	secret = secretPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
	return secret, HashSecret(secret)
}

// HashSecret is what is stored of a secret. The secret is 32 random bytes: a fast hash is as good as a slow one.
func HashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// authenticator turns credentials into principals. It asks the store at most every keyCacheFor for a key, and once for all calls
// that ask at the same time.
type authenticator struct {
	keys   Keys
	logins *logins
	log    *slog.Logger
	now    func() time.Time
	asking singleflight.Group
	mu     sync.Mutex
	cache  map[secretHash]knownKey
}

// knownKey is what the store said of a credential.
type knownKey struct {
	principal Principal
	good      bool
	asked     time.Time
}

func newAuthenticator(keys Keys, logins *logins, log *slog.Logger) *authenticator {
	return &authenticator{keys: keys, logins: logins, log: log, now: time.Now, cache: map[secretHash]knownKey{}}
}

// only returns the door of a service: it lets through who has a good credential of one of the scopes, before anything of the
// request is decoded. What stands behind a door can therefore not forget to ask.
func (a *authenticator) only(scopes ...store.KeyScope) func(http.Handler) http.Handler {
	clients := connect.NewErrorWriter()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, err := a.authenticate(r)
			if err == nil && !slices.Contains(scopes, who.Scope) {
				err = problem(connect.CodePermissionDenied, errors.New("this API key may not do that"),
					&errandv1.ErrorDetail{Reason: reasonForbidden})
			}
			if err != nil {
				_ = clients.Write(w, r, err) // the client is gone when it fails
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
		})
	}
}

func (a *authenticator) authenticate(r *http.Request) (caller, error) {
	secret, found := bearer(r)
	hash := secretHash(HashSecret(secret))
	if known, _ := a.cached(hash); !known.good {
		if err := a.logins.check(r); err != nil {
			return caller{}, err
		}
	}
	if !found {
		return caller{}, a.logins.failed(r, "send the API key as: Authorization: Bearer KEY")
	}
	known, err := a.lookup(r.Context(), hash)
	switch {
	case err != nil:
		return caller{}, outside(err)
	case !known.good:
		return caller{}, a.logins.failed(r, "the API key is unknown or revoked")
	}
	return caller{known.principal, hash, a}, nil
}

// cached returns what is known of a credential, and whether it is known well enough not to ask.
func (a *authenticator) cached(hash secretHash) (known knownKey, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known = a.cache[hash]
	return known, !known.asked.IsZero() && a.now().Sub(known.asked) < keyCacheFor
}

func (a *authenticator) lookup(ctx context.Context, hash secretHash) (knownKey, error) {
	known, fresh := a.cached(hash)
	if fresh {
		return known, nil
	}
	answer := a.asking.DoChan(string(hash[:]), func() (any, error) {
		// Others wait for the same answer: it must not end with the first one's call.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), authLookupLimit)
		defer cancel()
		return a.ask(ctx, hash)
	})
	select {
	case <-ctx.Done():
		return knownKey{}, ctx.Err()
	case got := <-answer:
		if got.Err == nil {
			return got.Val.(knownKey), nil
		}
		if known.good && a.now().Sub(known.asked) < keyStaleFor {
			return known, nil
		}
		a.log.Error("authentication is impaired: a key could not be looked up", "error", got.Err)
		return knownKey{}, fmt.Errorf("look up an API key: %w", scheduler.ErrUnavailable)
	}
}

// forget has credentials asked about again that were known until now: what was revoked here ends here at once. Other instances notice
// within keyCacheFor.
func (a *authenticator) forget(revoked func(Principal) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.cache, func(_ secretHash, known knownKey) bool { return revoked(known.principal) })
}

func (a *authenticator) ask(ctx context.Context, hash secretHash) (knownKey, error) {
	known := knownKey{asked: a.now()}
	key, err := a.keys.LookupKey(ctx, hash[:])
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return knownKey{}, err
	case subtle.ConstantTimeCompare(key.Hash, hash[:]) == 1 && key.RevokedAt.IsZero():
		known.good = true
		known.principal = Principal{KeyID: key.ID, Scope: key.Scope, Tenant: key.Tenant, Kinds: key.Kinds}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= keyCacheMax {
		clear(a.cache)
	}
	a.cache[hash] = known
	return known, nil
}
