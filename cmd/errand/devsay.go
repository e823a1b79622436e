//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// say tells the person in front of the terminal.
func (d *dev) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// started is a row of what runs; nil stands for this process.
func (d *dev) started(name string, p devPart, what string) {
	pid := os.Getpid()
	if p != nil {
		pid = p.Pid()
	}
	process := "-"
	if pid != 0 {
		process = fmt.Sprintf("pid %d", pid)
	}
	d.say("  %-11s %-12s %s", name, process, what)
}

// welcome says what to do with it.
func (d *dev) welcome() {
	file := d.folder.in(devEnvName)
	d.say("  %-11s %-12s %s", "Tenant", devTenant, "keys in "+file)
	d.say("\nIn another terminal:\n")
	if !d.foundFromHere() {
		d.say("  export %s=%s", devEnvVariable, quoteShell(file))
	}
	d.say(`  %s submit http '{"url": "%s/livez", "method": "GET"}' --wait`, quoteShell(os.Args[0]), d.env[urlVariable])
	if d.several() {
		socket := quoteShell(d.folder.sockets(devControlName))
		d.say("\nCut a region off, kill one, look at the lines (docs/dev.md):\n")
		d.say(`  curl --unix-socket %s http://errand/lines`, socket)
		d.say(`  curl --unix-socket %s http://errand/lines -d '{"between": ["%s", "store"], "state": "cut"}'`, socket, d.names()[0])
		d.say(`  curl --unix-socket %s http://errand/regions -d '{"region": "%s", "state": "killed"}'`, socket, d.names()[0])
	}
	d.say("\nCtrl-C stops it all; the data stay.")
}

// foundFromHere tells whether commands that are run in this folder find the file by themselves.
func (d *dev) foundFromHere() bool {
	here, err := os.Getwd()
	return err == nil && d.folder.path == filepath.Join(here, devDir)
}

// quoteShell makes a word one word of a command line.
func quoteShell(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
