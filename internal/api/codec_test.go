package api

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// What a client sends in the field of refusals is an unknown field like any other.
func TestARefusalCannotBeSent(t *testing.T) {
	for _, content := range []string{"", "kind\x00broken", string(make([]byte, 16)) + "kind\x00broken"} {
		raw := protowire.AppendTag(nil, refusalField, protowire.BytesType)
		raw = protowire.AppendString(raw, content)
		m := &errandv1.GetTaskRequest{}
		if err := (binaryForm{}).Unmarshal(raw, m); err != nil {
			t.Fatal(err)
		}
		if err := decoded(m); err != nil {
			t.Errorf("%q was taken for a refusal: %v", content, err)
		}
	}
}

func FuzzDecoding(f *testing.F) {
	good, err := proto.Marshal(&errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{{Kind: "email", Labels: map[string]string{"a": "b"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("\x0a\x03\x0a\x01\xff"))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &errandv1.SubmitTasksRequest{}
		if err := (binaryForm{}).Unmarshal(raw, m); err != nil {
			t.Fatal(err)
		}
		// What cannot be decoded is refused; what can be is not.
		if refused, broken := decoded(m) != nil, proto.Unmarshal(raw, &errandv1.SubmitTasksRequest{}) != nil; refused != broken {
			t.Errorf("refused: %v, broken: %v", refused, broken)
		}
	})
}
