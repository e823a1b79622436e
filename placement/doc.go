// Package placement chooses a worker for a task. It knows workers and what they can carry, and nothing of tenants' shares,
// queues or stores; it has no clock and no goroutine.
//
// A [Pool] is the view of the workers that are connected to one scheduler instance. Place reserves room for one attempt and
// Free gives it back; a refusal always carries its reason. Today a worker's capacity is a number of slots per kind, and the
// worker with the most free slots is taken, the smaller identity first: the work spreads, and the same history always gives
// the same choice.
package placement
