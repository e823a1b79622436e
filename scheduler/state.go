package scheduler

// State is where a task is in its life. The numbers are stored; they never change meaning.
type State int16

// The states of a task. The first four are open, the others terminal.
const (
	Scheduled State = 1 // waits for its time: run_at, or the next try
	Ready     State = 2 // may start as soon as a worker is free
	Running   State = 3 // one attempt holds it
	Blocked   State = 4 // waits for parents
	Succeeded State = 5
	Failed    State = 6
	Canceled  State = 7
	Expired   State = 8 // was not started by its start_by
)

var stateNames = [...]string{"invalid", "scheduled", "ready", "running", "blocked", "succeeded", "failed", "canceled", "expired"}

// String is the state's word in the CLI, in logs and in metrics.
func (s State) String() string {
	if s < Scheduled || s > Expired {
		return stateNames[0]
	}
	return stateNames[s]
}

// Terminal tells whether the state is an end: it never changes again.
func (s State) Terminal() bool { return s >= Succeeded && s <= Expired }

// Open tells whether Errand still owes the task an end.
func (s State) Open() bool { return s >= Scheduled && s <= Blocked }

// Waiting tells whether the task is open and no attempt holds it.
func (s State) Waiting() bool { return s == Scheduled || s == Ready || s == Blocked }

// Tier is how urgent a task is. The numbers are stored; smaller is served first.
type Tier int16

// The tiers.
const (
	Urgent     Tier = 1
	Standard   Tier = 2
	Deferrable Tier = 3
)

// Tiers lists them in the order of service.
var Tiers = [...]Tier{Urgent, Standard, Deferrable}

var tierNames = [...]string{"invalid", "urgent", "standard", "deferrable"}

// String is the tier's word in the CLI, in logs and in metrics.
func (t Tier) String() string {
	if !t.Valid() {
		return tierNames[0]
	}
	return tierNames[t]
}

// Valid tells whether the value is one of the three tiers.
func (t Tier) Valid() bool { return t >= Urgent && t <= Deferrable }
