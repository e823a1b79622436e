package tokenbucket

import (
	"math"
	"time"

	"github.com/errandhq/errand/fairness"
)

// Policy is how much a tenant may submit in a region. The zero value is no limit.
type Policy struct {
	// Rate is tasks per second; what is not above 0 is no limit.
	Rate float64
	// Burst is how many tasks a tenant that was quiet may submit at once. 0 is Rate rounded up, at least 1.
	Burst int
	// UrgentRate is urgent tasks per second, which count towards Rate too; what is not above 0 is no limit. Its burst is
	// UrgentRate rounded up, at least 1.
	UrgentRate float64
}

// limits are the policy's two buckets: that of all tasks and that of urgent ones.
func (p Policy) limits() pair[fairness.Limit] {
	burst := float64(p.Burst)
	if p.Burst <= 0 {
		burst = burstOf(p.Rate)
	}
	return pair[fairness.Limit]{
		all:    fairness.Limit{Rate: p.Rate, Burst: burst},
		urgent: fairness.Limit{Rate: p.UrgentRate, Burst: burstOf(p.UrgentRate)},
	}
}

func burstOf(rate float64) float64 { return max(1, math.Ceil(rate)) }

// pair is something of both buckets of a tenant.
type pair[T any] struct{ all, urgent T }

// Ask is what a tenant wants to submit.
type Ask struct {
	// Tenant is taken as it is, byte for byte.
	Tenant string
	// Policy may differ from the last ask's. It holds from now on: tokens beyond a smaller burst are gone.
	Policy Policy
	// Tasks is how many tasks are submitted. They are admitted in their order.
	Tasks int
	// Urgent is how many of them are urgent. When not all tasks are admitted, urgent ones are counted as if they came first.
	Urgent int
}

// settled tells whether the answer is known without looking into a bucket.
func (a Ask) settled() bool {
	limits := a.Policy.limits()
	return a.Tasks <= 0 || limits.all.Unlimited() && (a.Urgent <= 0 || limits.urgent.Unlimited())
}

// Answer is what becomes of an Ask.
type Answer struct {
	// Granted is how many tasks are admitted: the first ones.
	Granted int
	// Urgent is how many of those may stay urgent; the others are standard.
	Urgent int
	// RetryAfter is when one more task would be admitted, never too short by the bucket's clock and at most 50 ms too long. It is 0 when
	// all were admitted, and at most fairness.WaitMax.
	RetryAfter time.Duration
	// UrgentAfter is the same for one more urgent task; 0 when every admitted urgent task may stay urgent.
	UrgentAfter time.Duration
}

// answer completes what was taken from the buckets with the waits until they give one more.
func (a Ask) answer(taken pair[int], wait pair[time.Duration]) Answer {
	granted := Answer{Granted: taken.all, Urgent: taken.urgent}
	if taken.all < a.Tasks {
		granted.RetryAfter = wait.all
	}
	if taken.urgent < min(a.Urgent, taken.all) {
		granted.UrgentAfter = wait.urgent
	}
	return granted
}
