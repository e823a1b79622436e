package fairness

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Tenants that always wait are served in proportion to their weights, whatever a turn costs (P7).
func TestServedByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewShares()
		q := s.NewQueue()
		weights, costs, used := map[string]float64{}, map[string]float64{}, map[string]float64{}
		sum := 0.0
		for i := range rapid.IntRange(2, 6).Draw(t, "tenants") {
			tenant := fmt.Sprint("t", i)
			weights[tenant] = rapid.Float64Range(0.1, 10).Draw(t, "weight")
			costs[tenant] = rapid.Float64Range(0.001, 0.1).Draw(t, "cost")
			sum += weights[tenant]
			s.SetWeight(tenant, weights[tenant])
			q.Add(tenant)
		}
		total := 0.0
		for range 20_000 {
			tenant, _, _ := q.Peek()
			s.Served(tenant)
			s.Charge(tenant, Plain, costs[tenant], epoch)
			used[tenant] += costs[tenant]
			total += costs[tenant]
		}
		for tenant, u := range used {
			if want := total * weights[tenant] / sum; math.Abs(u-want) > 0.2+0.01*want {
				t.Fatalf("%s used %.2f of %.2f, want %.2f", tenant, u, total, want)
			}
		}
	})
}

// Who comes late has saved nothing up, and who was charged too much gets it back.
func TestIdleTimeIsNotSavedUp(t *testing.T) {
	s := NewShares()
	q := s.NewQueue()
	q.Add("busy")
	for range 100 {
		s.Served("busy")
		s.Charge("busy", Plain, 1, epoch)
	}
	s.Lift("late", epoch)
	q.Add("late")
	served := map[string]int{}
	for range 10 {
		tenant, _, _ := q.Peek()
		s.Served(tenant)
		s.Charge(tenant, Plain, 1, epoch)
		served[tenant]++
	}
	if served["late"] < 5 || served["late"] > 6 {
		t.Errorf("served %v", served)
	}
	s.Charge("late", Plain, -3, epoch) // it was charged three too much
	if tenant, _, _ := q.Peek(); tenant != "late" {
		t.Errorf("%s is next", tenant)
	}
}

// A tenant that waits for something scarce stays behind by no more than a bound.
func TestLagIsBounded(t *testing.T) {
	s := NewShares()
	scarce, plenty := s.NewQueue(), s.NewQueue()
	scarce.Add("a")
	plenty.Add("b")
	for range 1000 {
		s.Served("b")
		s.Charge("b", Plain, 1, epoch)
	}
	if _, virtual, _ := scarce.Peek(); virtual != s.Virtual()-lagMax {
		t.Errorf("a stands at %v, virtual time is %v", virtual, s.Virtual())
	}
}

func TestUrgentShare(t *testing.T) {
	s := NewShares()
	s.Hold("a", 1, epoch)
	s.Hold("b", 1, epoch)
	if got := s.Fair("a"); got != 0.5 {
		t.Fatalf("fair share %v", got)
	}
	budget := UrgentShare * 0.5 * Window.Seconds()
	s.Charge("a", Urgent, budget, epoch)
	if !s.UrgentFirst("a", epoch) {
		t.Error("demoted within its share")
	}
	s.Charge("a", Urgent, 0.01, epoch)
	if s.UrgentFirst("a", epoch) {
		t.Error("goes first beyond its share")
	}
	if !s.UrgentFirst("b", epoch) || !s.UrgentFirst("nobody", epoch) {
		t.Error("demoted for another's use")
	}
	if s.UrgentFirst("a", epoch.Add(time.Second)) {
		t.Error("goes to and fro")
	}
	if !s.UrgentFirst("a", epoch.Add(10*time.Second)) {
		t.Error("stays demoted when its use has faded")
	}
}

func TestOverdueIsOwedAQuarter(t *testing.T) {
	s, overdue := NewShares(), 0.0
	for range 1000 {
		use := Plain
		if s.OverdueOwed(epoch) {
			use = Overdue
			overdue++
		}
		s.Charge("a", use, 0.1, epoch)
	}
	if overdue < 249 || overdue > 252 {
		t.Errorf("%v of 1000", overdue)
	}
}

// What a tenant has used is told once, whatever the limit of a message.
func TestSpentIsToldOnce(t *testing.T) {
	s := NewShares()
	for i := range 10 {
		s.Charge(fmt.Sprint("t", i), Plain, float64(i+1), epoch)
	}
	s.Charge("t3", Plain, -4, epoch) // all of it was too much
	first := s.Spent(3)
	if len(first) != 3 || first[0] != (Spent{"t9", 10}) || first[2] != (Spent{"t7", 8}) {
		t.Errorf("first %v", first)
	}
	s.Charge("t9", Plain, 1, epoch)
	rest := s.Spent(100)
	sum := 0.0
	for _, one := range slices.Concat(first, rest) {
		sum += one.Amount
	}
	if math.Abs(sum-52) > 1e-9 || len(s.Spent(100)) != 0 {
		t.Errorf("told %v in all", sum)
	}
}

// Amounts and weights that are no numbers change nothing.
func TestNonsenseIsNotHeard(t *testing.T) {
	s := NewShares()
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1} {
		s.SetWeight("a", bad)
		if s.Weight("a") != DefaultWeight {
			t.Errorf("weight %v", bad)
		}
	}
	s.Charge("a", Plain, math.NaN(), epoch)
	s.ChargeElsewhere("a", math.Inf(1), epoch)
	s.CatchUp(math.Inf(1))
	if s.Virtual() != 0 || len(s.Spent(1)) != 0 {
		t.Errorf("virtual %v", s.Virtual())
	}
}

// Accounts of tenants that want nothing any more are forgotten.
func TestIdleAccountsAreForgotten(t *testing.T) {
	s := NewShares()
	for i := range 1000 {
		tenant := fmt.Sprint("t", i)
		s.Hold(tenant, 1, epoch)
		s.Hold(tenant, -1, epoch)
	}
	s.Hold("last", 1, epoch.Add(2*Window))
	if len(s.accounts) > 2 {
		t.Errorf("%d accounts", len(s.accounts))
	}
	if s.present != 1 {
		t.Errorf("weights of %v are present", s.present)
	}
}

func TestAverages(t *testing.T) {
	a := NewAverages[string](7)
	if a.Expect("x") != 7 || a.Known("x") {
		t.Error("something is known of nothing")
	}
	a.Learn("x", 1)
	if a.Expect("x") != 1 || a.Expect("y") != 1 || !a.Known("x") || a.Known("y") {
		t.Errorf("x %v, y %v", a.Expect("x"), a.Expect("y"))
	}
	a.Learn("x", 2)
	if got := a.Expect("x"); math.Abs(got-1.2) > 1e-9 {
		t.Errorf("x %v", got)
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		a.Learn("x", bad)
	}
	for i := range averagesMax + 10 {
		a.Learn(fmt.Sprint(i), 5)
	}
	if len(a.byKey) != averagesMax || a.Known("x") {
		t.Errorf("%d keys", len(a.byKey))
	}
}

// All parts of a cap together are exactly the cap, and while two divisions may hold nobody has more than in either.
func TestPartsOfACap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, of := rapid.IntRange(0, 100).Draw(t, "cap"), rapid.IntRange(1, 16).Draw(t, "of")
		salt := rapid.Uint64().Draw(t, "salt")
		sum := 0
		for i := range of {
			sum += Part{of, i}.Slots(limit, salt)
		}
		if sum != limit {
			t.Fatalf("%d slots of %d", sum, limit)
		}
		a, b := Part{of, 0}, Part{of + 1, 0}
		if least := Least([]Part{a, b}, limit, salt); least > a.Slots(limit, salt) || least > b.Slots(limit, salt) {
			t.Fatalf("least %d", least)
		}
	})
	if Least(nil, 5, 0) != 0 || (Part{2, 2}).Slots(5, 0) != 0 || (Part{}).Slots(5, 0) != 0 {
		t.Error("slots of no part")
	}
}

// Backpressure halves the rate, slow start brings it back to half, and then it grows in steps until it is free again.
func TestAdaptiveRate(t *testing.T) {
	var a Adaptive
	now := epoch
	if _, limited := a.Rate(now); limited {
		t.Fatal("limited while nobody complains")
	}
	for range 60_000 { // 100 a second, for ten minutes
		now = now.Add(10 * time.Millisecond)
		a.Passed(now)
	}
	a.Backpressure(now)
	cut, _ := a.Rate(now)
	if cut < 20 || cut > 30 {
		t.Errorf("cut to %v", cut)
	}
	a.Backpressure(now.Add(adaptiveQuiet / 2))
	if again, _ := a.Rate(now); again != cut {
		t.Error("one congestion was counted twice")
	}
	after, _ := a.Rate(now.Add(adaptiveDouble))
	if after < 45 || after > 55 {
		t.Errorf("%v after slow start", after)
	}
	later, _ := a.Rate(now.Add(adaptiveDouble + 20*time.Second))
	if later < 90 || later > 110 {
		t.Errorf("%v after twenty seconds more", later)
	}
	if _, limited := a.Rate(now.Add(adaptiveForget)); limited {
		t.Error("limited for ever")
	}
}
