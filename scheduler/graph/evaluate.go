package graph

// Condition says when a task with parents may run. The numbers are stored.
type Condition int16

// The conditions. Zero means [AllSucceeded].
const (
	AllSucceeded Condition = 1
	AllFinished  Condition = 2 // all have ended, however
	AnySucceeded Condition = 3 // at least one has succeeded; the others may run still
)

// OrDefault is the condition, or [AllSucceeded] for zero.
func (c Condition) OrDefault() Condition {
	if c == 0 {
		return AllSucceeded
	}
	return c
}

// String says when the task runs, to go behind "it runs when".
func (c Condition) String() string {
	switch c.OrDefault() {
	case AllSucceeded:
		return "all its parents have succeeded"
	case AllFinished:
		return "all its parents have ended"
	case AnySucceeded:
		return "one of its parents has succeeded"
	default:
		return "never"
	}
}

// Policy says what becomes of a task whose parents cannot meet its condition any more. The numbers are stored.
type Policy int16

// The policies. Zero means [Cancel].
const (
	Cancel Policy = 1 // it is canceled with a reason, which its own children see as any other end
	Run    Policy = 2 // it runs anyway
)

// OrDefault is the policy, or [Cancel] for zero.
func (p Policy) OrDefault() Policy {
	if p == 0 {
		return Cancel
	}
	return p
}

// Outcome is what an edge has come to.
type Outcome uint8

// The outcomes.
const (
	Open      Outcome = iota // the parent has not ended
	Succeeded                // the parent has succeeded
	Otherwise                // the parent has failed, expired or was canceled
)

// Edges tells which outcomes there are among the edges of a task, not how many.
type Edges struct{ Open, Succeeded, Otherwise bool }

// With adds an edge.
func (e Edges) With(o Outcome) Edges {
	switch o {
	case Open:
		e.Open = true
	case Succeeded:
		e.Succeeded = true
	case Otherwise:
		e.Otherwise = true
	}
	return e
}

// Verdict is what a task with parents does now.
type Verdict uint8

// The verdicts. All but [Wait] are final: no edge that is closed later changes them.
const (
	Wait       Verdict = iota + 1
	Release            // its condition is met
	Impossible         // its condition cannot be met any more
)

// String is the verdict's word in tests.
func (v Verdict) String() string {
	return [...]string{"invalid", "wait", "release", "impossible"}[min(v, Impossible)]
}

// Evaluate tells what a task does whose edges have come to these outcomes. One without edges waits for nobody.
func Evaluate(c Condition, e Edges) Verdict {
	switch c.OrDefault() {
	case AnySucceeded:
		switch {
		case e.Succeeded:
			return Release
		case e.Open:
			return Wait
		case e.Otherwise:
			return Impossible
		}
		return Release
	case AllFinished:
		if e.Open {
			return Wait
		}
		return Release
	default: // a condition that a newer version has stored waits for the strictest
		switch {
		case e.Otherwise:
			return Impossible
		case e.Open:
			return Wait
		}
		return Release
	}
}
