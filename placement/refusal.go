package placement

// Refusal says why no worker was found. The zero value means that one was.
type Refusal uint8

// The reasons of a refusal.
const (
	Placed         Refusal = iota
	NoWorker               // no worker of this kind serves this tenant
	DoesNotFitNow          // none has room
	AllDraining            // those that could run it take no more work
	SuspectWaiting         // each one with room already runs another suspect
	Headroom               // what is free is kept for more urgent work
	NeverFits              // none could ever hold it, even empty
	Unselected             // none satisfies the selectors
	Reserved               // the only room for it is held for another
)

var refusalTexts = [...]string{
	Placed:         "placed",
	NoWorker:       "no worker of this kind",
	DoesNotFitNow:  "does not fit now",
	AllDraining:    "all workers of this kind are draining",
	SuspectWaiting: "waits to run as the only suspect on a worker",
	Headroom:       "what is free is kept for more urgent work",
	NeverFits:      "no worker of this kind is large enough, even empty",
	Unselected:     "no worker of this kind satisfies the selectors",
	Reserved:       "what is free is held for a larger task",
}

// String is the reason in words.
func (r Refusal) String() string { return refusalTexts[r] }

// RefusalOf is the refusal with a number. One that is not known here, since a newer version has it, is taken for DoesNotFitNow.
func RefusalOf(number int32) Refusal {
	if number < 0 || int(number) >= len(refusalTexts) {
		return DoesNotFitNow
	}
	return Refusal(number)
}

// NearerThan tells whether less has to happen than for another refusal until an attempt starts.
func (r Refusal) NearerThan(other Refusal) bool { return distances[r] < distances[other] }

// distances order the refusals by what would have to happen.
var distances = [...]int{
	Placed: 0, DoesNotFitNow: 1, Headroom: 2, SuspectWaiting: 3, Reserved: 4, AllDraining: 5, NeverFits: 6, Unselected: 7, NoWorker: 8,
}

// nearer is the refusal of a tenant's own workers and of the pool's that counts: the pool's, which come last, but not when nobody there
// could ever do it and somebody else could.
func nearer(own, shared Refusal) Refusal {
	far := func(r Refusal) int {
		switch r {
		case NoWorker:
			return 3
		case Unselected:
			return 2
		case NeverFits:
			return 1
		default:
			return 0
		}
	}
	if far(own) < far(shared) {
		return own
	}
	return shared
}
