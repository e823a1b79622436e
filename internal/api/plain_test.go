package api

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// What is plain keeps the declared rules: the shortcut never lets through what they would refuse.
func TestPlainKeepsTheRules(t *testing.T) {
	rules, err := newValidator()
	if err != nil {
		t.Fatal(err)
	}
	text := rapid.OneOf(rapid.StringMatching(`[a-z][a-z0-9._-]{0,70}`), rapid.StringN(0, 300, 300), rapid.Just("a\x00b"), rapid.Just(""))
	seen, limited := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		spec := &errandv1.TaskSpec{
			Kind: text.Draw(t, "kind"), ContentType: text.Draw(t, "content type"), IdempotencyKey: text.Draw(t, "key"),
			Payload: make([]byte, rapid.SampledFrom([]int{0, 1, 262144, 262145}).Draw(t, "bytes")),
			Tier:    errandv1.Tier(rapid.Int32Range(-1, 5).Draw(t, "tier")),
		}
		if rapid.Bool().Draw(t, "sound") {
			spec.Kind, spec.ContentType = "encode", ""
		}
		for range rapid.SampledFrom([]int{0, 0, 1, 8, 9}).Draw(t, "limits") {
			spec.Limits = append(spec.Limits, &errandv1.Limit{Name: text.Draw(t, "limit"), Key: text.Draw(t, "key")})
		}
		if len(spec.Limits) > 0 && rapid.Bool().Draw(t, "sound limits") {
			for _, l := range spec.Limits {
				l.Name, l.Key = "api", ""
			}
		}
		if !plain(spec) {
			return
		}
		seen++
		limited += len(spec.Limits)
		if err := rules.slow(&errandv1.SubmitTaskRequest{Spec: spec}, ""); err != nil {
			t.Fatalf("%v is plain, and refused: %v", spec, err)
		}
		if err := onlyServed(spec, ""); err != nil {
			t.Fatalf("%v is plain, and not served: %v", spec, err)
		}
	})
	if seen == 0 || limited == 0 {
		t.Error("nothing was plain: the test compares nothing")
	}
}

// A field that the shortcut does not know, one of a later release too, makes a spec not plain.
func TestPlainKnowsItsFields(t *testing.T) {
	known := map[protoreflect.Name]bool{"kind": true, "payload": true, "content_type": true, "tier": true, "idempotency_key": true, "limits": true}
	spec := &errandv1.TaskSpec{Kind: "encode"}
	if !plain(spec) {
		t.Fatal("a spec with nothing but a kind is not plain")
	}
	if n := (&errandv1.Limit{}).ProtoReflect().Descriptor().Fields().Len(); n != 2 {
		t.Errorf("a limit has %d fields, of which two are known here", n)
	}
	fields := spec.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if known[field.Name()] {
			continue
		}
		one := proto.Clone(spec).(*errandv1.TaskSpec)
		setSomething(one.ProtoReflect(), field)
		if plain(one) {
			t.Errorf("with %s it is plain still", field.Name())
		}
	}
}

func setSomething(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		m.Mutable(field).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
	case field.IsList():
		list := m.Mutable(field).List()
		list.Append(list.NewElement())
	case field.Message() != nil:
		m.Mutable(field)
	case field.Kind() == protoreflect.StringKind:
		m.Set(field, protoreflect.ValueOfString("x"))
	case field.Kind() == protoreflect.BoolKind:
		m.Set(field, protoreflect.ValueOfBool(true))
	case field.Kind() == protoreflect.EnumKind:
		m.Set(field, protoreflect.ValueOfEnum(1))
	default:
		m.Set(field, protoreflect.ValueOfInt32(1))
	}
}
