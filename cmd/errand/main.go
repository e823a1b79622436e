// Command errand is the scheduler, its workers and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
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

	Submit  submitCmd  `cmd:"" help:"Submit a task, or many."`
	Get     getCmd     `cmd:"" help:"Show a task."`
	Wait    waitCmd    `cmd:"" help:"Wait for tasks to end."`
	Watch   watchCmd   `cmd:"" help:"Tell what becomes of tasks, as it happens."`
	List    listCmd    `cmd:"" help:"List tasks, newest first."`
	Explain explainCmd `cmd:"" help:"Say why a task does not run."`
	Update  updateCmd  `cmd:"" help:"Change a task that waits."`
	Cancel  cancelCmd  `cmd:"" help:"Cancel a task."`
	Graph   graphCmd   `cmd:"" help:"Submit, show and cancel graphs: tasks that wait for tasks."`

	Tenant  tenantCmd  `cmd:"" help:"Create, change, pause, list and delete tenants."`
	Kind    kindCmd    `cmd:"" help:"Set defaults of kinds, and pause kinds."`
	Limit   limitCmd   `cmd:"" help:"Set named limits, which tasks must pass to start."`
	Key     keyCmd     `cmd:"" help:"Create, list and revoke API keys."`
	Region  regionCmd  `cmd:"" help:"List, drain and resume regions."`
	Workers workersCmd `cmd:"" help:"List and drain workers."`
	Top     topCmd     `cmd:"" help:"Show who waits and who runs in a region, as it happens."`
	Audit   auditCmd   `cmd:"" help:"Prove that nothing is lost and nothing is stuck."`

	Completion completionCmd `cmd:"" help:"Print what makes a shell complete errand's commands and flags."`
	Version    versionCmd    `cmd:"" help:"Show the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	var found devEnvResolver
	parser, err := newParser(ctx, &found)
	if err != nil {
		fmt.Fprintln(os.Stderr, "errand:", err)
		return exitFailed
	}
	if len(args) > 0 && args[0] == suggestCommand {
		printSuggestions(os.Stdout, parser.Model, args[1:])
		return 0
	}
	command, err := parser.Parse(args)
	if err != nil {
		explainUsage(err)
		return exitUsage
	}
	if err := command.Run(); err != nil {
		complain(os.Stderr, err, &surroundings{url: urlOf(command), found: &found})
		return codeOf(err)
	}
	return 0
}

func newParser(ctx context.Context, found *devEnvResolver) (*kong.Kong, error) {
	return kong.New(&cli{},
		kong.Name("errand"),
		kong.Description("A multi-region task scheduler: a task accepted is a task done."),
		kong.DefaultEnvars("ERRAND"),
		kong.Configuration(yamlSettings),
		kong.Resolvers(found),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Help(help),
	)
}

// helpWidth bounds lines that the terminal's own width does not.
const helpWidth = 100

// help is kong's own, and the exit codes below that of the program as a whole.
func help(options kong.HelpOptions, command *kong.Context) error {
	options.WrapUpperBound = helpWidth
	if err := kong.DefaultHelpPrinter(options, command); err != nil {
		return err
	}
	if command.Selected() == nil && !options.Summary {
		printExitCodes(command.Stdout, helpWidth)
	}
	return nil
}

// explainUsage says what is wrong with a command line, and where to read on. A command line that just stops is answered with
// the list of what could follow.
func explainUsage(err error) {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		fmt.Fprintln(os.Stderr, "errand:", err)
		return
	}
	command := strings.Join(append([]string{"errand"}, commandPath(parse.Context)...), " ")
	if strings.HasPrefix(err.Error(), "expected one of") {
		parse.Context.Stdout = os.Stderr
		if parse.Context.PrintUsage(false) == nil {
			fmt.Fprintf(os.Stderr, "\nerrand: %s needs a command\n", command)
			return
		}
	}
	fmt.Fprintf(os.Stderr, "errand: %v\nerrand: see %s --help\n", err, command)
}

// commandPath are the names of the commands that stand on a command line.
func commandPath(c *kong.Context) []string {
	var names []string
	for _, p := range c.Path {
		if p.Command != nil {
			names = append(names, p.Command.Name)
		}
	}
	return names
}

// urlOf is the address that a command calls, empty for a command that calls none.
func urlOf(command *kong.Context) string {
	for _, f := range command.Flags() {
		if f.Name == "url" {
			return strings.Trim(fmt.Sprint(command.FlagValue(f)), "[]")
		}
	}
	return ""
}
