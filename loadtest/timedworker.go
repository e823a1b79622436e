package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// timed is a timed worker's process, as the one who started it sees it.
type timed struct {
	process
	mu      sync.Mutex
	news    chan struct{} // closed, and another one made, when there is a new tally
	tallies []tally       // in the order of time, at most talliesMax
}

// talliesMax bounds what is kept of a worker's life: an hour of it, as often as is usual.
const talliesMax = int(time.Hour / tallyEvery)

// timedSpec says which worker is wanted.
type timedSpec struct {
	name  string
	urls  []string // it connects to one of them, the first where it can
	key   string
	kinds []string
	slots int
	every time.Duration // how often it tells, 0 for tallyEvery
	peak  string        // file of the shared count, or empty
}

func (c *cluster) startTimed(ctx context.Context, s timedSpec) (*timed, error) {
	args := []string{"timed", "--url", strings.Join(s.urls, ","), "--key", s.key, "--kinds", strings.Join(s.kinds, ","), "--slots", strconv.Itoa(s.slots)}
	if s.every > 0 {
		args = append(args, "--every", s.every.String())
	}
	if s.peak != "" {
		args = append(args, "--peak", s.peak)
	}
	w := &timed{news: make(chan struct{})}
	w.name = s.name
	if err := c.startTelling(ctx, &w.process, args, w.listen); err != nil {
		return nil, err
	}
	c.workers = append(c.workers, &w.process)
	return w, nil
}

// startTelling starts a worker process of this program that tells things on its standard output.
func (c *cluster) startTelling(ctx context.Context, p *process, args []string, listen func(io.Reader)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.log = c.logFile(p.name)
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	p.cmd = exec.CommandContext(ctx, self, args...)
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.done = make(chan struct{})
	go func() {
		listen(out)
		_ = p.cmd.Wait() // it is killed in the end
		close(p.done)
	}()
	return nil
}

func (w *timed) listen(out io.Reader) {
	lines := json.NewDecoder(out)
	for {
		var t tally
		if lines.Decode(&t) != nil {
			return
		}
		w.mu.Lock()
		if len(w.tallies) < talliesMax {
			w.tallies = append(w.tallies, t)
		} else {
			w.tallies[talliesMax-1] = t
		}
		close(w.news)
		w.news = make(chan struct{})
		w.mu.Unlock()
	}
}

// when waits for a tally of which something is true.
func (w *timed) when(ctx context.Context, is func(tally) bool) (tally, error) {
	for {
		w.mu.Lock()
		now, news := tally{}, w.news
		if n := len(w.tallies); n > 0 {
			now = w.tallies[n-1]
		}
		w.mu.Unlock()
		if is(now) {
			return now, nil
		}
		select {
		case <-news:
		case <-w.done:
			return now, fmt.Errorf("%s has ended, log in %s", w.name, w.log)
		case <-ctx.Done():
			return now, fmt.Errorf("%w (%d had ended)", ctx.Err(), now.Answered)
		}
	}
}

// last is the newest tally; an empty one while there is none.
func (w *timed) last() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tallies) == 0 {
		return tally{}
	}
	return w.tallies[len(w.tallies)-1]
}

// since are the tallies from a moment on.
func (w *timed) since(from time.Time) []tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, t := range w.tallies {
		if t.At >= from.UnixMicro() {
			return append([]tally(nil), w.tallies[i:]...)
		}
	}
	return nil
}

var errNoTally = errors.New("a worker ended without its last tally")

// finish drains the worker and returns its last tally, with the waits.
func (w *timed) finish() (tally, error) {
	if err := w.stop(politeLimit); err != nil {
		return tally{}, err
	}
	last := w.last()
	if last.Waits == nil && len(last.Marks) > 0 {
		return tally{}, fmt.Errorf("%w: %s, log in %s", errNoTally, w.name, w.log)
	}
	return last, nil
}

// waitsOf are the waits of the tasks with a mark; none when there were no such tasks.
func (t tally) waitsOf(mark string) *hdrhistogram.Histogram {
	if s := t.Waits[mark]; s != nil {
		return hdrhistogram.Import(s)
	}
	return newWaits()
}

// sum adds up what several workers have seen of the marks that begin so.
func sum(prefix string, tallies ...tally) counts {
	var all counts
	for _, t := range tallies {
		for mark, one := range t.Marks {
			if strings.HasPrefix(mark, prefix) {
				all = all.plus(one)
			}
		}
	}
	return all
}

// until looks again and again whether something has come about; it is no error when it has not within the limit.
func until(ctx context.Context, limit time.Duration, is func() bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(tallyEvery / 2)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return false, nil
			}
			return false, ctx.Err()
		}
	}
	return true, nil
}
