// Package fairness decides whose turn it is. It knows tenants and amounts, and nothing of tasks, workers or stores; it has
// no clock of its own.
//
// [Shares] keeps one virtual time per tenant: what the tenant has used of the capacity, in resource-seconds, divided by its weight.
// A [Queue] serves the tenant with the least. That is start-time fair queueing (Goyal, Vin, Cheng: "Start-Time Fair Queuing", 1996) over the
// dominant resource (Ghodsi et al.: "Dominant Resource Fairness", 2011): an amount is the share of the scarcest resource that an attempt takes
// times the seconds for which it takes it, so that 1 is the whole of it for a second.
package fairness
