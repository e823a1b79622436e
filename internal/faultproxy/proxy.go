// Package faultproxy stands between a client and a PostgreSQL server and fails on demand: it answers a statement or a commit
// with an error of the test's choice, cuts connections around a commit, delays, and swallows. It speaks just enough of the
// protocol to know where messages begin and which statement runs. For tests only.
package faultproxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Fault is what happens to the next statement that a rule matches.
type Fault int

// The faults.
const (
	// Refuse answers with the rule's SQLSTATE; the server never sees the statement.
	Refuse Fault = iota + 1
	// RefuseAfter lets the server execute the statement, swallows its answer and gives the rule's SQLSTATE instead.
	RefuseAfter
	// CutBefore closes the connection; the server never sees the statement.
	CutBefore
	// CutAfter lets the server execute the statement and closes the connection instead of answering.
	CutAfter
	// Hang never answers; the server never sees the statement.
	Hang
)

// Rule says which statements fail and how.
type Rule struct {
	Contains string // part of the statement's text, as it was parsed
	Fault    Fault
	Code     string // SQLSTATE, for Refuse and RefuseAfter
	Times    int    // how often; the rule is gone then
}

// Proxy is a listening proxy.
type Proxy struct {
	listener net.Listener
	network  string
	server   string
	mu       sync.Mutex
	rules    []*Rule
	delay    time.Duration
	conns    map[net.Conn]bool
	hits     int
	done     sync.WaitGroup
}

// New listens on a free port of the loopback interface, before the server at the given network address (see net.Dial).
func New(network, server string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, network: network, server: server, conns: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close() // that is the point
	p.CutAll()
	p.done.Wait()
}

// Add makes the next statements fail that match.
func (p *Proxy) Add(r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &r)
}

// Delay makes every message from the client wait.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Hits is how often a rule has struck.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// CutAll closes every connection now.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // that is the point
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.server)
		if err != nil {
			_ = client.Close() // the client sees that there is no server
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.done.Go(func() { p.serve(client, server) })
	}
}

// session is one client's connection.
type session struct {
	proxy          *Proxy
	client, server net.Conn
	statements     map[string]string // prepared, by name
	swallow        *Rule             // what to do instead of the answer that is under way
	mu             sync.Mutex
}

func (p *Proxy) serve(client, server net.Conn) {
	s := &session{proxy: p, client: client, server: server, statements: map[string]string{}}
	var both sync.WaitGroup
	both.Go(func() {
		s.fromClient()
		_ = server.Close() // the other side ended
	})
	both.Go(func() {
		s.fromServer()
		_ = client.Close() // the other side ended
	})
	both.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// fromClient forwards messages until one strikes a rule.
func (s *session) fromClient() {
	if s.forwardStartup() != nil {
		return
	}
	var held []byte // messages of one round trip, until its Sync: a rule strikes all of it
	for {
		kind, message, err := readMessage(s.client)
		if err != nil {
			return
		}
		held = append(held, message...)
		rule := s.match(kind, message)
		if rule != nil && (rule.Fault == Refuse || rule.Fault == CutBefore || rule.Fault == Hang) {
			if !s.strikeBefore(rule, kind) {
				return
			}
			held = nil
			continue
		}
		if rule != nil {
			s.mu.Lock()
			s.swallow = rule
			s.mu.Unlock()
		}
		if kind == 'S' || kind == 'Q' || kind == 'H' || kind == 'X' || kind == 'p' {
			s.proxy.mu.Lock()
			delay := s.proxy.delay
			s.proxy.mu.Unlock()
			if delay > 0 {
				<-time.After(delay)
			}
			if _, err := s.server.Write(held); err != nil {
				return
			}
			held = nil
		}
	}
}

// forwardStartup passes the first message on, which has no kind.
func (s *session) forwardStartup() error {
	var head [4]byte
	if _, err := io.ReadFull(s.client, head[:]); err != nil {
		return err
	}
	rest := make([]byte, max(int(binary.BigEndian.Uint32(head[:]))-4, 0))
	if _, err := io.ReadFull(s.client, rest); err != nil {
		return err
	}
	_, err := s.server.Write(append(head[:], rest...))
	return err
}

// strikeBefore fails a statement that the server never sees, and tells whether the connection goes on.
func (s *session) strikeBefore(rule *Rule, kind byte) bool {
	if rule.Fault == CutBefore {
		return false
	}
	if rule.Fault == Hang {
		_, _ = io.Copy(io.Discard, s.client) // until the client gives up
		return false
	}
	for kind != 'S' && kind != 'Q' { // the rest of the round trip
		var err error
		if kind, _, err = readMessage(s.client); err != nil {
			return false
		}
	}
	_, err := s.client.Write(errorAnswer(rule.Code, 'I'))
	return err == nil
}

// fromServer forwards answers, or swallows one.
func (s *session) fromServer() {
	for {
		kind, message, err := readMessage(s.server)
		if err != nil {
			return
		}
		s.mu.Lock()
		rule := s.swallow
		s.mu.Unlock()
		if rule == nil {
			if _, err := s.client.Write(message); err != nil {
				return
			}
			continue
		}
		if kind != 'Z' { // not the end of the answer yet
			continue
		}
		s.mu.Lock()
		s.swallow = nil
		s.mu.Unlock()
		if rule.Fault == CutAfter {
			return
		}
		if _, err := s.client.Write(errorAnswer(rule.Code, 'I')); err != nil {
			return
		}
	}
}

// match finds the rule that a message strikes, and counts it. Parsing a statement only remembers its text; executing it strikes.
func (s *session) match(kind byte, message []byte) *Rule {
	text := ""
	switch kind {
	case 'Q':
		text = cString(message[5:])
	case 'P':
		name := cString(message[5:])
		s.statements[name] = cString(message[5+len(name)+1:])
	case 'B':
		portal := cString(message[5:])
		text = s.statements[cString(message[5+len(portal)+1:])]
	}
	if text == "" {
		return nil
	}
	p := s.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.Times > 0 && strings.Contains(text, r.Contains) {
			r.Times--
			p.hits++
			return r
		}
	}
	return nil
}

var errHuge = errors.New("faultproxy: a message beyond any bound")

// readMessage reads one message with its kind and length.
func readMessage(r io.Reader) (kind byte, message []byte, err error) {
	const most = 64 << 20
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(head[1:]))
	if size < 4 || size > most {
		return 0, nil, errHuge
	}
	message = make([]byte, 1+size)
	copy(message, head[:])
	_, err = io.ReadFull(r, message[5:])
	return head[0], message, err
}

func cString(b []byte) string {
	if i := strings.IndexByte(string(b), 0); i >= 0 {
		return string(b[:i])
	}
	return string(b)
}

// errorAnswer is an ErrorResponse and the ReadyForQuery after it.
func errorAnswer(code string, status byte) []byte {
	var fields []byte
	for _, f := range []struct {
		kind byte
		text string
	}{{'S', "ERROR"}, {'V', "ERROR"}, {'C', code}, {'M', "made by faultproxy"}} {
		fields = append(append(append(fields, f.kind), f.text...), 0)
	}
	fields = append(fields, 0)
	out := []byte{'E'}
	out = binary.BigEndian.AppendUint32(out, uint32(len(fields)+4))
	out = append(out, fields...)
	return append(out, 'Z', 0, 0, 0, 5, status)
}
