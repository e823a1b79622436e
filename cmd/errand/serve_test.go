package main

import (
	"net"
	"testing"
)

// A peer is reached over the route to its address, and directly without one.
func TestPeerRoutes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here := l.Addr().String()
	routes, err := peerRoutes([]string{"far.invalid:7070=" + here})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"far.invalid:7070", here} {
		conn, err := routedDial(routes)(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		if conn.RemoteAddr().String() != here {
			t.Errorf("%s: reached %s", address, conn.RemoteAddr())
		}
		_ = conn.Close()
	}
	for _, bad := range []string{"", "a:1", "a:1=b", "a=b:1", ":1=b:1"} {
		if _, err := peerRoutes([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
