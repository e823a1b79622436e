// Command loadtest measures Errand from outside, with real processes: what survives which fault, and how fast it is. It uses
// the public SDK and API only.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type cli struct {
	Crash      crashCmd      `cmd:"" help:"Kill, stop and cut things under load, and count what is lost or done twice."`
	Failover   failoverCmd   `cmd:"" help:"Three regions: kill, cut off, slow down and drain one under load; nothing is lost, and the money adds up."`
	Throughput throughputCmd `cmd:"" help:"Tasks per second, beside raw SQL and the peers on the same server."`
	Latency    latencyCmd    `cmd:"" help:"From submit to handler start on an idle system, beside one durable insert."`
	Admission  admissionCmd  `cmd:"" help:"What a rate costs a tenant's submits: a bucket that is asked and never empty, against none."`
	Noisy      noisyCmd      `cmd:"" help:"How long urgent tasks wait while another tenant floods the system."`
	Estimate   estimateCmd   `cmd:"" help:"How good the answer of a submit guesses when the task will start."`
	Fairness   fairnessCmd   `cmd:"" help:"Shares of two backlogged tenants, weights 3 : 1, task times 100 : 1, on two schedulers."`
	Limits     limitsCmd     `cmd:"" help:"What named limits cost, and whether a cap holds on two schedulers."`
	Backlog    backlogCmd    `cmd:"" help:"Throughput, memory and a quiet tenant's waits with millions of tasks waiting."`
	Graphs     graphsCmd     `cmd:"" help:"What it costs to store graphs, and to let their tasks go."`
	Placement  placementCmd  `cmd:"" help:"How much of a GPU cluster's public trace finds room, and how fast workers are chosen."`

	Worker workerCmd `cmd:"" hidden:"" help:"A worker of the crash scenarios."`
	Money  moneyCmd  `cmd:"" hidden:"" help:"A worker of the failover scenarios."`
	Noop   noopCmd   `cmd:"" hidden:"" help:"A worker of the measurements."`
	Timed  timedCmd  `cmd:"" hidden:"" help:"A worker whose tasks say how long they take."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var c cli
	command := kong.Parse(&c, kong.Name("loadtest"), kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Vars{"contenders": contenderNames(), "tally_every": tallyEvery.String()})
	err := command.Run()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}
