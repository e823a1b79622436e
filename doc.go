// Package errand is the Go SDK of Errand: submit tasks, and run workers that handle them.
//
// A [Client] hands work over and gets an answer at once; from then on Errand owes it. A [Worker] connects out to a scheduler,
// runs handlers and reports how they ended, again and again until it is told that the end is recorded:
//
//	client, err := errand.NewClient(errand.Config{URLs: []string{"http://localhost:7070"}, Key: key})
//	task, err := client.Submit(ctx, errand.Spec{Kind: "resize", Payload: []byte(`{"width": 640}`), IdempotencyKey: "photo-17"})
//
//	worker, err := errand.NewWorker(errand.WorkerConfig{Config: errand.Config{URLs: urls, Key: key}})
//	errand.Handle(worker, "resize", 4, func(ctx context.Context, in Resize) (Resized, error) { ... })
//	err = worker.Run(ctx) // until ctx ends; then it drains
//
// A handler may run more than once for the same task: a worker may die after the work and before the word of it. What must
// happen once is tied to the task's effect key ([Attempt.EffectKey]), which is the same for every attempt and every redrive.
//
// [Try] runs a handler without any server, for tests.
package errand
