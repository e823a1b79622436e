package main

import (
	"context"
	"fmt"
	"os"
)

// onServers measures something on servers of its own. Their folder goes with them, unless it is kept or the measurement fails.
func onServers(ctx context.Context, name string, keep bool, measure func(context.Context, *cluster) error) error {
	dir, err := workFolder(name)
	if err != nil {
		return err
	}
	cl, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	if err := measure(ctx, cl); err != nil {
		return err
	}
	if keep {
		fmt.Fprintln(os.Stderr, "logs in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}
