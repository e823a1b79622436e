package errand

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network connects the SDK to servers of this process through pipes, so that a test runs in virtual time: seconds of silence
// take no time, and nothing depends on how fast the machine is.
type network struct {
	t     *testing.T
	mu    sync.Mutex
	hosts map[string]*host
	wires []*wire
}

// host is one address. It is not there until something listens.
type host struct {
	accept chan net.Conn
	closed chan struct{}
	dials  atomic.Int64
	hangs  atomic.Bool // a dial gets no answer at all
}

var errHostDown = errors.New("connection refused")

// inVirtualTime runs a test in a bubble of virtual time with a network of its own. At its end no goroutine may be left.
func inVirtualTime(t *testing.T, test func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &network{t: t, hosts: map[string]*host{}})
	})
}

func (n *network) host(addr string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[addr] == nil {
		n.hosts[addr] = &host{accept: make(chan net.Conn), closed: make(chan struct{})}
	}
	return n.hosts[addr]
}

// serve answers HTTP/2 without TLS at http://name until the test ends.
func (n *network) serve(name string, handler http.Handler) (url string) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: handler, Protocols: protocols}
	served := make(chan struct{})
	h := n.host(name + ":80")
	go func() {
		defer close(served)
		_ = s.Serve(h)
	}()
	n.t.Cleanup(func() {
		_ = s.Close()
		<-served
	})
	return "http://" + name
}

// Accept is the next connection.
func (h *host) Accept() (net.Conn, error) {
	select {
	case c := <-h.accept:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listening.
func (h *host) Close() error {
	close(h.closed)
	return nil
}

// Addr is of no use.
func (h *host) Addr() net.Addr { return &net.TCPAddr{} }

// client speaks HTTP/2 over this network.
func (n *network) client() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: n.dial}
	n.t.Cleanup(func() {
		transport.CloseIdleConnections()
		n.cut()
	})
	return &http.Client{Transport: transport}
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	h := n.host(addr)
	h.dials.Add(1)
	if h.hangs.Load() {
		select {
		case <-ctx.Done():
		case <-time.After(connectLimit):
		}
		return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	}
	near, far := net.Pipe()
	select {
	case h.accept <- far:
	case <-h.closed:
		return nil, &net.OpError{Op: "dial", Err: errHostDown}
	case <-time.After(time.Millisecond): // nobody listens
		return nil, &net.OpError{Op: "dial", Err: errHostDown}
	}
	w := &wire{Conn: near, far: far, closed: make(chan struct{})}
	n.mu.Lock()
	n.wires = append(n.wires, w)
	n.mu.Unlock()
	return w, nil
}

// cut breaks all connections: both sides notice.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		_ = w.far.Close()
		_ = w.Conn.Close()
	}
	n.wires = nil
}

// swallow makes all connections black holes: nothing arrives any more, and nobody is told.
func (n *network) swallow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		w.hole.Store(true)
	}
}

// wire is the client's end of a connection.
type wire struct {
	net.Conn
	far    net.Conn
	hole   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

// Read never returns from a hole.
func (w *wire) Read(p []byte) (int, error) {
	for {
		k, err := w.Conn.Read(p)
		if !w.hole.Load() {
			return k, err
		}
		if err != nil {
			<-w.closed
			return 0, net.ErrClosed
		}
	}
}

// Write into a hole succeeds.
func (w *wire) Write(p []byte) (int, error) {
	if w.hole.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// Close ends both directions.
func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// until waits for an event; virtual hours are no time.
func until[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v, open := <-c:
		if !open {
			t.Fatalf("%s cannot come any more", what)
		}
		return v
	case <-time.After(24 * time.Hour):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// never checks that nothing comes of what is under way now.
func never[T any](t testing.TB, what string, c <-chan T) {
	t.Helper()
	synctest.Wait()
	select {
	case v := <-c:
		t.Errorf("%s came: %v", what, v)
	default:
	}
}
