package devcluster

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeLine is one direction of a connection over a line, in virtual time.
func pipeLine(t *testing.T, roundTrip time.Duration) (l *Line, in, out net.Conn) {
	t.Helper()
	l = newLine(roundTrip)
	in, from := net.Pipe()
	to, out := net.Pipe()
	var running sync.WaitGroup
	running.Go(newCarrier(l, from, to, time.Time{}).run)
	t.Cleanup(func() {
		l.cancel()
		_ = in.Close()
		_ = out.Close()
		running.Wait()
	})
	return l, in, out
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Error(err)
	}
}

func receive(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Error(err)
	}
	return string(buf)
}

// What is sent one after the other arrives one after the other, each after half of a round trip: the line holds many at once.
func TestLineDelaysAndKeepsItsBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in, out := pipeLine(t, 80*time.Millisecond)
		began := time.Now()
		const messages = 100
		go func() {
			for range messages {
				send(t, in, "ping")
				timer := time.NewTimer(time.Millisecond)
				<-timer.C
			}
		}()
		for i := range messages {
			if got := receive(t, out, 4); got != "ping" {
				t.Fatalf("message %d: %q", i, got)
			}
			if got, want := time.Since(began), 40*time.Millisecond+time.Duration(i)*time.Millisecond; got != want {
				t.Fatalf("message %d arrived after %v, want %v", i, got, want)
			}
		}
	})
}

// A line that becomes shorter delivers nothing before what was sent earlier.
func TestLineKeepsOrderWhenItsDelayChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, in, out := pipeLine(t, time.Second)
		began := time.Now()
		send(t, in, "slow")
		synctest.Wait()
		l.SetRoundTrip(0)
		send(t, in, "fast")
		if got := receive(t, out, 8); got != "slowfast" || time.Since(began) != 500*time.Millisecond {
			t.Errorf("%q after %v", got, time.Since(began))
		}
	})
}

// A cut line holds what was sent; when it is open again, all of it arrives in order.
func TestLineThatIsCutHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, in, out := pipeLine(t, 10*time.Millisecond)
		began := time.Now()
		l.SetState(LineCut)
		send(t, in, "one ")
		go func() {
			timer := time.NewTimer(time.Minute)
			<-timer.C
			send(t, in, "two")
			l.SetState(LineOpen)
		}()
		if got := receive(t, out, 7); got != "one two" || time.Since(began) != time.Minute+5*time.Millisecond {
			t.Errorf("%q after %v", got, time.Since(began))
		}
	})
}

// What is on its way is bounded: the sender waits, as behind a full window.
func TestLineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, in, out := pipeLine(t, 0)
		l.SetState(LineCut)
		sent := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 2 * LineBytesMax / chunkBytesMax {
				if _, err := in.Write(make([]byte, chunkBytesMax)); err != nil {
					return
				}
				sent += chunkBytesMax
			}
		}()
		synctest.Wait()
		if sent < LineBytesMax || sent > LineBytesMax+2*chunkBytesMax {
			t.Errorf("%d bytes are on their way, want about %d", sent, LineBytesMax)
		}
		l.SetState(LineOpen)
		if _, err := io.CopyN(io.Discard, out, 2*LineBytesMax); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// echo answers every line with itself, over TCP.
func echo(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l
}

func dial(t *testing.T, l *Line) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Over real connections: a first answer takes two round trips, a megabyte comes back whole, an end in order reaches the other side.
func TestLineOverTCP(t *testing.T) {
	const roundTrip = 20 * time.Millisecond
	l, err := NewLine(LineEnds{Network: "tcp", Target: echo(t).Addr().String()}, roundTrip)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	began := time.Now()
	c := dial(t, l)
	send(t, c, "hello\n")
	if got, err := bufio.NewReader(c).ReadString('\n'); got != "hello\n" || time.Since(began) < 2*roundTrip {
		t.Errorf("%q, %v, after %v", got, err, time.Since(began))
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = c.Write(want)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(want), err)
	}
}

// A closed line ends connections and refuses new ones; an open one takes them again. So does one whose target is not there.
func TestLineThatIsClosed(t *testing.T) {
	target := echo(t)
	l, err := NewLine(LineEnds{Network: "tcp", Target: target.Addr().String()}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	ended := func(c net.Conn) {
		t.Helper()
		if got, err := io.ReadAll(c); len(got) > 0 || errors.Is(err, net.ErrClosed) || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q, %v; want an end", got, err)
		}
	}
	before := dial(t, l)
	send(t, before, "x")
	receive(t, before, 1)
	l.SetState(LineClosed)
	ended(before)
	ended(dial(t, l))
	l.SetState(LineOpen)
	again := dial(t, l)
	send(t, again, "y")
	receive(t, again, 1)
	_ = target.Close()
	ended(dial(t, l))
}
