package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/errandhq/errand"
)

// What errand dev leaves for the other commands, and where.
const (
	devDir     = ".errand"
	devEnvName = "dev.env"
	// devEnvVariable names the file instead of looking for it; set and empty, none is used.
	devEnvVariable = "ERRAND_DEV_ENV"

	urlVariable      = "ERRAND_URL"
	keyVariable      = "ERRAND_KEY"
	adminKeyVariable = "ERRAND_ADMIN_KEY"
	poolKeyVariable  = "ERRAND_POOL_KEY"
)

// devEnv is what dev.env says: variables by name. A shell can source the file.
type devEnv map[string]string

// parseDevEnv reads lines of NAME=VALUE, and comments. It keeps names that it does not know: a newer version's.
func parseDevEnv(raw string) (devEnv, error) {
	env := devEnv{}
	number := 0
	for line := range strings.Lines(raw) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, is := strings.Cut(line, "=")
		if !is {
			return nil, fmt.Errorf("line %d is not NAME=VALUE", number)
		}
		env[name] = value
	}
	return env, nil
}

// regionURLVariable has the URLs of a region's schedulers, with commas between them.
func regionURLVariable(region string) string {
	return urlVariable + "_" + strings.ToUpper(strings.ReplaceAll(region, "-", "_"))
}

// regions are the names of those variables.
func (e devEnv) regions() []string {
	var names []string
	for name := range e {
		if strings.HasPrefix(name, urlVariable+"_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// forgetRegions takes their URLs out.
func (e devEnv) forgetRegions() {
	for _, name := range e.regions() {
		delete(e, name)
	}
}

// has tells whether all URLs, with commas between them, are of this deployment.
func (e devEnv) has(urls string) bool {
	known := []string{e[urlVariable]}
	for _, name := range e.regions() {
		known = append(known, strings.Split(e[name], ",")...)
	}
	for url := range strings.SplitSeq(urls, ",") {
		if !slices.Contains(known, url) {
			return false
		}
	}
	return true
}

func (e devEnv) String() string {
	var regions strings.Builder
	for _, name := range e.regions() {
		regions.WriteString(name + "=" + e[name] + "\n")
	}
	return "# Written by errand dev at every start. Whoever reads it may do everything: keep it to yourself.\n" +
		"# The commands of errand find it in the folders from which they are run. As variables: set -a; . FILE; set +a\n" +
		urlVariable + "=" + e[urlVariable] + "\n" + regions.String() +
		"# tenant dev\n" + keyVariable + "=" + e[keyVariable] + "\n" +
		"# tenants, kinds, limits, keys, regions, workers, audit\n" + adminKeyVariable + "=" + e[adminKeyVariable] + "\n" +
		"# workers of the built-in kinds\n" + poolKeyVariable + "=" + e[poolKeyVariable] + "\n"
}

// write replaces the file as a whole, readable for its owner only.
func (e devEnv) write(file string) error {
	fresh := file + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(fresh, []byte(e.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}

// errForeign means that a file could be another user's trap.
var errForeign = errors.New("it belongs to another user, or others may change it")

// readDevEnv reads a file that nobody else can have written.
func readDevEnv(file string) (devEnv, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !trusted(info) {
		return nil, fmt.Errorf("%s: %w", file, errForeign)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	env, err := parseDevEnv(string(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; errand dev writes it anew at its next start", file, err)
	}
	return env, nil
}

// findDevEnv looks for .errand/dev.env in a folder and then in those above. Another user's is passed over with a word about it:
// in a shared folder anyone could lay one out and receive the tasks. None is fine.
func findDevEnv(dir string) (file string, env devEnv, err error) {
	for {
		file = filepath.Join(dir, devDir, devEnvName)
		env, err = readDevEnv(file)
		switch {
		case err == nil:
			return file, env, nil
		case errors.Is(err, errForeign):
			fmt.Fprintln(os.Stderr, "errand: not used:", err)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotDir):
			return "", nil, err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", nil, nil
		}
		dir = parent
	}
}

// devEnvResolver gives --url and --key what dev.env says, when nothing else says it.
type devEnvResolver struct {
	file   string // where the settings came from; empty when they did not
	env    devEnv
	looked bool
}

// Validate has nothing to refuse.
func (*devEnvResolver) Validate(*kong.Application) error { return nil }

// Resolve returns a flag's value.
func (r *devEnvResolver) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	variable := urlVariable
	switch flag.Name {
	case "url":
	case "key":
		variable = keyVariableOf(ctx)
		if key := os.Getenv(variable); key != "" && variable != keyVariable {
			return key, nil // a variable for this very use comes before the general one
		}
	default:
		return nil, nil
	}
	if os.Getenv(urlVariable) != "" && flag.Name == "url" || os.Getenv(keyVariable) != "" && flag.Name == "key" || configured(ctx) {
		return nil, nil
	}
	if err := r.look(); err != nil || r.env[variable] == "" {
		return nil, err
	}
	if given := givenURL(ctx); given != "" && !r.env.has(given) {
		return nil, nil // the key of one deployment is not shown to another
	}
	return r.env[variable], nil
}

// look finds the file, once.
func (r *devEnvResolver) look() (err error) {
	if r.looked {
		return nil
	}
	r.looked = true
	if file, set := os.LookupEnv(devEnvVariable); set {
		if file == "" {
			return nil
		}
		r.file = file
		r.env, err = readDevEnv(file)
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil //nolint:nilerr // a folder that was removed: nothing can be found in it
	}
	r.file, r.env, err = findDevEnv(dir)
	return err
}

// hint explains an error that has to do with where the settings came from; empty for others.
func (r *devEnvResolver) hint(err error) string {
	if r.file == "" || !errors.Is(err, errand.ErrUnavailable) {
		return ""
	}
	return fmt.Sprintf("the address comes from %s: start errand dev there, or name another one with --url", r.file)
}

// keyVariableOf is the name of the key that a command needs.
func keyVariableOf(ctx *kong.Context) string {
	for _, p := range ctx.Path {
		if p.Command == nil {
			continue
		}
		switch p.Command.Name {
		case "tenant", "kind", "limit", "key", "region", "workers", "top", "audit":
			return adminKeyVariable
		case "worker":
			return poolKeyVariable
		}
		return keyVariable
	}
	return keyVariable
}

// configured tells whether a configuration file is used: then nothing is looked for.
func configured(ctx *kong.Context) bool { return given(ctx, "config") != nil }

// givenURL is the URL that a flag or a variable names.
func givenURL(ctx *kong.Context) string {
	flag := given(ctx, "url")
	if flag == nil {
		return os.Getenv(urlVariable)
	}
	switch value := ctx.FlagValue(flag).(type) {
	case string:
		return value
	case []string:
		return strings.Join(value, ",")
	}
	return ""
}

// given is a flag that stands on the command line, nil when it does not.
func given(ctx *kong.Context, name string) *kong.Flag {
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved && p.Flag.Name == name {
			return p.Flag
		}
	}
	return nil
}
