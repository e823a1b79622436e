package errand_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/errandhq/errand"
)

func shout(_ context.Context, text string) (string, error) { return strings.ToUpper(text), nil }

func Example_worker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	w, err := errand.NewWorker(errand.WorkerConfig{
		Config: errand.Config{URLs: []string{os.Getenv("ERRAND_URL")}, Key: os.Getenv("ERRAND_KEY")},
	})
	if err != nil {
		log.Panic(err)
	}
	errand.Handle(w, "shout", 10, shout) // at most ten at once
	if err := w.Run(ctx); err != nil {   // until it is interrupted; then it drains
		log.Panic(err)
	}
}
