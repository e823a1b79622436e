package api

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A message that cannot be decoded is refused by the transport before any interceptor sees it, with an error that has no detail
// and, for a text that is not UTF-8, no field. The codecs here take such a message as an empty one that carries its refusal in an
// unknown field, which the validator turns into an error like every other.

// refusalField is the number of that field: the largest there is. What a client puts there is not taken for a refusal, since it
// cannot know refusalMark.
const refusalField = 1<<29 - 1

const refusalTextMax = 300 // bytes

var refusalMark = newRefusalMark()

func newRefusalMark() []byte {
	mark := make([]byte, 16)
	if _, err := rand.Read(mark); err != nil {
		panic("api: the system has no randomness: " + err.Error())
	}
	return mark
}

// refuse empties a message and puts the refusal there.
func refuse(m proto.Message, field, text string) {
	proto.Reset(m)
	if len(text) > refusalTextMax {
		text = text[:refusalTextMax]
	}
	raw := protowire.AppendTag(nil, refusalField, protowire.BytesType)
	raw = protowire.AppendBytes(raw, append(bytes.Clone(refusalMark), field+"\x00"+strings.ToValidUTF8(text, "?")...))
	m.ProtoReflect().SetUnknown(raw)
}

// decoded returns the error of a message that could not be decoded.
func decoded(m proto.Message) error {
	unknown := m.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	number, kind, n := protowire.ConsumeTag(unknown)
	if n < 0 || number != refusalField || kind != protowire.BytesType {
		return nil
	}
	content, n := protowire.ConsumeBytes(unknown[n:])
	if n < 0 || !bytes.HasPrefix(content, refusalMark) {
		return nil
	}
	field, text, _ := strings.Cut(string(content[len(refusalMark):]), "\x00")
	return malformed(field, text)
}

// withCodecs replaces the transport's own codecs.
func withCodecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(binaryForm{}), connect.WithCodec(jsonForm{"json"}), connect.WithCodec(jsonForm{"json; charset=utf-8"}),
	)
}

var errNoMessage = errors.New("not a protobuf message")

// binaryForm is the binary form.
type binaryForm struct{}

// Name is the content type's part.
func (binaryForm) Name() string { return "proto" }

// Marshal encodes a message.
func (c binaryForm) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend encodes a message into a buffer that is used again.
func (binaryForm) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, is := message.(proto.Message)
	if !is {
		return nil, errNoMessage
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal decodes a message, or leaves its refusal in it.
func (binaryForm) Unmarshal(data []byte, message any) error {
	m, is := message.(proto.Message)
	if !is {
		return errNoMessage
	}
	if err := proto.Unmarshal(data, m); err != nil {
		if field := notUTF8(m.ProtoReflect().Descriptor(), data); field != "" {
			refuse(m, field, "a text must be UTF-8")
		} else {
			refuse(m, "", "the message cannot be decoded")
		}
	}
	return nil
}

// jsonForm is the JSON form.
type jsonForm struct{ name string }

// Name is the content type's part.
func (c jsonForm) Name() string { return c.name }

// Marshal encodes a message.
func (c jsonForm) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend encodes a message into a buffer that is used again.
func (jsonForm) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, is := message.(proto.Message)
	if !is {
		return nil, errNoMessage
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal decodes a message, or leaves its refusal in it. Fields that it does not know are skipped: a newer client may send them.
func (jsonForm) Unmarshal(data []byte, message any) error {
	m, is := message.(proto.Message)
	if !is {
		return errNoMessage
	}
	if len(data) == 0 {
		refuse(m, "", "an empty body is not JSON: send {}")
		return nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		// The library varies its blanks on purpose, so that nobody depends on its words.
		refuse(m, "", strings.ReplaceAll(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "), "  ", " "))
	}
	return nil
}

// notUTF8 returns the path of the first text in an encoded message that is not UTF-8, empty for none.
func notUTF8(md protoreflect.MessageDescriptor, raw []byte) string {
	seen := map[protowire.Number]int{}
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return ""
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(number, kind, raw); n < 0 {
			return ""
		}
		value := raw[:n]
		raw = raw[n:]
		field := md.Fields().ByNumber(number)
		if field == nil || kind != protowire.BytesType {
			continue
		}
		name := string(field.Name())
		if field.IsList() {
			name += "[" + strconv.Itoa(seen[number]) + "]"
		}
		seen[number]++
		content, _ := protowire.ConsumeBytes(value) // it was just consumed as a whole
		switch {
		case field.Kind() == protoreflect.StringKind && !utf8.Valid(content):
			return name
		case field.Message() != nil:
			if sub := notUTF8(field.Message(), content); sub != "" && field.IsMap() {
				return name // of a map's entry only the map has a name
			} else if sub != "" {
				return join(name, sub)
			}
		}
	}
	return ""
}
