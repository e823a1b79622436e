package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/errandhq/errand"
)

// workerCmd runs a built-in worker.
type workerCmd struct {
	Kind          string            `help:"Which built-in kind to serve: exec or http." enum:"exec,http" required:""`
	Slots         int               `help:"Attempts at once." default:"16"`
	URLs          []string          `help:"URLs of schedulers, nearest first." name:"url" default:"http://127.0.0.1:7070"`
	Key           string            `help:"A pool key for the kind, or a tenant's key." required:"" env:"ERRAND_KEY" placeholder:"KEY"`
	CA            string            `help:"File with the servers' authority, for https." placeholder:"FILE"`
	ClientCert    string            `help:"File with a client certificate, where servers want one." placeholder:"FILE"`
	ClientCertKey string            `help:"File with its key." placeholder:"FILE"`
	Name          string            `help:"For people. Default the host's name."`
	Zone          string            `help:"Where it runs, for tasks that wish to be near something." placeholder:"ZONE"`
	Label         map[string]string `help:"KEY=VALUE for tasks to ask for, may be repeated."`
	CPU           *float64          `help:"Processors. Default those that it may use." placeholder:"N"`
	Memory        *int              `help:"Memory in MiB. Default what it may use." placeholder:"MIB"`
	GPUs          *int              `help:"NVIDIA devices. Default those under /dev." name:"gpus" placeholder:"N"`
	DrainGrace    time.Duration     `help:"How long handlers may go on after a first signal; a second one ends it." default:"30s"`
	SigningSecret string            `help:"Signs requests of kind http with HMAC-SHA256."`
	AllowPrivate  bool              `help:"Let kind http call loopback and private addresses."`
	execSettings
	logSettings
}

// Run serves until the context ends, and drains.
func (c *workerCmd) Run(ctx context.Context) error {
	cfg, err := (&clientSettings{Key: c.Key, CA: c.CA, ClientCert: c.ClientCert, ClientCertKey: c.ClientCertKey}).config()
	if err != nil {
		return err
	}
	cfg.URLs = c.URLs
	if c.Slots < 1 || c.Slots > 100_000 {
		return fmt.Errorf("%w: --slots: %d is not between 1 and 100,000", errUsage, c.Slots)
	}
	capacity, err := c.capacity()
	if err != nil {
		return err
	}
	w, err := errand.NewWorker(errand.WorkerConfig{
		Config: cfg, Name: c.Name, Labels: c.Label, Zone: c.Zone, Capacity: capacity, DrainGrace: c.DrainGrace, Log: c.logger(),
	})
	if err != nil {
		return err
	}
	handler, err := c.handler(ctx)
	if err != nil {
		return err
	}
	w.Handle(c.Kind, c.Slots, handler)

	again := make(chan os.Signal, 1)
	go func() {
		<-ctx.Done()
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		w.HandBack()
	}()
	return w.Run(ctx)
}

// capacity is what the flags say, and what they leave to the machine.
func (c *workerCmd) capacity() (*errand.Capacity, error) {
	has := errand.DetectCapacity()
	if c.CPU != nil {
		if !(*c.CPU >= 0 && *c.CPU <= 1024) {
			return nil, fmt.Errorf("%w: --cpu: %v is not between 0 and 1024", errUsage, *c.CPU)
		}
		has.CPUMilli = int(math.Round(*c.CPU * 1000))
	}
	set(&has.MemoryMiB, c.Memory)
	set(&has.GPUs, c.GPUs)
	return &has, nil
}

func (c *workerCmd) handler(ctx context.Context) (errand.Handler, error) {
	if c.Kind == "http" {
		return newHTTPKind(c.SigningSecret, c.AllowPrivate).handle, nil
	}
	k, err := newExecKind(ctx, &c.execSettings)
	if err != nil {
		return nil, err
	}
	return k.handle, nil
}
