// Command errand-demo is the main job of Errand on a real video: it is checked against a policy, encoded in several resolutions,
// and shown as a thumbnail and a preview, each step a task that runs in a sandbox on one of several worker processes. Half-way one
// of them is killed, and its tasks run again elsewhere. It is an ordinary client: everything that it does, its reader can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type cli struct {
	Media   string `help:"A video. Default a sample made with ffmpeg." placeholder:"FILE"`
	Out     string `help:"Folder for the results." default:"demo-out" placeholder:"DIR"`
	Errand  string `help:"The errand program." default:"bin/errand" placeholder:"FILE"`
	Workers int    `help:"Worker processes, at least 2: one is killed." default:"3"`
}

// limit is how long the whole demo may take.
const limit = 20 * time.Minute

func main() {
	var c cli
	kong.Parse(&c, kong.Name("errand-demo"), kong.Description("Validates, encodes and previews a video, while a worker dies."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := c.run(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func (c *cli) run(ctx context.Context) error {
	if c.Workers < 2 || c.Workers > 16 {
		return errors.New("--workers: 2 to 16, since one is killed and the others go on")
	}
	out, err := filepath.Abs(c.Out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	media, err := c.media(ctx, out)
	if err != nil {
		return err
	}
	d, err := startDeployment(ctx, c.Errand, c.Workers, filepath.Dir(media), out)
	if err != nil {
		return err
	}
	defer d.stop()
	u := &upload{deployment: d, media: media, out: out}
	err = u.run(ctx)
	u.table()
	return err
}

// media is the absolute path of the video, which is made when none is given.
func (c *cli) media(ctx context.Context, out string) (string, error) {
	if c.Media == "" {
		return makeSample(ctx, out)
	}
	path, err := filepath.Abs(c.Media)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("MEDIA: %w", err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("MEDIA: %s is not a file", path)
	case info.Size() == 0:
		return "", fmt.Errorf("MEDIA: %s is empty", path)
	}
	return path, nil
}
