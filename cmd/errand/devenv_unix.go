//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// errNotDir means that a file stands where a folder would have to.
const errNotDir = syscall.ENOTDIR

// trusted tells whether a file can only have been written by this user.
func trusted(info fs.FileInfo) bool {
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && int(stat.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
