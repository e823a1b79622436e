// Package preempt chooses which running attempts give way to a task that finds no room: whose work is lost is decided here, by the price
// of it, and nowhere else. It is pure, like package placement, whose words it uses: no clock, no goroutine, no store.
//
// [Victims] finds the cheapest set of attempts on one worker that is enough. [Reservations] keep what comes free for the task that it was
// freed for, and see to it that each preemption is of use: one that could not start is not allowed another for a while.
package preempt
