package scheduler

// The retry budget of a kind: while most of its attempts fail, their retries are put off further than their own backoff says, so
// that a dependency which is down, or just came back, is not hammered. It is the rule of gRPC's retry throttling (proposal A6,
// token ratio): a failure takes a token, a success gives a tenth of one back, and below half the tokens retries are held back.
// Nothing is ever refused: an accepted task is tried again, only later.
const (
	budgetTokens  = 100.0
	budgetReturn  = 0.1
	budgetSteps   = 3      // how many doublings (of the policy's multiplier) a retry is put off further
	budgetKinds   = 10_000 // kinds remembered at once; beyond it all start with a full budget again
	budgetHolding = budgetTokens / 2
)

// budget holds the missing tokens of the kinds that have failed lately.
type budget struct{ missing map[string]float64 }

// succeeded gives a part of a token back.
func (b *budget) succeeded(kind string) {
	if missing, some := b.missing[kind]; some {
		if missing -= budgetReturn; missing <= 0 {
			delete(b.missing, kind)
			return
		}
		b.missing[kind] = missing
	}
}

// failed takes a token, and returns by how many steps the retry's backoff is raised.
func (b *budget) failed(kind string) int {
	if b.missing == nil || len(b.missing) >= budgetKinds {
		b.missing = map[string]float64{}
	}
	b.missing[kind] = min(b.missing[kind]+1, budgetTokens)
	if b.missing[kind] > budgetHolding {
		return budgetSteps
	}
	return 0
}
