// Package schedulertest proves schedulers and stores: a conformance suite that every store must pass, a memory store that
// follows the lifecycle to the letter, and a simulation of engines, workers and a failing store in virtual time.
package schedulertest
