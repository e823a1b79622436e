package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errandhq/errand"
)

// Exit codes that scripts can use. They never change their meaning.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnavailable = 4
	exitDenied      = 5
	exitEndedBadly  = 6
	exitTimeout     = 7
	exitOverLimit   = 8
	exitInterrupted = 130 // as shells report a program that SIGINT ended
)

// exitCodes are what the help and docs/cli.md say of them.
var exitCodes = []struct {
	code int
	text string
}{
	{0, "done"},
	{exitFailed, "refused or failed; the message says why"},
	{exitUsage, "the command line, a setting or a field of the request is wrong"},
	{exitNotFound, "there is no such thing, or it is another tenant's"},
	{exitUnavailable, "no scheduler or store can be reached, or it is not known what became of the call"},
	{exitDenied, "the key is unknown or revoked, or may not do this"},
	{exitEndedBadly, "the command worked, and what it looked at is not well: a task that did not succeed, a finding of the audit"},
	{exitTimeout, "the time given to a wait is over"},
	{exitOverLimit, "the tenant submits faster than it may, or has as many open tasks as it may; the message says when to try again"},
	{exitInterrupted, "interrupted"},
}

var (
	// errQuiet ends the command with exitEndedBadly; everything was said already.
	errQuiet = errors.New("ended badly")
	// errMaybeStored means that a submission was given up on its way: nobody knows whether the task is stored.
	errMaybeStored = errors.New("it may be stored")
	// errTenantBusy means that a tenant was not deleted since it has open tasks.
	errTenantBusy = errors.New("open tasks")
	// errTimeout means that the time the user gave is over.
	errTimeout = errors.New("the time is over")
)

func codeOf(err error) int {
	var config *pgconn.ParseConfigError
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, errQuiet):
		return exitEndedBadly
	case errors.Is(err, errTimeout):
		return exitTimeout
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errand.ErrConfig), errors.Is(err, errand.ErrInvalid), errors.Is(err, errUsage), errors.As(err, &config):
		return exitUsage
	case errors.Is(err, errand.ErrNotFound):
		return exitNotFound
	case errors.Is(err, errand.ErrDenied):
		return exitDenied
	case errors.Is(err, errand.ErrOverLimit):
		return exitOverLimit
	case errors.Is(err, errand.ErrUnavailable), errors.Is(err, errand.ErrOutcomeUnknown), errors.As(err, &connect):
		return exitUnavailable
	}
	return exitFailed
}

// printExitCodes ends the help of the program as a whole.
func printExitCodes(w io.Writer, width int) {
	fmt.Fprintln(w, "\nExit codes:")
	for _, c := range exitCodes {
		line := fmt.Sprintf("  %-4d", c.code)
		for word := range strings.FieldsSeq(c.text) {
			if len(line)+1+len(word) > width {
				fmt.Fprintln(w, line)
				line = "      "
			}
			line += " " + word
		}
		fmt.Fprintln(w, line)
	}
}
