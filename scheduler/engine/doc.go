// Package engine is the hands of a scheduler instance: it turns what happens (submits, words of workers, answers of the store,
// ticks) into statements for the store and frames for the workers, and asks [scheduler.Core] what to do next.
//
// An [Engine] is driven turn by turn: [Engine.Turn] takes inputs and returns effects, on one goroutine, without waiting for
// anything. The shell around it ([Shell]) owns the goroutines: it runs statements, carries frames and calls Turn. A simulation
// can drive many engines from one goroutine instead and replay a history exactly.
//
// Where to find what:
//
//	engine.go     the turn
//	input.go      what can happen; effect.go: what can follow; frames.go: the words between worker and scheduler
//	pipeline.go   natural batching: while one statement is in flight the next batch collects
//	submit.go     new tasks, eager start; claims.go: waiting tasks; endings.go: attempts that end
//	session.go    the instance's leases, its trust in them, its lanes; served.go: rows of several regions
//	watch.go      how the other regions are, and whom this one adopts; spill.go: taking over what is overdue there
//	workers.go    streams, leases, re-attach
//	timers.go     run_at and start_by; refill.go: reading lanes; reconcile.go: comparing rows with what is known
//	release.go    children of tasks that have ended; explain.go: why a task does not run
//	cancel.go, lend.go, shutdown.go
//	shell.go      the goroutines
package engine
