package errandv1_test

import (
	"slices"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// cutOrByHand are fields of requests without a limit of their own, with the reason.
var cutOrByHand = map[string]string{
	"errand.v1.WorkRequest.accepted":       "the stream is the hot path: its messages are bounded in bytes and checked by hand",
	"errand.v1.WorkRequest.finished":       "the stream is the hot path",
	"errand.v1.WorkRequest.progress":       "the stream is the hot path",
	"errand.v1.WorkRequest.checkpoints":    "the stream is the hot path",
	"errand.v1.Result.data":                "refusing it would make finished work look unfinished: the task fails with bad_result",
	"errand.v1.Result.content_type":        "cut, never refused",
	"errand.v1.AttemptFailure.reason":      "cut, never refused",
	"errand.v1.AttemptFailure.message":     "cut, never refused",
	"errand.v1.AttemptFailure.details":     "cut, never refused",
	"errand.v1.AttemptFailure.retry_after": "saturates, never refused",
	"errand.v1.HandedBack.reason":          "cut, never refused",
	"errand.v1.Snoozed.delay":              "taken as the nearest allowed, never refused",
	"errand.v1.Backpressure.limit":         "cut, never refused",
	"errand.v1.Backpressure.retry_after":   "saturates, never refused",
	"errand.v1.Progress.message":           "cut, never refused",
}

// services returns every service of the API and of the peers.
func services() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	for file := range filesOfErrand() {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
	}
	return all
}

// filesOfErrand yields the descriptors of both packages' files.
func filesOfErrand() func(yield func(protoreflect.FileDescriptor) bool) {
	packages := []protoreflect.FullName{
		errandv1.File_errand_v1_task_proto.Package(), peerv1.File_errand_peer_v1_peer_proto.Package(),
	}
	return func(yield func(protoreflect.FileDescriptor) bool) {
		for _, name := range packages {
			protoregistry.GlobalFiles.RangeFilesByPackage(name, yield)
		}
	}
}

func TestEveryFieldOfARequestHasALimit(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	unused := map[string]bool{}
	for name := range cutOrByHand {
		unused[name] = true
	}
	var visit func(m protoreflect.MessageDescriptor)
	visit = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || !strings.HasPrefix(string(m.FullName()), "errand.") {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			delete(unused, string(field.FullName()))
			if _, excused := cutOrByHand[string(field.FullName())]; !excused && !limited(t, field) {
				t.Errorf("%s has no limit: add a rule to its .proto, or the reason for having none to this test", field.FullName())
			}
			if field.Message() != nil && !field.IsMap() {
				visit(field.Message())
			}
		}
	}
	for _, service := range services() {
		for i := range service.Methods().Len() {
			visit(service.Methods().Get(i).Input())
		}
	}
	for name := range unused {
		t.Errorf("%s is excused here, and no request has it", name)
	}
}

// limited tells whether a field's own rules bound its size, or its type does.
func limited(t *testing.T, field protoreflect.FieldDescriptor) bool {
	t.Helper()
	rules, err := protovalidate.ResolveFieldRules(field)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case field.IsMap():
		m := rules.GetMap()
		return m.MaxPairs != nil && textLimited(m.GetKeys().GetString()) && textLimited(m.GetValues().GetString())
	case field.IsList():
		return rules.GetRepeated().GetMaxItems() > 0 && elementLimited(field, rules.GetRepeated().GetItems())
	default:
		return elementLimited(field, rules)
	}
}

func elementLimited(field protoreflect.FieldDescriptor, rules *validate.FieldRules) bool {
	switch field.Kind() {
	case protoreflect.StringKind:
		return textLimited(rules.GetString())
	case protoreflect.BytesKind:
		return rules.GetBytes().GetMaxLen() > 0 || rules.GetBytes().GetLen() > 0
	case protoreflect.EnumKind:
		return rules.GetEnum().GetDefinedOnly()
	case protoreflect.DoubleKind:
		return rules.GetDouble().GetFinite()
	case protoreflect.MessageKind:
		return messageLimited(field.Message().FullName(), rules)
	default: // bool and integers are bounded by their type
		return true
	}
}

// messageLimited looks at the well-known types, whose values may lie outside of what a store can hold; a field mask names the
// fields that it may name. Messages of our own are visited by themselves.
func messageLimited(name protoreflect.FullName, rules *validate.FieldRules) bool {
	switch name {
	case "google.protobuf.Timestamp":
		return rules.GetTimestamp().GetGreaterThan() != nil && rules.GetTimestamp().GetLessThan() != nil
	case "google.protobuf.Duration":
		return rules.GetDuration().GetGreaterThan() != nil && rules.GetDuration().GetLessThan() != nil
	case "google.protobuf.FieldMask":
		return len(rules.GetFieldMask().GetIn()) > 0
	default:
		return true
	}
}

func textLimited(rules *validate.StringRules) bool {
	return rules.GetMaxBytes() > 0 || rules.GetPattern() != "" || rules.GetUuid()
}

func TestEveryListHasPages(t *testing.T) {
	for _, service := range services() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			if !strings.HasPrefix(string(method.Name()), "List") {
				continue
			}
			size := method.Input().Fields().ByName("page_size")
			if size == nil {
				t.Errorf("%s has no page_size", method.FullName())
				continue
			}
			rules, err := protovalidate.ResolveFieldRules(size)
			if err != nil {
				t.Fatal(err)
			}
			if got := rules.GetInt32().GetLte(); got != 500 {
				t.Errorf("%s allows pages of %d, want 500", method.FullName(), got)
			}
			if method.Input().Fields().ByName("page_token") == nil || method.Output().Fields().ByName("next_page_token") == nil {
				t.Errorf("%s has no page token in both directions", method.FullName())
			}
		}
	}
}

func TestEveryServiceIsCovered(t *testing.T) {
	var names []string
	for _, s := range services() {
		names = append(names, string(s.FullName()))
	}
	slices.Sort(names)
	want := []string{
		"errand.peer.v1.PeerService", "errand.v1.AdminService", "errand.v1.ScheduleService",
		"errand.v1.TaskService", "errand.v1.WorkerService",
	}
	if !slices.Equal(names, want) {
		t.Errorf("services are %v, want %v", names, want)
	}
}
