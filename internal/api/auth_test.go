package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/internal/store"
)

// keyring is a store of keys that counts and may fail.
type keyring struct {
	Keys
	byHash  map[secretHash]store.Key
	err     error
	lookups atomic.Int32
}

func (k *keyring) LookupKey(_ context.Context, hash []byte) (store.Key, error) {
	k.lookups.Add(1)
	if k.err != nil {
		return store.Key{}, k.err
	}
	key, found := k.byHash[secretHash(hash)]
	if !found {
		return store.Key{}, store.ErrNotFound
	}
	return key, nil
}

// door is an authenticator with a clock and a store in the test's hand.
type door struct {
	keys    *keyring
	auth    *authenticator
	now     time.Time
	secret  string
	handler http.Handler
}

func newDoor() *door {
	d := &door{keys: &keyring{byHash: map[secretHash]store.Key{}}, now: time.Unix(1_800_000_000, 0)}
	secret, hash := NewSecret()
	d.secret = secret
	d.keys.byHash[secretHash(hash)] = store.Key{ID: "key-1", Hash: hash, Scope: store.ScopeTenant, Tenant: "acme"}
	clock := func() time.Time { return d.now }
	l := newLogins()
	l.now = clock
	d.auth = newAuthenticator(d.keys, l, slog.New(slog.DiscardHandler))
	d.auth.now = clock
	d.handler = d.auth.only(store.ScopeTenant)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return d
}

func (d *door) knock(authorization, from string) int {
	r := httptest.NewRequest(http.MethodPost, "/errand.v1.TaskService/GetTask", nil)
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = from + ":1234"
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w.Code
}

func TestShapesOfCredentials(t *testing.T) {
	long := make([]byte, secretMax+1)
	for i := range long {
		long[i] = 'x'
	}
	d := newDoor()
	for authorization, want := range map[string]int{
		"Bearer " + d.secret:       200,
		"bearer " + d.secret:       200, // the scheme's case is free
		"":                         401,
		"Bearer":                   401,
		"Bearer ":                  401,
		"Basic " + d.secret:        401,
		d.secret:                   401,
		"Bearer " + d.secret + " ": 401,
		"Bearer " + d.secret[1:]:   401,
		"Bearer " + string(long):   401,
		"Bearer \x00":              401,
	} {
		if got := d.knock(authorization, "10.0.0.1"); got != want {
			t.Errorf("%q answered %d, want %d", authorization, got, want)
		}
	}
}

func TestFailedLoginsAreSlow(t *testing.T) {
	d := newDoor()
	if d.knock("Bearer "+d.secret, "10.0.0.1") != 200 {
		t.Fatal("a good key is refused")
	}
	for i := range loginFailures {
		if got := d.knock("Bearer wrong", "10.0.0.1"); got != 401 {
			t.Fatalf("try %d answered %d", i, got)
		}
	}
	asked := d.keys.lookups.Load()
	if got := d.knock("Bearer other", "10.0.0.1"); got != 429 {
		t.Errorf("try %d answered %d, want 429", loginFailures+1, got)
	}
	if d.keys.lookups.Load() != asked {
		t.Error("a blocked address can make the store work")
	}
	if got := d.knock("Bearer "+d.secret, "10.0.0.1"); got != 200 {
		t.Errorf("a good key behind the same address answered %d: one client locks its neighbours out", got)
	}
	d.now = d.now.Add(keyCacheFor) // not fresh in the cache, known nevertheless
	if got := d.knock("Bearer "+d.secret, "10.0.0.1"); got != 200 {
		t.Errorf("a good key that must be looked up again answered %d", got)
	}
	if got := d.knock("Bearer wrong", "10.0.0.2"); got != 401 {
		t.Errorf("another address answered %d, want 401", got)
	}
	d.now = d.now.Add(loginWindow)
	if got := d.knock("Bearer other", "10.0.0.1"); got != 401 {
		t.Errorf("after the window it answered %d, want 401", got)
	}
	for i := range loginAddrsMax + 10 {
		d.knock("Bearer wrong", "10.1."+string(rune('0'+i%10))+"."+time.Duration(i).String())
	}
	if n := len(d.auth.logins.byAddr); n > loginAddrsMax {
		t.Errorf("%d addresses are remembered, the most is %d", n, loginAddrsMax)
	}
}

func TestRevokedKeysAreForgotten(t *testing.T) {
	d := newDoor()
	hash := secretHash(HashSecret(d.secret))
	d.knock("Bearer "+d.secret, "10.0.0.1")
	k := d.keys.byHash[hash]
	k.RevokedAt = d.now
	d.keys.byHash[hash] = k
	d.now = d.now.Add(keyCacheFor - 1)
	if got := d.knock("Bearer "+d.secret, "10.0.0.1"); got != 200 || d.keys.lookups.Load() != 1 {
		t.Errorf("within the cache's time it answered %d after %d lookups", got, d.keys.lookups.Load())
	}
	d.now = d.now.Add(1)
	if got := d.knock("Bearer "+d.secret, "10.0.0.1"); got != 401 {
		t.Errorf("after the cache's time a revoked key answered %d", got)
	}
}

func TestKeysWhileTheStoreIsAway(t *testing.T) {
	d := newDoor()
	d.knock("Bearer "+d.secret, "10.0.0.1")
	d.keys.err = errors.New("connection refused")
	d.now = d.now.Add(keyStaleFor - 1)
	if got := d.knock("Bearer "+d.secret, "10.0.0.1"); got != 200 {
		t.Errorf("who was known answered %d", got)
	}
	if got := d.knock("Bearer new", "10.0.0.1"); got != 503 {
		t.Errorf("who was not known answered %d: it must not look like a wrong key", got)
	}
	d.now = d.now.Add(1)
	if got := d.knock("Bearer "+d.secret, "10.0.0.1"); got != 503 {
		t.Errorf("after %v without the store it answered %d", keyStaleFor, got)
	}
	if len(d.auth.logins.byAddr) != 0 {
		t.Error("a store that is away counts as failed logins")
	}
}

func TestTheKeyCacheIsBounded(t *testing.T) {
	d := newDoor()
	for i := range keyCacheMax + 10 {
		if _, err := d.auth.lookup(t.Context(), secretHash{byte(i), byte(i >> 8), byte(i >> 16)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.auth.cache); n > keyCacheMax {
		t.Errorf("%d keys are remembered, the most is %d", n, keyCacheMax)
	}
}

// A stream outlives the look at its credential.
func TestARevokedKeyEndsItsStreams(t *testing.T) {
	t.Parallel()
	e := start(t)
	key := e.key(store.Key{Scope: store.ScopeTenant, Tenant: "acme"})
	w := e.worker(key, 1, "email")
	id := e.sql(`SELECT id FROM api_keys WHERE hash = $1`, HashSecret(key))
	revokedAt := time.Now()
	if _, err := e.store.RevokeKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if code, d := w.refusal(); code != connect.CodeUnauthenticated || d.GetReason() != reasonUnauthenticated {
		t.Errorf("the stream ended with %v %v", code, d)
	}
	if took := time.Since(revokedAt); took > keyCacheFor+credentialEvery+3*time.Second {
		t.Errorf("the stream of a revoked key lived %v", took)
	}
}
