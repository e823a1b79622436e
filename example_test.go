package errand_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand"
)

type (
	photo   struct{ Width, Height int }
	resized struct{ Width, Height int }
)

func halve(_ context.Context, in photo) (resized, error) {
	if in.Width <= 0 || in.Height <= 0 {
		return resized{}, errand.NonRetryable(errand.WithReason(errors.New("no such photo"), "bad_photo"))
	}
	return resized{in.Width / 2, in.Height / 2}, nil
}

// A handler is tested without any server.
func ExampleTry() {
	r, err := errand.Try(context.Background(), errand.Typed(halve), &errand.Attempt{Payload: []byte(`{"Width": 640, "Height": 480}`)})
	fmt.Println(string(r.Data), err)
	_, err = errand.Try(context.Background(), errand.Typed(halve), &errand.Attempt{Payload: []byte(`{}`)})
	f := errand.FailureOf(err) // what a worker would report
	fmt.Println(err, f.Reason, f.NonRetryable)
	// Output:
	// {"Width":320,"Height":240} <nil>
	// no such photo bad_photo true
}

// A client hands work over and, here, waits for its end.
func ExampleClient_Submit() {
	client, err := errand.NewClient(errand.Config{URLs: []string{"http://127.0.0.1:7070"}, Key: os.Getenv("ERRAND_KEY")})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := client.Submit(ctx, errand.Spec{
		Kind: "halve", Payload: []byte(`{"Width": 640, "Height": 480}`),
		IdempotencyKey: "photo-17", // sent again by itself when it is not known what became of it
		StartWithin:    time.Hour,  // useless when later
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := client.Wait(ctx, got.ID)
	fmt.Println(task.State, string(task.Result), err)
}

// A worker serves until it is interrupted, and drains.
func ExampleWorker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	w, err := errand.NewWorker(errand.WorkerConfig{
		Config: errand.Config{URLs: []string{"http://127.0.0.1:7070"}, Key: os.Getenv("ERRAND_KEY")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	errand.Handle(w, "halve", 4, halve) // at most four at once
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

// A handler decides what follows from its errors.
func ExampleHandle() {
	var w *errand.Worker // as in the example of Worker
	type mail struct{ To string }
	errand.Handle(w, "mail", 10, func(ctx context.Context, in mail) (string, error) {
		switch {
		case in.To == "":
			return "", errand.NonRetryable(errors.New("no recipient")) // failed for good
		case time.Now().Hour() < 7:
			return "", errand.Snooze(time.Hour) // put off; that counts as no attempt
		}
		// Stop when ctx ends: it was canceled, ran too long, or the worker drains. The effect key makes the mail go out once,
		// however often this runs.
		return "sent as " + errand.AttemptOf(ctx).EffectKey, nil
	})
}

// Money is moved once, however often the handler runs.
func ExampleOnce() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	var w *errand.Worker // as in the example of Worker
	w.Handle("transfer", 10, func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
		return errand.Result{}, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			first, err := errand.Once(ctx, tx, a, "transfer")
			if err != nil || !first {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE accounts SET balance = balance - 1 WHERE id = 17`)
			return err
		})
	})
}

// The order and the task that ships it are stored together, or not at all.
func ExampleSubmitTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // the database that is Errand's store too
	if err != nil {
		fmt.Println(err)
		return
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES (17)`); err != nil {
			return err
		}
		_, err := errand.SubmitTx(ctx, tx, errand.TxScope{Region: "local", Tenant: "acme"}, errand.Spec{Kind: "ship", IdempotencyKey: "order-17"})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
}
