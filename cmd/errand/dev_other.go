//go:build !unix

package main

import (
	"errors"
	"io/fs"
)

// errNotDir is no error of its own on this system.
var errNotDir = fs.ErrNotExist

// trusted has nothing to look at here: errand dev does not run, so there is no file to find.
func trusted(fs.FileInfo) bool { return false }

// devCmd has no private PostgreSQL to start on this system.
type devCmd struct{}

// Run says so.
func (devCmd) Run() error {
	return errors.New("errand dev runs on Linux and macOS only: use errand serve with a PostgreSQL of your own")
}
