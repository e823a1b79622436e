package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"github.com/errandhq/errand/internal/telemetry"
)

// errUsage means that settings do not fit together.
var errUsage = errors.New("settings")

// yamlSettings reads a YAML file whose keys are flag names, with dashes or underscores. A key that no flag has is an error:
// a setting that is misspelt must not be ignored.
func yamlSettings(r io.Reader) (kong.Resolver, error) {
	var values map[string]any
	if err := yaml.NewDecoder(r).Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the configuration file: %w", err)
	}
	known := map[string]any{}
	for key, value := range values {
		known[strings.ReplaceAll(key, "_", "-")] = value
	}
	return &yamlResolver{known}, nil
}

type yamlResolver struct{ values map[string]any }

// Validate refuses keys that no flag of any command has.
func (y *yamlResolver) Validate(app *kong.Application) error {
	flags := map[string]bool{}
	_ = kong.Visit(app, func(n kong.Visitable, next kong.Next) error { // the visitor never fails
		if f, is := n.(*kong.Flag); is {
			flags[f.Name] = true
		}
		return next(nil)
	})
	for key := range y.values {
		if !flags[key] {
			return fmt.Errorf("the configuration file: there is no setting %q", key)
		}
	}
	return nil
}

// Resolve returns a flag's value.
func (y *yamlResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, has := y.values[flag.Name]
	if !has {
		return nil, nil
	}
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil // a variable comes before the file
		}
	}
	if list, is := value.([]any); is {
		parts := make([]string, len(list))
		for i, v := range list {
			parts[i] = fmt.Sprint(v)
		}
		return strings.Join(parts, ","), nil
	}
	return fmt.Sprint(value), nil
}

// logSettings say what is logged and how.
type logSettings struct {
	LogLevel  slog.Level `help:"Least severe messages to log: debug, info, warn, error." default:"info"`
	LogFormat string     `help:"text or json." enum:"text,json" default:"text"`
}

func (l *logSettings) logger() *slog.Logger {
	return telemetry.NewLogger(os.Stderr, l.LogLevel, telemetry.Format(l.LogFormat))
}
