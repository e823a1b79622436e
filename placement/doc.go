// Package placement chooses a worker for an attempt, and says why when there is none. It knows workers and what they can carry, and nothing
// of tenants' shares, queues or stores; it has no clock and no goroutine, and the same history always gives the same choice.
//
// A [Pool] is the view of the workers that are connected to one scheduler instance. Place reserves room for one attempt, Free gives exactly
// that back, Reserve takes note of what runs already. A tenant's own workers come before the pool's.
//
// # How a worker is chosen
//
// Filter: the kind, a slot of it, processors, memory, whole GPU devices or a share of a single one, and selectors on labels. Workers that
// declare no capacity are counted by the slots of their kinds only, and have no devices.
//
// Score, the first that differs: the wish (near a zone, then the weights of preferences), the loss, the load; then the smaller identity. Where
// there are no devices the loss is nothing, and the load spreads work over the emptiest workers.
//
// The loss is what of the free devices becomes useless. The worth of a worker is the part of its free devices that attempts could use, as the
// expectation over the shapes that have arrived lately: the gradient of fragmentation of Weng et al., "Beware of Fragmentation: Scheduling
// GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023). Two things are added. For each shape it also counts how often
// it would fit, not only whether: that tells early that processors will run out before devices (see worth; three parts to one). And ties go to
// the worker with the least of its devices left, as best fit does. Nothing is known in advance: shapes are counted as they arrive, exact ones,
// rare ones too; the weights are made anew when arrivals have grown by a quarter, and old arrivals fade.
//
// # How it is quick
//
// For each shape the best candidates are remembered (a seeker); of the workers only those that changed since are looked at, by a log of
// changes. When the candidates are used up a scan takes a sample of those with room, going round, so that the work does not grow with the
// pool. The loss is read from tables by ranks of what is free. All memories are bounded.
package placement
