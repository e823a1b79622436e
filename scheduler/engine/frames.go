package engine

import (
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// StreamID names one connection of a worker. A reconnect is a new stream.
type StreamID uint64

// Register is a worker's first word on a stream. Its identity and what it may serve were checked by the edge.
type Register struct {
	Worker  placement.Worker
	Version string            // of its program
	Holds   []scheduler.Token // attempts it runs, or has ended and not been told that the end is recorded
	Marks   Marks             // what operators have laid over it, as far as it has heard
	// Update tells that it says something new of itself on a connection that it has not left since it registered there: no other instance
	// can have taken over meanwhile what it runs.
	Update bool
}

// Heartbeat tells that a worker lives. SentAt is the worker's own clock and is only sent back.
type Heartbeat struct {
	Seq    uint64
	SentAt int64
}

// FromWorker is one message of a worker; its parts are taken in the order of the fields.
type FromWorker struct {
	Register  *Register
	Accepted  []scheduler.Token
	Reports   []scheduler.Report
	Heartbeat *Heartbeat
	Drain     bool // no more work, please
	Goodbye   bool // it holds nothing and goes
}

// Registered answers a Register.
type Registered struct {
	Session   scheduler.SessionID
	Lease     time.Duration
	Heartbeat time.Duration
}

// HeartbeatAck answers a Heartbeat. Grant is how long, counted from when the worker sent it, an exclusive handler may run on;
// zero for not at all.
type HeartbeatAck struct {
	Seq    uint64
	SentAt int64
	Grant  time.Duration
}

// AckAnswer says what became of a report.
type AckAnswer uint8

// The answers to a report. In every case the worker may forget the attempt.
const (
	AckRecorded AckAnswer = iota + 1 // the end stands, by this report or an earlier one
	AckLost                          // the token was not the current one any more: the report changed nothing
	AckCanceled                      // the task was canceled instead of going on
)

// Ack answers one report.
type Ack struct {
	scheduler.Token
	Answer AckAnswer
}

// ToWorker is one message to a worker.
type ToWorker struct {
	Registered   *Registered
	Assign       []scheduler.Start
	Acks         []Ack
	Stops        []scheduler.Stop
	HeartbeatAck *HeartbeatAck
	Drain        bool
	Marks        *Marks // to be said again in every register; nil for nothing new
	Goodbye      bool   // this instance stops: connect to another one
}
