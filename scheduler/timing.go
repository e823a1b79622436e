package scheduler

import (
	"fmt"
	"time"
)

// Timing holds the times that the protocol between store, schedulers and workers depends on. All instances of a region and
// their workers should use the same.
type Timing struct {
	SessionTTL    time.Duration // how long a scheduler instance lives without renewing; default 6 s
	Renewal       time.Duration // how often it renews; default 2 s
	Margin        time.Duration // how much less than its TTL an instance trusts its session; default 1.5 s
	ReattachGrace time.Duration // after a session ended, how long its attempts wait for their workers to come back; default 6 s
	ReconnectCap  time.Duration // longest pause between a worker's tries to reconnect; default 2 s
	Heartbeat     time.Duration // how often a worker tells that it lives; default 3 s
	WorkerLease   time.Duration // how long a silent worker keeps its attempts; default 10 s
	Accept        time.Duration // how long an assignment may stay unanswered; default 5 s
	StopGrace     time.Duration // how long an attempt that was told to stop may take; default 10 s
	ExclusiveStop time.Duration // how long before its grant ends an exclusive handler is killed; default 2 s
	Reconcile     time.Duration // how often an instance compares its running rows with what it knows; default 5 s
	Reclaim       time.Duration // how often it looks for running rows of ended sessions; default 1 s
	Discover      time.Duration // a full cycle over the groups of ready rows of its lanes; default 10 s
	DiscoverFast  time.Duration // the same for urgent ones; default 1 s
	HoldAfter     time.Duration // how long a large task is passed over by others before room is held for it; default 10 s
	Statement     time.Duration // the longest a statement may take; default 5 s
	RenewalCall   time.Duration // the longest a renewal may take; default 1 s
	ClockOffset   time.Duration // the largest difference between two machines' rates over a TTL that is tolerated; default 250 ms
}

// DefaultTiming returns the defaults.
func DefaultTiming() Timing {
	return Timing{
		SessionTTL:    6 * time.Second,
		Renewal:       2 * time.Second,
		Margin:        1500 * time.Millisecond,
		ReattachGrace: 6 * time.Second,
		ReconnectCap:  2 * time.Second,
		Heartbeat:     3 * time.Second,
		WorkerLease:   10 * time.Second,
		Accept:        5 * time.Second,
		StopGrace:     10 * time.Second,
		ExclusiveStop: 2 * time.Second,
		Reconcile:     5 * time.Second,
		Reclaim:       time.Second,
		Discover:      10 * time.Second,
		DiscoverFast:  time.Second,
		HoldAfter:     10 * time.Second,
		Statement:     5 * time.Second,
		RenewalCall:   time.Second,
		ClockOffset:   250 * time.Millisecond,
	}
}

// Validate checks that every time is positive and that the inequalities hold on which the promises rest. The error names
// the field.
func (t Timing) Validate() error {
	if err := t.validatePositive(); err != nil {
		return err
	}
	switch {
	case t.Renewal > t.SessionTTL/3:
		return fmt.Errorf("timing: Renewal %v must be at most a third of SessionTTL %v", t.Renewal, t.SessionTTL)
	case t.Margin <= t.ClockOffset+t.RenewalCall:
		return fmt.Errorf("timing: Margin %v must be larger than ClockOffset %v + RenewalCall %v", t.Margin, t.ClockOffset, t.RenewalCall)
	case t.Margin >= t.SessionTTL-t.Renewal:
		return fmt.Errorf("timing: Margin %v must be smaller than SessionTTL %v - Renewal %v", t.Margin, t.SessionTTL, t.Renewal)
	case t.ReattachGrace <= t.ReconnectCap+t.RenewalCall:
		return fmt.Errorf("timing: ReattachGrace %v must be larger than ReconnectCap %v + one round trip (RenewalCall %v)",
			t.ReattachGrace, t.ReconnectCap, t.RenewalCall)
	case t.Heartbeat > t.WorkerLease/3:
		return fmt.Errorf("timing: Heartbeat %v must be at most a third of WorkerLease %v", t.Heartbeat, t.WorkerLease)
	case t.ExclusiveStop >= min(t.WorkerLease, t.SessionTTL-t.Margin+t.ReattachGrace):
		return fmt.Errorf("timing: ExclusiveStop %v leaves an exclusive task no time to run", t.ExclusiveStop)
	}
	return nil
}

func (t Timing) validatePositive() error {
	for _, p := range []struct {
		name  string
		value time.Duration
	}{
		{"SessionTTL", t.SessionTTL},
		{"Renewal", t.Renewal},
		{"Margin", t.Margin},
		{"ReattachGrace", t.ReattachGrace},
		{"ReconnectCap", t.ReconnectCap},
		{"Heartbeat", t.Heartbeat},
		{"WorkerLease", t.WorkerLease},
		{"Accept", t.Accept},
		{"StopGrace", t.StopGrace},
		{"ExclusiveStop", t.ExclusiveStop},
		{"Reconcile", t.Reconcile},
		{"Reclaim", t.Reclaim},
		{"Discover", t.Discover},
		{"DiscoverFast", t.DiscoverFast},
		{"HoldAfter", t.HoldAfter},
		{"Statement", t.Statement},
		{"RenewalCall", t.RenewalCall},
	} {
		if p.value <= 0 {
			return fmt.Errorf("timing: %s must be positive, is %v", p.name, p.value)
		}
	}
	if t.ClockOffset < 0 {
		return fmt.Errorf("timing: ClockOffset must not be negative, is %v", t.ClockOffset)
	}
	return nil
}
