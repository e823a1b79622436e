// Package scheduler holds what a task is and decides what becomes of it. It is pure: no clock, no randomness, no goroutine,
// no store. Time and chance are arguments, so that any history can be played again.
//
// # The story of a task
//
// A submitted [Task] is stored as scheduled, ready or, later, blocked. Once it is ready it waits in a lane, which is one shard
// of its region, for the scheduler instance that serves the lane. That instance's [Core] buffers the row, and when its turn has
// come and a worker has room, the core's [Plan] names a [Claim]. The store executes it as one guarded write: dequeue,
// assignment and the taking of the slot at once. The claim may be lost, since somebody else may have been first; that is a
// normal answer and goes back in through [Core.Advance]. A claim that is won is an attempt under a fencing [Token] (task,
// attempt, worker instance), and its [Start] goes to the worker. A task that would start at once skips the waiting: the core
// admits it ([Core.Admit]), and the insert itself makes it running.
//
// The worker accepts, runs the handler and sends a [Report]. The core frees the room at once and plans an [Ending], which says
// where the task goes: succeeded, failed, canceled, ready again (given back, its due kept) or scheduled (a retry, with a new
// due). The store writes it under the token. Whatever goes wrong between two steps, the row says what stands: a worker that
// falls silent loses its attempts, a worker that comes back names what it holds, an instance whose session was ended starts
// over, and rows that nobody knows of go back.
//
// # The turn
//
// An engine drives a core turn by turn: [Core.Step] takes what happened ([Event]), [Core.Advance] takes the store's answers
// ([Result]), [Core.Plan] says what to do. The core never waits and never calls anybody. The same history gives the same plans,
// which is tested by playing every random history twice.
//
// # Where to read
//
// First testdata/life_of_a_task.txt, a golden script of one task, and the other stories beside it. Then, in this order:
//
//   - state.go, spec.go, task.go, id.go: what a task is
//   - lifecycle.go: every arrow of its life, one method each; retry.go and budget.go: when it is tried again
//   - event.go: what a core is told and what it answers; core.go: the doors
//   - dispatch.go: how waiting rows start; backlog.go, buffer.go: who goes first; refill.go: when lanes are read
//   - conduct.go, attempt.go: what workers do and say; report.go: what follows from it
//   - lend.go: rows for other instances
//   - write.go, read.go, errors.go: what a store is asked; timing.go: the times that the promises rest on
//
// The package engine, below, is the hands: it turns plans into statements and frames. The package schedulertest holds the memory
// store, the suite that every store must pass, and the simulation.
package scheduler
