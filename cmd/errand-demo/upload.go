package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/errandhq/errand"
)

// upload is a video on its way.
type upload struct {
	*deployment
	media, out string
	steps      []*step // all that were submitted
	began      time.Time
	victim     *worker
	again      []string // what ran again elsewhere
}

// run brings the video through all steps. It returns nil only when every file is there and plays.
func (u *upload) run(ctx context.Context) error {
	u.began = time.Now()
	fmt.Printf("\n%s\n", u.media)
	check := validateStep(u.media)
	if err := u.all(ctx, []*step{check}, false); err != nil {
		return fmt.Errorf("%s is not a video that can be played: %w", u.media, err)
	}
	video, err := probed(check.task.Result)
	if err != nil {
		return fmt.Errorf("%s is not taken: %w", u.media, err)
	}
	fmt.Printf("  it is %s, %dx%d, %.1f s: taken\n", video.video, video.width, video.height, video.seconds)

	work := workSteps(u.media, u.out, video)
	for _, s := range work { // what an earlier run has left proves nothing
		if err := os.Remove(s.output); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := u.all(ctx, work, true); err != nil {
		return err
	}
	for _, s := range work {
		if info, err := os.Stat(s.output); err != nil || info.Size() == 0 {
			return fmt.Errorf("%s has succeeded, and %s is not there", s.what, s.output)
		}
	}
	if err := u.all(ctx, checkSteps(work), false); err != nil {
		return fmt.Errorf("what was made cannot be played: %w", err)
	}
	return nil
}

// all submits steps and waits until all have ended. With kill, a worker is killed on the way.
func (u *upload) all(ctx context.Context, steps []*step, kill bool) error {
	specs := make([]errand.Spec, len(steps))
	for i, s := range steps {
		specs[i] = s.spec()
	}
	outcomes, err := u.client.SubmitMany(ctx, specs)
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		if o.Err != nil {
			return fmt.Errorf("%s: %w", steps[i].what, o.Err)
		}
		steps[i].task.ID = o.ID
	}
	u.steps = append(u.steps, steps...)
	if err := u.follow(ctx, steps, kill); err != nil {
		return err
	}
	var bad []error
	for _, s := range steps {
		if t := s.task; t.State != errand.Succeeded {
			bad = append(bad, fmt.Errorf("%s %s: %s: %s", s.what, t.State, t.Reason, t.Message))
		}
	}
	return errors.Join(bad...)
}

// followEvery is how often tasks are looked at.
const followEvery = 150 * time.Millisecond

// follow tells what becomes of tasks until all have ended.
func (u *upload) follow(ctx context.Context, steps []*step, kill bool) error {
	for {
		open := 0
		for _, s := range steps {
			if s.task.State.Ended() {
				continue
			}
			now, err := u.client.Get(ctx, s.task.ID)
			if err != nil {
				return err
			}
			u.tell(s, &now)
			s.task = now
			if !now.State.Ended() {
				open++
			}
		}
		if open == 0 {
			return nil
		}
		if kill && u.victim == nil {
			u.kill(steps)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
}

// tell prints what has changed.
func (u *upload) tell(s *step, now *errand.Task) {
	before := &s.task
	if now.State == before.State && now.Attempt == before.Attempt {
		return
	}
	line := now.State.String()
	if now.State == errand.Running {
		line += " on " + u.named(now.Worker)
		if now.Attempt > 1 {
			line += fmt.Sprintf(", attempt %d", now.Attempt)
			u.again = append(u.again, fmt.Sprintf("%s ran again on %s", s.what, u.named(now.Worker)))
		}
	}
	if now.Message != "" && now.State != errand.Running {
		line += ": " + strings.SplitN(now.Message, "\n", 2)[0]
	}
	fmt.Printf("  %5.1f s  %-12s %s\n", time.Since(u.began).Seconds(), s.what, line)
}

// kill takes down the worker that encodes, once something else has ended: half-way.
func (u *upload) kill(steps []*step) {
	var running *step
	ended := 0
	for _, s := range steps {
		if s.task.State.Ended() {
			ended++
		}
		if s.task.State == errand.Running && running == nil && strings.HasPrefix(s.what, "encode") {
			running = s
		}
	}
	if ended == 0 || running == nil {
		return
	}
	for _, w := range u.workers {
		if w.instance != running.task.Worker {
			continue
		}
		u.victim, w.killed = w, true
		fmt.Printf("  %5.1f s  SIGKILL to %s (pid %d), which runs %s. Its silence is noticed after its lease of 10 s.\n",
			time.Since(u.began).Seconds(), w.name, w.cmd.Process.Pid, running.what)
		_ = w.cmd.Process.Kill() // if it has ended by itself, that is seen as well
	}
}

// table shows what became of every task.
func (u *upload) table() {
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "TASK\tWHAT\tKIND\tATTEMPTS\tWORKER\tWAIT\tRUN\tRESULT") // a table: what fails is seen
	for _, s := range u.steps {
		t := &s.task
		wait, run := "-", "-"
		if !t.StartedAt.IsZero() {
			wait = fmt.Sprintf("%.2f s", max(t.StartedAt.Sub(t.CreatedAt), 0).Seconds())
		}
		if !t.StartedAt.IsZero() && !t.EndedAt.IsZero() {
			run = fmt.Sprintf("%.1f s", t.EndedAt.Sub(t.StartedAt).Seconds())
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", t.ID, s.what, t.Kind, t.Attempt, u.named(t.Worker), wait, run, s.result())
	}
	_ = w.Flush()
	if u.victim != nil {
		fmt.Printf("\n%s was killed; %s\n", u.victim.name, strings.Join(append(u.again, "")[:max(len(u.again), 1)], ", "))
	}
}

func (s *step) result() string {
	switch {
	case s.task.State != errand.Succeeded:
		return strings.TrimSpace(s.task.State.String() + " " + s.task.Reason)
	case s.output == "":
		return "ok"
	}
	info, err := os.Stat(s.output)
	if err != nil {
		return "missing"
	}
	return fmt.Sprintf("%s (%d KiB)", filepath.Base(s.output), (info.Size()+1023)/1024)
}
