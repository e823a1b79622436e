// Package devcluster runs a private PostgreSQL and a private Redis as child processes: for tests, for benchmarks and for the
// one-machine mode. A child dies with its parent, and what a killed parent left behind does not block the next.
package devcluster
