package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Bounds of failed logins.
const (
	loginFailures = 20 // per address and window, then it is told to wait
	loginWindow   = 10 * time.Second
	loginAddrsMax = 10_000 // remembered; beyond it all are forgotten
	secretMax     = 256    // bytes of a credential; longer ones are wrong without a look
)

// logins counts failed logins per address, so that guessing is slow. Whoever shows a credential that is known to be good is not
// kept out by a neighbour behind the same address.
type logins struct {
	now    func() time.Time
	mu     sync.Mutex
	byAddr map[string]*failures
}

type failures struct {
	count int
	since time.Time
}

func newLogins() *logins { return &logins{now: time.Now, byAddr: map[string]*failures{}} }

// check refuses an address that has failed too often lately.
func (l *logins) check(r *http.Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	addr := remoteHost(r)
	f := l.byAddr[addr]
	if f == nil {
		return nil
	}
	left := loginWindow - l.now().Sub(f.since)
	if left <= 0 {
		delete(l.byAddr, addr)
		return nil
	}
	if f.count < loginFailures {
		return nil
	}
	return problem(connect.CodeResourceExhausted, errors.New("too many failed logins from this address"),
		&errandv1.ErrorDetail{Reason: reasonTooManyFailures, RetryAfter: durationpb.New(left)})
}

// failed counts a failed login and returns its error.
func (l *logins) failed(r *http.Request, message string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	addr := remoteHost(r)
	f := l.byAddr[addr]
	if f == nil {
		if len(l.byAddr) >= loginAddrsMax {
			clear(l.byAddr)
		}
		f = &failures{since: l.now()}
		l.byAddr[addr] = f
	}
	f.count++
	return unauthenticated(message)
}

func unauthenticated(message string) *connect.Error {
	return problem(connect.CodeUnauthenticated, errors.New(message), &errandv1.ErrorDetail{Reason: reasonUnauthenticated})
}

func remoteHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// bearer returns the credential of a request. found is false when there is none that could be right.
func bearer(r *http.Request) (secret string, found bool) {
	scheme, secret, found := strings.Cut(r.Header.Get("Authorization"), " ")
	return secret, found && strings.EqualFold(scheme, "Bearer") && secret != "" && len(secret) <= secretMax
}

// peersOnly lets through who knows the deployment's secret; without one nobody is let through.
func peersOnly(secret string, logins *logins) func(http.Handler) http.Handler {
	want := sha256.Sum256([]byte(secret)) // compared as hashes: not even the secret's length shows
	clients := connect.NewErrorWriter()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			given, found := bearer(r)
			sum := sha256.Sum256([]byte(given))
			if found && secret != "" && subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
				next.ServeHTTP(w, r)
				return
			}
			err := logins.check(r)
			if err == nil {
				err = logins.failed(r, "this service is for the deployment's own instances")
			}
			_ = clients.Write(w, r, err) // the client is gone when it fails
		})
	}
}
