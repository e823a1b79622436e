package devcluster

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bounds of what is on its way through a line, in one direction of one connection. What does not fit waits where it comes from, as
// behind a full TCP window: a line of 80 ms each way still carries 50 MB/s.
const (
	LineBytesMax  = 4 << 20
	LineChunksMax = 4096
	chunkBytesMax = 32 << 10
)

// chunk is a piece of a stream on its way; the last one carries why the stream ended.
type chunk struct {
	data []byte
	due  time.Time // when it arrives
	end  error     // io.EOF for an end in order; nil in the middle
}

// carrier moves one direction of a connection over a line: in order, each byte after the line's delay, none while the line is cut.
type carrier struct {
	line  *Line
	from  net.Conn
	to    net.Conn
	ready time.Time // nothing leaves before: the connection is being made
	room  *semaphore.Weighted
	way   chan chunk
}

func newCarrier(line *Line, from, to net.Conn, ready time.Time) *carrier {
	return &carrier{
		line: line, from: from, to: to, ready: ready,
		room: semaphore.NewWeighted(LineBytesMax), way: make(chan chunk, LineChunksMax),
	}
}

// run returns when the stream has ended, or one side of it is gone; an end in order leaves the other direction alone.
func (c *carrier) run() {
	var receiving sync.WaitGroup
	receiving.Go(c.receive)
	c.deliver()
	receiving.Wait()
}

// receive reads, and says when what it has read arrives.
func (c *carrier) receive() {
	defer close(c.way)
	buf := make([]byte, chunkBytesMax)
	var last time.Time
	for {
		n, err := c.from.Read(buf)
		due := later(time.Now(), c.ready).Add(c.line.oneWay())
		last = later(due, last) // a line that has become shorter does not turn the order round
		if n > 0 && c.room.Acquire(c.line.ctx, int64(n)) != nil {
			return
		}
		select {
		case c.way <- chunk{data: append([]byte(nil), buf[:n]...), due: last, end: err}:
		case <-c.line.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// deliver writes what arrives. When nobody takes it any more both ends are closed, which ends the receiving, too.
func (c *carrier) deliver() {
	broken := false
	for piece := range c.way {
		if !broken {
			broken = c.line.arrives(piece.due) != nil || c.write(piece) != nil
		}
		if broken {
			c.hangUp()
		}
		c.room.Release(int64(len(piece.data)))
	}
}

func (c *carrier) write(piece chunk) error {
	if len(piece.data) > 0 {
		if _, err := c.to.Write(piece.data); err != nil {
			return err
		}
	}
	switch half, can := c.to.(interface{ CloseWrite() error }); {
	case piece.end == nil:
		return nil
	case errors.Is(piece.end, io.EOF) && can:
		return half.CloseWrite()
	default:
		return piece.end
	}
}

func (c *carrier) hangUp() {
	_ = c.from.Close() // closed already, the second time
	_ = c.to.Close()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
