package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/errandhq/errand"
)

// workerCmd runs a built-in worker.
type workerCmd struct {
	Kind          string        `help:"Which built-in kind to serve: exec or http." enum:"exec,http" required:""`
	Slots         int           `help:"Attempts at once." default:"16"`
	URLs          []string      `help:"URLs of schedulers, nearest first." name:"url" default:"http://127.0.0.1:7070"`
	Key           string        `help:"A pool key for the kind, or a tenant's key." required:"" env:"ERRAND_KEY" placeholder:"KEY"`
	CA            string        `help:"File with the servers' authority, for https." placeholder:"FILE"`
	ClientCert    string        `help:"File with a client certificate, where servers want one." placeholder:"FILE"`
	ClientCertKey string        `help:"File with its key." placeholder:"FILE"`
	Name          string        `help:"For people. Default the host's name."`
	DrainGrace    time.Duration `help:"How long handlers may go on after a first signal; a second one ends it." default:"30s"`
	SigningSecret string        `help:"Signs requests of kind http with HMAC-SHA256."`
	AllowPrivate  bool          `help:"Let kind http call loopback and private addresses."`
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
	w, err := errand.NewWorker(errand.WorkerConfig{Config: cfg, Name: c.Name, DrainGrace: c.DrainGrace, Log: c.logger()})
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
