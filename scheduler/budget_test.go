package scheduler

import "testing"

// B29: while a kind fails its retries are held back; a few failures, or another kind's, change nothing, and successes end it.
func TestRetryBudget(t *testing.T) {
	var b budget
	for i := range int(budgetHolding) {
		if steps := b.failed("down"); steps != 0 {
			t.Fatalf("failure %d is held back already", i+1)
		}
	}
	if steps := b.failed("down"); steps != budgetSteps {
		t.Errorf("beyond half of the tokens: %d steps, want %d", steps, budgetSteps)
	}
	if steps := b.failed("up"); steps != 0 {
		t.Error("another kind is held back too")
	}
	for range 1000 {
		b.failed("down") // the debt is bounded
	}
	recovered := 0
	for b.missing["down"] > 0 {
		b.succeeded("down")
		recovered++
	}
	if want := int(budgetTokens / budgetReturn); recovered < want-10 || recovered > want+10 {
		t.Errorf("%d successes until the budget is full, want about %d", recovered, want)
	}
	if len(b.missing) != 1 {
		t.Errorf("%d kinds remembered, want the one that still misses a token", len(b.missing))
	}
	for i := range budgetKinds + 10 {
		b.failed(string(rune(i)) + "kind")
	}
	if len(b.missing) > budgetKinds {
		t.Errorf("%d kinds remembered, want at most %d", len(b.missing), budgetKinds)
	}
}
