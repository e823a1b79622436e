package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Bounds of authentication.
const (
	keyCacheFor     = 5 * time.Second // a revoked key works no longer than this
	keyCacheMax     = 10_000
	loginFailures   = 20 // per address and window, then it is told to wait
	loginWindow     = 10 * time.Second
	loginAddrsMax   = 10_000
	secretBytes     = 32
	secretPrefix    = "errand_"
	authLookupLimit = 2 * time.Second
)

// Principal is who calls, as the credential says. It is never taken from a request.
type Principal struct {
	KeyID  string
	Scope  store.KeyScope
	Tenant string
	Kinds  []string
}

type principalKey struct{}

// principal returns who calls. Middleware has put it there; without it nobody calls.
func principal(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

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

// Authenticator turns credentials into principals.
type Authenticator struct {
	keys    Keys
	failed  func(err error) // for logs; never sees a secret
	now     func() time.Time
	mu      sync.Mutex
	cache   map[[sha256.Size]byte]cachedKey
	logins  map[string]*loginCount
	clients *connect.ErrorWriter
}

type cachedKey struct {
	principal Principal
	good      bool
	until     time.Time
}

type loginCount struct {
	failures int
	since    time.Time
}

// NewAuthenticator returns an authenticator over a store of keys. failed is told of lookups that did not work.
func NewAuthenticator(keys Keys, failed func(error)) *Authenticator {
	return &Authenticator{
		keys: keys, failed: failed, now: time.Now,
		cache: map[[sha256.Size]byte]cachedKey{}, logins: map[string]*loginCount{},
		clients: connect.NewErrorWriter(),
	}
}

// Middleware lets through who has a good credential, before anything of the request is decoded.
func (a *Authenticator) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := a.authenticate(r)
		if err != nil {
			_ = a.clients.Write(w, r, err) // the client is gone when it fails
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, p)))
	})
}

func (a *Authenticator) authenticate(r *http.Request) (Principal, error) {
	addr := remoteHost(r)
	if a.blocked(addr) {
		return Principal{}, withDetail(
			connect.NewError(connect.CodeResourceExhausted, errors.New("too many failed logins from this address")),
			&errandv1.ErrorDetail{Reason: reasonTooManyFailures, RetryAfter: optionalDuration(loginWindow)})
	}
	secret, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || len(secret) > 256 {
		a.countFailure(addr)
		return Principal{}, unauthenticated("send the API key as: Authorization: Bearer KEY")
	}
	p, good, err := a.lookup(r.Context(), secret)
	if err != nil {
		return Principal{}, outside(err)
	}
	if !good {
		a.countFailure(addr)
		return Principal{}, unauthenticated("the API key is unknown or revoked")
	}
	return p, nil
}

func (a *Authenticator) lookup(ctx context.Context, secret string) (Principal, bool, error) {
	hash := [sha256.Size]byte(HashSecret(secret))
	a.mu.Lock()
	known, cached := a.cache[hash]
	a.mu.Unlock()
	if cached && a.now().Before(known.until) {
		return known.principal, known.good, nil
	}
	ctx, cancel := context.WithTimeout(ctx, authLookupLimit)
	defer cancel()
	key, err := a.keys.LookupKey(ctx, hash[:])
	entry := cachedKey{until: a.now().Add(keyCacheFor)}
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil && cached && known.good:
		return known.principal, true, nil // the store is away: who was known a moment ago still is
	case err != nil:
		a.failed(fmt.Errorf("look up an API key: %w", err))
		return Principal{}, false, err
	case subtle.ConstantTimeCompare(key.Hash, hash[:]) == 1 && key.RevokedAt.IsZero():
		entry.good = true
		entry.principal = Principal{KeyID: key.ID, Scope: key.Scope, Tenant: key.Tenant, Kinds: key.Kinds}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= keyCacheMax {
		clear(a.cache)
	}
	a.cache[hash] = entry
	return entry.principal, entry.good, nil
}

func (a *Authenticator) blocked(addr string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.logins[addr]
	if c == nil {
		return false
	}
	if a.now().Sub(c.since) > loginWindow {
		delete(a.logins, addr)
		return false
	}
	return c.failures >= loginFailures
}

func (a *Authenticator) countFailure(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.logins[addr]
	if c == nil {
		if len(a.logins) >= loginAddrsMax {
			clear(a.logins)
		}
		c = &loginCount{since: a.now()}
		a.logins[addr] = c
	}
	c.failures++
}

func remoteHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func unauthenticated(message string) *connect.Error {
	return withDetail(connect.NewError(connect.CodeUnauthenticated, errors.New(message)),
		&errandv1.ErrorDetail{Reason: reasonUnauthenticated})
}

// allow refuses who has none of the scopes.
func allow(ctx context.Context, scopes ...store.KeyScope) (Principal, error) {
	p := principal(ctx)
	for _, s := range scopes {
		if p.Scope == s {
			return p, nil
		}
	}
	return Principal{}, withDetail(
		connect.NewError(connect.CodePermissionDenied, errors.New("this API key may not do that")),
		&errandv1.ErrorDetail{Reason: reasonForbidden})
}
