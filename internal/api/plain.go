package api

import (
	"strings"

	"google.golang.org/protobuf/proto"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

const (
	kindMax           = 63  // bytes
	idempotencyKeyMax = 255 // bytes
	batchMax          = 1000
	limitsMax         = 8
	limitKeyMax       = 255
)

// plainRequest tells whether a request keeps every rule at a glance, as most do. It is there for speed alone: the declared rules
// cost as much as all that a scheduler does with a task, and decide whenever it says no.
func plainRequest(m proto.Message) bool {
	switch req := m.(type) {
	case *errandv1.SubmitTaskRequest:
		return plain(req.GetSpec())
	case *errandv1.SubmitTasksRequest:
		for _, spec := range req.GetSpecs() {
			if !plain(spec) {
				return false
			}
		}
		return len(req.GetSpecs()) > 0 && len(req.GetSpecs()) <= batchMax
	default:
		return false
	}
}

// plain tells whether a spec says only what most say, and that within its rules. It says no to every field that it does not know.
func plain(s *errandv1.TaskSpec) bool {
	return s != nil && plainKind(s.Kind) && len(s.Payload) <= scheduler.PayloadMax && plainText(s.ContentType, contentTypeMax) &&
		plainText(s.IdempotencyKey, idempotencyKeyMax) && s.Tier >= 0 && s.Tier <= errandv1.Tier_TIER_DEFERRABLE && plainLimits(s.Limits) &&
		// and nothing else:
		s.Start == nil && s.Useless == nil && s.DelayTolerance == nil && s.AttemptTimeout == nil && s.MaxAttempts == nil &&
		s.MaxWorkerLosses == nil && s.RetryPolicy == nil && s.Requirements == nil && s.ParentCondition == 0 && s.ImpossiblePolicy == 0 &&
		!s.Exclusive && !s.Preemptible && !s.RejectIfInfeasible && s.Near == "" && s.UniqueKey == "" && s.UniquePolicy == 0 &&
		len(s.Labels)+len(s.Selectors)+len(s.Preferences)+len(s.AllowedRegions)+len(s.Parents) == 0
}

func plainLimits(limits []*errandv1.Limit) bool {
	for _, l := range limits {
		if l == nil || !plainKind(l.Name) || !plainText(l.Key, limitKeyMax) {
			return false
		}
	}
	return len(limits) <= limitsMax
}

func plainKind(kind string) bool {
	for i := range len(kind) {
		c := kind[i]
		switch {
		case c >= 'a' && c <= 'z':
		case i > 0 && (c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return kind != "" && len(kind) <= kindMax
}

func plainText(text string, limit int) bool {
	return len(text) <= limit && strings.IndexByte(text, 0) < 0
}
