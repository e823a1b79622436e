// Package regions answers, as pure functions, who serves what: when a region is gone, who stands in for it, which instance of a region owns which
// of its lanes, what is taken from a region that is behind, and how regions share a quota.
//
// # The story
//
// A deployment has one store and several regions, each with its own schedulers, workers and Redis. A [Topology] says which, and how far
// they are from each other; a [Profile] says how long they wait before they think ill of each other.
//
// Every scheduler renews a session in the store, so the store knows when each region was heard last. [Judge] makes [Verdicts] of that: up, suspect,
// down; and draining or drained when an operator wishes it. It believes in a death at once and in a return only after some steady time, so that a
// region that flaps is not handed back and forth.
//
// [Adopters] names for each region that does not serve itself the nearest one that does. The adopter's instances serve its lanes besides their
// own, divided among them by [Lanes]. The rows stay where they are.
//
// While all regions serve themselves they want nothing of each other, except: an instance with idle slots takes what is late elsewhere
// ([Spill]), and quotas of all regions are divided by demand ([Divide], [Usable]).
//
// # Why it is harmless to be wrong
//
// Nothing here keeps state, knows a clock or does anything: who calls passes the time and what it has read, and acts on the answer. Two
// instances with different views may both serve a lane for a moment. Every claim is guarded by the store, so one of them wins and the other
// has lost a statement. Shares are the exception, since nobody referees what two regions admit at the same moment: they keep their bound by
// themselves, and [Division] states it.
//
// Answers depend neither on the order of the lists that are passed in nor on that of a map.
package regions
