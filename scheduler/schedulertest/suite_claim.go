package schedulertest

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

func claimFollowsTheLifecycle(t *testing.T, s *suite) {
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	tests := map[string]struct {
		task  scheduler.Task
		claim scheduler.Claim
	}{
		"ready":             {task(), scheduler.Claim{From: scheduler.Ready}},
		"seen otherwise":    {task(), scheduler.Claim{From: scheduler.Ready, Seen: 1}},
		"thought scheduled": {task(), scheduler.Claim{From: scheduler.Scheduled}},
		"scheduled and due": {
			task(func(k *scheduler.Task) { k.State, k.RunAt = scheduler.Scheduled, past }), scheduler.Claim{From: scheduler.Scheduled},
		},
		"scheduled, not due": {
			task(func(k *scheduler.Task) { k.State, k.RunAt = scheduler.Scheduled, future }), scheduler.Claim{From: scheduler.Scheduled},
		},
		"past its start_by":   {task(func(k *scheduler.Task) { k.StartBy = past }), scheduler.Claim{From: scheduler.Ready}},
		"before its start_by": {task(func(k *scheduler.Task) { k.StartBy = future }), scheduler.Claim{From: scheduler.Ready}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s.insert(t, tt.task)
			before := s.Task(t, tt.task.Ref)
			tt.claim.ID, tt.claim.Worker = tt.task.ID, s.worker
			want, refusal := before.Claim(tt.claim.From, tt.claim.Seen, s.session, s.worker, time.Now())
			a := s.claim(t, s.session, tt.claim)[0]
			if (a.Verdict == scheduler.Won) != (refusal == nil) {
				t.Fatalf("verdict %v, the lifecycle says %v", a.Verdict, refusal)
			}
			same(t, s.Task(t, tt.task.Ref), want)
			if refusal != nil && a.State != before.State {
				t.Errorf("the answer says %v, the row is %v", a.State, before.State)
			}
			if refusal == nil && (a.Start.Token != want.Token() || a.Start.Session != s.session || a.Start.StartedAt.IsZero()) {
				t.Errorf("start %+v", a.Start)
			}
		})
	}
	missing := s.claim(t, s.session, scheduler.Claim{ID: newID(1), From: scheduler.Ready, Worker: s.worker})
	expect(t, "a row that is not there", verdicts(missing, claimVerdict), scheduler.Missing)
}

func claimMayBeExecutedAgain(t *testing.T, s *suite) {
	one := task(func(k *scheduler.Task) { k.Payload = []byte("p") })
	s.insert(t, one)
	c := scheduler.Claim{ID: one.ID, From: scheduler.Ready, Worker: s.worker}
	for range 3 {
		a := s.claim(t, s.session, c)[0]
		if a.Verdict != scheduler.Won || a.Start.Attempt != 1 || string(a.Start.Payload) != "p" {
			t.Fatalf("%+v", a)
		}
	}
	// Another worker, or another session, did not win by this.
	expect(t, "for another worker", verdicts(s.claim(t, s.session, scheduler.Claim{ID: one.ID, From: scheduler.Ready, Worker: scheduler.WorkerID{9}}), claimVerdict), scheduler.Lost)
	s.open(t, s.other, time.Minute)
	expect(t, "by another session", verdicts(s.claim(t, s.other, c), claimVerdict), scheduler.Lost)
	s.end(t, scheduler.Ending{Token: scheduler.Token{ID: one.ID, Attempt: 1, Worker: s.worker}, To: scheduler.Ready})
	expect(t, "after it was given back", verdicts(s.claim(t, s.session, c), claimVerdict), scheduler.Lost)
}

func claimNeedsALiveSession(t *testing.T, s *suite) {
	one := task()
	s.insert(t, one)
	c := scheduler.Claim{ID: one.ID, From: scheduler.Ready, Worker: s.worker}
	expect(t, "a session that was never opened", verdicts(s.claim(t, s.other, c), claimVerdict), scheduler.Lost)
	if err := s.Store.EndSession(ctx(), region, s.session); err != nil {
		t.Fatal(err)
	}
	expect(t, "an ended session", verdicts(s.claim(t, s.session, c), claimVerdict), scheduler.Lost)
}

// B39: an answer is bounded; what is larger is read by key.
func claimReturnsSmallPayloads(t *testing.T, s *suite) {
	small := task(func(k *scheduler.Task) { k.Payload = bytes.Repeat([]byte{1}, scheduler.InlinePayloadMax) })
	large := task(func(k *scheduler.Task) { k.Payload = bytes.Repeat([]byte{2}, scheduler.PayloadMax) })
	none := task()
	s.insert(t, small, large, none)
	var claims []scheduler.Claim
	for _, k := range []scheduler.Task{small, large, none} {
		claims = append(claims, scheduler.Claim{ID: k.ID, From: scheduler.Ready, Worker: s.worker})
	}
	a := s.claim(t, s.session, claims...)
	if !bytes.Equal(a[0].Start.Payload, small.Payload) || a[1].Start.Payload != nil || a[1].Start.PayloadSize != scheduler.PayloadMax || a[2].Start.PayloadSize != 0 {
		t.Errorf("payloads of %d, %d, %d bytes; sizes %d, %d, %d", len(a[0].Start.Payload), len(a[1].Start.Payload), len(a[2].Start.Payload),
			a[0].Start.PayloadSize, a[1].Start.PayloadSize, a[2].Start.PayloadSize)
	}
	got := must[[][]byte](t)(s.Store.Payloads(ctx(), region, []scheduler.ID{none.ID, large.ID, newID(1)}))
	if len(got) != 3 || len(got[0]) != 0 || !bytes.Equal(got[1], large.Payload) || got[2] != nil {
		t.Errorf("payloads by key: %d answers of %d, %d, %d bytes", len(got), len(got[0]), len(got[1]), len(got[2]))
	}
}

// B42: whoever was told that it won really has; two sessions on the same lanes never both believe it.
func twoContendersBelieveTheStore(t *testing.T, s *suite) {
	const rounds, tasks = 10, 40
	s.open(t, s.other, time.Minute)
	for range rounds {
		all := make([]scheduler.Task, tasks)
		claims := make([]scheduler.Claim, tasks)
		for i := range all {
			all[i] = task()
			claims[i] = scheduler.Claim{ID: all[i].ID, From: scheduler.Ready, Worker: s.worker}
		}
		s.insert(t, all...)
		contenders := []scheduler.SessionID{s.session, s.other}
		answers := make([][]scheduler.Claimed, len(contenders))
		errs := make([]error, len(contenders))
		var both sync.WaitGroup
		for i, by := range contenders {
			both.Go(func() {
				answers[i], errs[i] = s.Store.Claim(ctx(), scheduler.ClaimBatch{Region: region, Session: by, Claims: claims})
			})
		}
		both.Wait()
		for i := range contenders {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
		}
		for i := range all {
			holder := s.Task(t, all[i].Ref).Session
			for c, by := range contenders {
				if won := answers[c][i].Verdict == scheduler.Won; won != (holder == by) {
					t.Fatalf("session %s was told won=%v, the row belongs to %s", by, won, holder)
				}
			}
		}
	}
}
