package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/errandhq/errand"
)

// waitCmd waits for tasks to end.
type waitCmd struct {
	IDs     []string      `arg:"" name:"id" help:"The tasks' handles."`
	Timeout time.Duration `help:"Give up after this time. Default never." env:"-"`
	clientSettings
	outputSettings
}

// Run waits; it ends with 6 when a task did not succeed.
func (c *waitCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if c.Timeout < 0 {
		return fmt.Errorf("%w: --timeout: %v is negative", errUsage, c.Timeout)
	}
	w := &waiting{client: client, timeout: c.Timeout, of: len(c.IDs), line: newProgress()}
	tasks, err := w.all(ctx, c.IDs)
	if err != nil {
		return err
	}
	values, rows := []taskView{}, [][]string{}
	for i := range tasks {
		values, rows = append(values, viewOf(&tasks[i])), append(rows, endRow(&tasks[i]))
	}
	if err := c.print(values, endHeader, rows); err != nil {
		return err
	}
	for _, t := range tasks {
		if t.State != errand.Succeeded {
			return errQuiet
		}
	}
	return nil
}

var endHeader = []string{"TASK", "KIND", "STATE", "ATTEMPT", "WAITED", "RAN", "REASON", "RESULT"}

func endRow(t *errand.Task) []string {
	result := printable(t.Result)
	if t.State != errand.Succeeded {
		result = printable([]byte(t.Message))
	}
	return []string{
		t.ID, t.Kind, t.State.String(), strconv.FormatInt(t.Attempt, 10), between(t.ReadyAt, t.StartedAt), between(t.StartedAt, t.EndedAt),
		dash(t.Reason), result,
	}
}

// waiting waits for tasks, and shows on a terminal what becomes of them.
type waiting struct {
	client  *errand.Client
	timeout time.Duration // 0 for none
	of      int
	ended   int
	began   time.Time
	line    *progress
}

// all waits for every task, in their order: the last one to end decides how long that takes.
func (w *waiting) all(ctx context.Context, ids []string) ([]errand.Task, error) {
	w.began = time.Now()
	defer w.line.clear()
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	tasks := make([]errand.Task, 0, len(ids))
	for _, id := range ids {
		t, err := w.one(ctx, id)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %s is still %v after %v", errTimeout, id, t.State, w.timeout)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		tasks = append(tasks, t)
		w.ended++
	}
	return tasks, nil
}

func (w *waiting) one(ctx context.Context, id string) (errand.Task, error) {
	if w.line == nil {
		return w.client.Wait(ctx, id)
	}
	following, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.follow(following, id)
	}()
	defer func() {
		stop()
		<-stopped
	}()
	return w.client.Wait(ctx, id)
}

// Times of the progress line of a wait.
const (
	followFirst = 300 * time.Millisecond // what ends sooner needs no progress
	followEvery = time.Second
)

// follow keeps the line up to date until the context ends. A look that fails is passed over: the wait itself will tell.
func (w *waiting) follow(ctx context.Context, id string) {
	next := time.NewTimer(followFirst)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if t, err := w.client.Get(ctx, id); err == nil {
			w.line.show(w.text(&t))
		}
		next.Reset(followEvery)
	}
}

// text is what the line says of the task that is waited for.
func (w *waiting) text(t *errand.Task) string {
	text := fmt.Sprintf("%s %v", t.ID, t.State)
	if t.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	if t.Reason != "" {
		text += ", last ended with " + printable([]byte(t.Reason))
	}
	if w.of > 1 {
		text = fmt.Sprintf("%d of %d ended; %s", w.ended, w.of, text)
	}
	return text + ", " + time.Since(w.began).Round(time.Second).String()
}
