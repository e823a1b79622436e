package devcluster

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// StandIn takes the place of Redis, inside this process, where redis-server is not installed. It understands the commands that
// Errand uses and is nothing to measure with.
type StandIn struct{ server *miniredis.Miniredis }

// NewStandIn prepares a stand-in without starting it.
func NewStandIn() *StandIn { return &StandIn{server: miniredis.NewMiniRedis()} }

// Start listens on a free port of the loopback interface.
func (s *StandIn) Start(context.Context) error {
	if err := s.server.Start(); err != nil {
		return fmt.Errorf("the stand-in for Redis: %w", err)
	}
	return nil
}

// URL is its address as a URL.
func (s *StandIn) URL() string { return "redis://" + s.server.Addr() }

// Pid is 0: it has no process of its own.
func (s *StandIn) Pid() int { return 0 }

// Done is never ready: it does not end by itself.
func (s *StandIn) Done() <-chan struct{} { return nil }

// Stop ends it.
func (s *StandIn) Stop() { s.server.Close() }
