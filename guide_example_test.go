package errand_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/errandhq/errand"
)

// What docs/sdk.md shows and example_test.go does not have.

var (
	worker *errand.Worker
	client *errand.Client
)

func ExampleCapacity() {
	cfg := errand.Config{URLs: []string{"http://127.0.0.1:7070"}, Key: os.Getenv("ERRAND_KEY")}
	w, err := errand.NewWorker(errand.WorkerConfig{
		Config:   cfg,
		Zone:     "eu-a",
		Labels:   map[string]string{"disk": "ssd"},
		Capacity: &errand.Capacity{CPUMilli: 4000, MemoryMiB: 8192}, // default: errand.DetectCapacity()
	})
	if err != nil {
		return
	}
	_ = w.SetCapacity(errand.Capacity{CPUMilli: 2000, MemoryMiB: 4096}) // half of the machine is wanted for something else
}

func ExampleRequirements() {
	ctx := context.Background()
	got, err := client.Submit(ctx, errand.Spec{
		Kind:  "train",
		Needs: errand.Requirements{CPUMilli: 4000, MemoryMiB: 16384, GPUs: 1},
		Selectors: []errand.Selector{
			{Key: "gpu_model", Operator: errand.In, Values: []string{"A100", "H100"}},
		},
		Preferences: []errand.Preference{
			{Selector: errand.Selector{Key: "disk", Operator: errand.In, Values: []string{"ssd"}}, Weight: 10},
		},
		Near: "eu-a", // where the input lies
	})
	fmt.Println(got.ID, err)
}

func ExampleClient_SubmitMany() {
	ctx := context.Background()
	specs := make([]errand.Spec, 0, errand.BatchMax)
	for user := range 1000 {
		specs = append(specs, errand.Spec{
			Kind: "notify", Payload: fmt.Appendf(nil, `{"user": %d}`, user), Tier: errand.Deferrable,
			IdempotencyKey: fmt.Sprintf("post-17-user-%d", user),
		})
	}
	outcomes, err := client.SubmitMany(ctx, specs)
	if err != nil {
		return // the batch as a whole
	}
	for i, o := range outcomes {
		if o.Err != nil {
			fmt.Printf("user %d: %v\n", i, o.Err)
		}
	}
}

func ExampleClient_List() {
	ctx := context.Background()
	failed := errand.Filter{States: []errand.State{errand.Failed}, Labels: map[string]string{"team": "web"}}
	for task, err := range client.List(ctx, failed) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(task.ID, task.Attempt, task.Reason, task.Message)
	}
}

func ExampleClient_Cancel() {
	ctx := context.Background()
	answer, err := client.Cancel(ctx, "local.1m0t4cgy2jqgy4002b6x9ymmww", "the user has deleted the upload")
	switch {
	case err != nil:
		fmt.Println(err)
	case !answer.Accepted:
		fmt.Println("too late: it is", answer.State)
	case answer.State == errand.Running:
		fmt.Println("its worker is being told")
	}
}

func ExampleClient_Submit_unique() {
	ctx := context.Background()
	got, err := client.Submit(ctx, errand.Spec{Kind: "report", UniqueKey: "report-of-customer-7"})
	if err == nil && got.Existed {
		fmt.Println("somebody has asked already:", got.ID, got.State)
	}
}

func ExampleClient_Submit_infeasible() {
	ctx := context.Background()
	got, err := client.Submit(ctx, errand.Spec{Kind: "notify", StartWithin: time.Minute, RejectInfeasible: true})
	switch {
	case errors.Is(err, errand.ErrInfeasible):
		fmt.Println("nothing was stored:", err)
	case err == nil && !got.EstimatedStart.IsZero():
		fmt.Println("it starts in about", time.Until(got.EstimatedStart))
	}
}

func ExampleClient_Update() {
	ctx := context.Background()
	task, err := client.Update(ctx, "local.1m0t4cgy2jqgy4002b6x9ymmww", errand.Changes{Tier: errand.Urgent, RunNow: true})
	switch {
	case errors.Is(err, errand.ErrNotWaiting):
		fmt.Println("too late: it runs, or has ended")
	case err == nil:
		fmt.Println("due", task.Due)
	}
}

func ExampleError() {
	ctx := context.Background()
	_, err := client.Submit(ctx, errand.Spec{Kind: "charge", IdempotencyKey: "order-17"})
	var e *errand.Error
	switch {
	case err == nil:
	case errors.Is(err, errand.ErrKeyReused): // order-17 was submitted with other contents
	case errors.As(err, &e) && errors.Is(err, errand.ErrOverLimit):
		fmt.Println("too much at once: not before", e.RetryAfter) // nothing was stored
	case errors.Is(err, errand.ErrUnavailable): // nothing was stored: try later
	case errors.Is(err, errand.ErrOutcomeUnknown): // submit it again with the same key
	case errors.As(err, &e) && errors.Is(err, errand.ErrInvalid):
		fmt.Println("the field", e.Field, "is wrong")
	}
}

func ExampleWorker_Handle() {
	worker.Handle("checksum", 4, func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
		sum := fmt.Sprintf("%d bytes of %s, attempt %d", len(a.Payload), a.TaskID, a.Number)
		return errand.Result{Data: []byte(sum), ContentType: "text/plain"}, ctx.Err()
	})
}

func timed(next errand.Handler) errand.Handler {
	return func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
		began := time.Now()
		result, err := next(ctx, a)
		slog.Info("handled", "task", a.TaskID, "took", time.Since(began), "reason", errand.FailureOf(err).Reason)
		return result, err
	}
}

func ExampleWorker_Use() {
	worker.Use(timed) // around every handler that is added after it
	errand.Handle(worker, "shout", 10, shout)
}

func ExampleRetryAfter() {
	type invoice struct{ Customer, Email string }
	deliver := func(context.Context, invoice) (time.Duration, error) { return 0, nil }
	errand.Handle(worker, "invoice", 10, func(ctx context.Context, in invoice) (string, error) {
		if in.Email == "" {
			return "", errand.NonRetryable(errand.WithReason(errors.New("the customer has no address"), "no_address"))
		}
		wait, err := deliver(ctx, in)
		if wait > 0 {
			return "", errand.RetryAfter(errors.New("the mail server is busy"), wait) // not before
		}
		return "sent", err // any other error: as the task's retry policy says
	})
}

func ExampleSpec() {
	ctx := context.Background()
	_, err := client.Submit(ctx, errand.Spec{
		Kind: "invoice", Payload: []byte(`{"Customer": "acme", "Email": "ap@example.com"}`),
		MaxAttempts:    8,
		AttemptTimeout: 2 * time.Minute,
		Retry: errand.Retry{
			Initial: 5 * time.Second, Multiplier: 3, Max: 10 * time.Minute,
			NonRetryable: []string{"no_address"},
		},
	})
	if err != nil {
		fmt.Println(err)
	}
}

func Example_stopping() {
	worker.Handle("crawl", 2, func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
		for page := range 1000 {
			select {
			case <-ctx.Done():
				return errand.Result{}, context.Cause(ctx) // canceled, timed out, lost or draining
			default:
				slog.Debug("fetch", "task", a.TaskID, "page", page)
			}
		}
		return errand.Result{}, nil
	})
}

func ExampleWorker_HandBack() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	go func() {
		<-ctx.Done()
		stop() // the next signal is not caught by ctx any more
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt)
		<-again
		worker.HandBack()
	}()
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

func Example_exclusive() {
	ctx := context.Background()
	_, err := client.Submit(ctx, errand.Spec{Kind: "reindex", Exclusive: true, IdempotencyKey: "reindex-2026-12-01"})
	if err != nil {
		fmt.Println(err)
	}
}

// A handler is tested like any other function.
func TestShout(t *testing.T) {
	r, err := errand.Try(t.Context(), errand.Typed(shout), &errand.Attempt{Payload: []byte(`"hello"`)})
	if err != nil || string(r.Data) != `"HELLO"` {
		t.Errorf("%s, %v", r.Data, err)
	}
	_, err = errand.Try(t.Context(), errand.Typed(shout), &errand.Attempt{Payload: []byte(`17`)})
	if f := errand.FailureOf(err); f.Reason != "bad_payload" || !f.NonRetryable {
		t.Errorf("a payload of another type: %+v", f)
	}
}

// exampleFiles are where the code of docs/sdk.md comes from.
var exampleFiles = []string{"worker_example_test.go", "guide_example_test.go", "example_test.go"}

// Every piece of Go in docs/sdk.md and README.md stands in an example, line by line, so that it compiles.
func TestTheGuideIsCompiled(t *testing.T) {
	var guide []byte
	for _, name := range []string{"docs/sdk.md", "README.md"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		guide = append(append(guide, raw...), "\n"...)
	}
	var examples strings.Builder
	for _, name := range exampleFiles {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(raw), "package errand_test", "package main")
		examples.WriteString("\n" + flat(strings.ReplaceAll(text, "func Example_worker()", "func main()")))
	}
	pieces := 0
	for i, part := range strings.Split(string(guide), "```") {
		code, is := strings.CutPrefix(part, "go\n")
		if i%2 == 0 || !is {
			continue
		}
		pieces++
		if !strings.Contains(examples.String(), "\n"+flat(code)) {
			t.Errorf("this is in no example:\n%s", code)
		}
	}
	if pieces < 10 {
		t.Errorf("only %d pieces of code were found", pieces)
	}
}

// flat is code without its indentation and its spaces for alignment.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}
