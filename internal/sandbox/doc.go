// Package sandbox runs a command of somebody who is not trusted: without the network, on a read-only system, with files only where
// they were granted, and with a cap on everything it can use up.
//
// [Check] tells whether this machine can do that; a worker that cannot refuses such work rather than run it bare. [Runner.Run] runs
// one [Command] in namespaces of its own, made by bubblewrap: it sees the system's programs, its declared inputs under /in, a
// private folder /out, and scratch in memory under /tmp. What it leaves in /out as declared outputs is moved into place, file by
// file and each at once, after it has succeeded; nobody ever sees half of one.
//
// A watch adds up what all its processes use, several times a second, and ends them at a cap; limits of the kernel stand behind it.
// Everything ends with the command: its process namespace takes along what it left running, also when this process is killed.
package sandbox
