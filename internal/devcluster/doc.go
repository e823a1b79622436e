// Package devcluster runs a private PostgreSQL and a private Redis as child processes: for tests, for benchmarks and for the
// one-machine mode.
//
// A server belongs to one caller and lives in a folder of its own. By default it listens on a unix socket in that folder, which
// nobody else may enter, so that two servers never fight over a port; with a Port it listens on the loopback interface. Stop ends it in
// order, Kill as a crash would, and Start brings it back on the same data and address. On Linux a child dies with its parent, and
// what a killed parent left behind never blocks the next start.
//
// A Program is any other child, which lives and dies in the same way: a worker, for instance. A StandIn serves where Redis is not
// installed.
//
// Several regions on one machine are as far from each other, and from their store, as Lines say: TCP proxies that delay, and that can
// be cut, closed and made longer while they are used.
//
// The methods of one server are called by one goroutine at a time.
package devcluster
