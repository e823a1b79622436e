package fairness

import "math"

// averagesMax bounds the keys of one [Averages]; beyond it the oldest are forgotten and start from the overall average again.
const averagesMax = 20_000

// averageWeight is how much the newest observation counts.
const averageWeight = 0.2

// Averages keeps exponentially weighted moving averages by key, and one over all keys for those that are not known yet. It is not
// safe for concurrent use.
type Averages[K comparable] struct {
	unknown float64 // what is expected while nothing is known at all
	overall average
	byKey   map[K]*average
	keys    []K // in the order in which they came
}

type average struct {
	value float64
	some  bool
}

// NewAverages returns averages that expect the given value while nothing is known.
func NewAverages[K comparable](unknown float64) *Averages[K] {
	return &Averages[K]{unknown: unknown, byKey: map[K]*average{}}
}

// Expect returns a key's average, else that over all keys.
func (a *Averages[K]) Expect(key K) float64 {
	switch one := a.byKey[key]; {
	case one != nil:
		return one.value
	case a.overall.some:
		return a.overall.value
	}
	return a.unknown
}

// Any tells whether anything was learned at all.
func (a *Averages[K]) Any() bool { return a.overall.some }

// Known tells whether anything was learned of a key.
func (a *Averages[K]) Known(key K) bool { return a.byKey[key] != nil }

// Learn takes an observation; one that is negative or no number is not heard.
func (a *Averages[K]) Learn(key K, value float64) {
	if !(value >= 0) || math.IsInf(value, 1) {
		return
	}
	one := a.byKey[key]
	if one == nil {
		if len(a.keys) >= averagesMax {
			delete(a.byKey, a.keys[0])
			a.keys = a.keys[1:]
		}
		one = &average{}
		a.byKey[key] = one
		a.keys = append(a.keys, key)
	}
	one.learn(value)
	a.overall.learn(value)
}

func (a *average) learn(value float64) {
	if !a.some {
		a.value, a.some = value, true
		return
	}
	a.value += averageWeight * (value - a.value)
}
