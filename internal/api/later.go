package api

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// served names the fields that this release serves, of messages with fields that it does not. A field that is set and not named
// here is refused: ignoring it would break a promise silently, and a new field is refused until somebody serves it.
var served = map[protoreflect.FullName]map[protoreflect.Name]bool{
	"errand.v1.TaskSpec": names("kind", "payload", "content_type", "labels", "tier", "delay_tolerance", "run_at", "delay", "start_by",
		"start_within", "attempt_timeout", "max_attempts", "max_worker_losses", "retry_policy", "idempotency_key", "exclusive", "unique_key",
		"unique_policy", "limits", "reject_if_infeasible", "requirements", "selectors", "preferences", "near", "parents",
		"parent_condition", "impossible_policy", "allowed_regions"),
	"errand.v1.TaskChanges":  names("tier", "delay_tolerance", "run_at", "delay", "start_by", "start_within", "labels"),
	"errand.v1.KindDefaults": names("tier", "delay_tolerance", "attempt_timeout", "max_attempts", "max_worker_losses", "retry_policy", "requirements"),
	"errand.v1.NamedLimit":   names("tenant", "name", "concurrency", "rate"),
}

func names(all ...protoreflect.Name) map[protoreflect.Name]bool {
	set := map[protoreflect.Name]bool{}
	for _, name := range all {
		set[name] = true
	}
	return set
}

// onlyServed refuses a message that asks for what this release does not do. prefix is its path in the request, for errors. A
// message inside that says nothing asks for nothing.
func onlyServed(m proto.Message, prefix string) error {
	known := served[m.ProtoReflect().Descriptor().FullName()]
	var refused error
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		empty := field.Message() != nil && !field.IsMap() && !field.IsList() && proto.Size(value.Message().Interface()) == 0
		if !known[field.Name()] && !empty {
			refused = later(prefix + string(field.Name()))
		}
		return refused == nil
	})
	return refused
}
