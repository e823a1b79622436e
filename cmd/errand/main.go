// Command errand is the scheduler, its workers and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/errandhq/errand"
)

// version is set by the build (-ldflags "-X main.version=...").
var version = "dev"

// cli is the whole command line. Settings come from flags, then ERRAND_* variables, then the file that --config names.
type cli struct {
	Config kong.ConfigFlag `help:"YAML file with settings, by flag name." placeholder:"FILE"`

	Dev     devCmd     `cmd:"" help:"Run everything on this machine, to try it."`
	Serve   serveCmd   `cmd:"" help:"Run a scheduler instance."`
	Worker  workerCmd  `cmd:"" help:"Run a built-in worker."`
	Migrate migrateCmd `cmd:"" help:"Bring the store's schema to this version."`

	Submit submitCmd `cmd:"" help:"Submit a task."`
	Get    getCmd    `cmd:"" help:"Show a task."`
	Wait   waitCmd   `cmd:"" help:"Wait for tasks to end."`
	List   listCmd   `cmd:"" help:"List tasks, newest first."`
	Cancel cancelCmd `cmd:"" help:"Cancel a task."`

	Tenant  tenantCmd  `cmd:"" help:"Create and list tenants."`
	Key     keyCmd     `cmd:"" help:"Create, list and revoke API keys."`
	Workers workersCmd `cmd:"" help:"List and drain workers."`
	Audit   auditCmd   `cmd:"" help:"Prove that nothing is lost and nothing is stuck."`
	Version versionCmd `cmd:"" help:"Show the version."`
}

// Exit codes that scripts can use.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnavailable = 4
	exitDenied      = 5
	exitEndedBadly  = 6 // the command worked, and what it looked at is not well
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	var c cli
	var found devEnvResolver
	parser, err := kong.New(&c,
		kong.Name("errand"),
		kong.Description("A multi-region task scheduler: a task accepted is a task done."),
		kong.UsageOnError(),
		kong.DefaultEnvars("ERRAND"),
		kong.Configuration(yamlSettings),
		kong.Resolvers(&found),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "errand:", err)
		return exitFailed
	}
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "errand:", err)
		return exitUsage
	}
	if err := command.Run(); err != nil {
		if !errors.Is(err, errQuiet) {
			fmt.Fprintln(os.Stderr, "errand:", strings.TrimPrefix(err.Error(), "errand: "))
		}
		if hint := found.hint(err); hint != "" {
			fmt.Fprintln(os.Stderr, "errand:", hint)
		}
		return codeOf(err)
	}
	return 0
}

// errQuiet ends the command with exitEndedBadly; everything was said already.
var errQuiet = errors.New("ended badly")

func codeOf(err error) int {
	switch {
	case errors.Is(err, errQuiet):
		return exitEndedBadly
	case errors.Is(err, errand.ErrConfig), errors.Is(err, errand.ErrInvalid), errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errand.ErrNotFound):
		return exitNotFound
	case errors.Is(err, errand.ErrDenied):
		return exitDenied
	case errors.Is(err, errand.ErrUnavailable), errors.Is(err, errand.ErrOutcomeUnknown):
		return exitUnavailable
	}
	return exitFailed
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run() error {
	line := "errand " + version
	if info, ok := debug.ReadBuildInfo(); ok {
		line += " " + info.GoVersion
	}
	fmt.Println(line)
	return nil
}
