package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

type asynqCmd struct {
	load
	Workers    int `default:"500" help:"Goroutines that work."`
	Submitters int `default:"64" help:"Goroutines that enqueue: asynq takes one task at a time."`
}

// Run enqueues, works, and takes the time until the last handler has returned.
func (c *asynqCmd) Run(ctx context.Context) error {
	redis, err := asynq.ParseRedisURI(c.Redis)
	if err != nil {
		return err
	}
	client := asynq.NewClient(redis)
	defer func() { _ = client.Close() }()
	server := asynq.NewServer(redis, asynq.Config{Concurrency: c.Workers, LogLevel: asynq.FatalLevel})
	var done atomic.Int64
	news := make(chan struct{}, 1)
	room := make(chan struct{}, c.Outstanding)
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done.Add(1)
		<-room
		select {
		case news <- struct{}{}:
		default:
		}
		return nil
	})
	began := time.Now()
	if err := server.Start(handler); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range c.Submitters {
		group.Go(func() error {
			for next.Add(1) <= int64(c.Tasks) {
				select {
				case room <- struct{}{}:
				case <-groupCtx.Done():
					return groupCtx.Err()
				}
				if _, err := client.EnqueueContext(groupCtx, asynq.NewTask("noop", make([]byte, c.Bytes))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for done.Load() < int64(c.Tasks) {
		<-news
	}
	took := time.Since(began)
	server.Shutdown()
	return tell(took)
}
