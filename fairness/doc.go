// Package fairness decides whose turn it is. It knows tenants and amounts, and nothing of tasks, workers or stores; it has
// no clock.
//
// Today tenants with startable work take turns ([Ring]). Weighted fair shares of resource-seconds come in at this door.
package fairness
