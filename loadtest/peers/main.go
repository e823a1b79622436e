// Command peers runs other schedulers of tasks the way Errand is measured: so many tasks of no work, from the first insert to the
// last recorded end. It prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kong"
)

// load is what is to be done.
type load struct {
	DSN     string `required:"" help:"An empty PostgreSQL database."`
	Redis   string `help:"An empty Redis."`
	Mode    string `enum:"mixed,backlog" default:"mixed" help:"mixed: insert while working; backlog: insert everything first."`
	Tasks   int    `default:"100000"`
	Batch   int    `default:"1000"`
	Bytes   int    `default:"100"`
	WarmUps int    `default:"12"`

	Outstanding int `default:"9500" help:"Most tasks between insert and the end of their handler in the mode mixed."`
}

type cli struct {
	River riverCmd `cmd:"" help:"River on PostgreSQL."`
	Asynq asynqCmd `cmd:"" help:"asynq on Redis."`
}

func main() {
	var c cli
	ctx := context.Background()
	command := kong.Parse(&c, kong.Name("peers"), kong.BindTo(ctx, (*context.Context)(nil)))
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func tell(took time.Duration) error {
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"seconds": took.Seconds()})
}
