//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// devControlName is the socket over which the regions of errand dev are cut off, killed and started again. Whoever may enter the folder
// may do so.
const (
	devControlName     = "control.sock"
	devControlBytesMax = 4 << 10
	devControlHeader   = 5 * time.Second
)

// devPower says whether a region's processes shall run.
type devPower struct {
	mu      sync.Mutex
	off     bool
	changed chan struct{} // closed, and replaced, with every change
}

func newPower() *devPower { return &devPower{changed: make(chan struct{})} }

// set switches it, and does something before anything can be started again.
func (p *devPower) set(off bool, then func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = off
	close(p.changed)
	p.changed = make(chan struct{})
	then()
}

// start starts a part, unless the power is off.
func (p *devPower) start(ctx context.Context, part devPart) (started bool, err error) {
	if p == nil {
		return true, part.Start(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return false, nil
	}
	return true, part.Start(ctx)
}

func (p *devPower) now() (off bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.off, p.changed
}

// wait returns whether the power was off, when it is on. Nil is always on.
func (p *devPower) wait(ctx context.Context) (was bool, err error) {
	if p == nil {
		return false, nil
	}
	for {
		off, changed := p.now()
		if !off {
			return was, nil
		}
		was = true
		select {
		case <-ctx.Done():
			return was, ctx.Err()
		case <-changed:
		}
	}
}

// devControl answers on the socket.
type devControl struct {
	server *http.Server
	done   chan struct{}
	err    error // read it after done
}

func (r *devRegions) startControl() (*devControl, error) {
	path := r.folder.sockets(devControlName)
	_ = os.Remove(path) // of a start that was killed
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/lines", r.lines.Handler())
	mux.HandleFunc("POST /regions", r.switchRegion)
	c := &devControl{server: &http.Server{Handler: mux, ReadHeaderTimeout: devControlHeader}, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = ignoreClosed(c.server.Serve(l))
	}()
	r.say("  %-11s %-12s %s", "Control", "-", path)
	return c, nil
}

func (c *devControl) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.done:
		return c.err
	}
}

func (c *devControl) stop() {
	_ = c.server.Close() // nobody is asked anything any more
	<-c.done
}

// switchRegion kills all processes of a region, or lets them be started again: {"region": "r2", "state": "killed"}, or "running".
func (r *devRegions) switchRegion(w http.ResponseWriter, req *http.Request) {
	var asked struct {
		Region string `json:"region"`
		State  string `json:"state"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, req.Body, devControlBytesMax))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&asked)
	if err == nil {
		err = r.switchTo(asked.Region, asked.State)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%s: %s\n", asked.Region, asked.State)
}

func (r *devRegions) switchTo(region, state string) error {
	if state != "killed" && state != "running" {
		return fmt.Errorf(`state: %q is neither "killed" nor "running"`, state)
	}
	for _, p := range r.places {
		if p.name != region {
			continue
		}
		r.say("region %s: %s", region, state)
		if state == "killed" {
			p.power.set(true, p.kill)
		} else {
			p.power.set(false, func() {})
		}
		return nil
	}
	return fmt.Errorf("region: %q: %w", region, errNoRegion)
}

// kill ends a region's schedulers and workers at once, as a power cut would; its Redis is left.
func (p *devPlace) kill() {
	var killing sync.WaitGroup
	for _, s := range p.schedulers {
		killing.Go(s.Kill)
	}
	for _, w := range p.workers {
		killing.Go(w.Kill)
	}
	killing.Wait()
}
