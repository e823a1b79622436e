package api

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// validator checks requests against the rules that stand in the .proto files, and refuses text that no store can hold.
type validator struct{ rules protovalidate.Validator }

func newValidator() (*validator, error) {
	rules, err := protovalidate.New(protovalidate.WithFailFast())
	if err != nil {
		return nil, err
	}
	return &validator{rules}, nil
}

// WrapUnary checks the request of a unary call.
func (v *validator) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if m, isMessage := req.Any().(proto.Message); isMessage {
			if err := v.check(m, ""); err != nil {
				return nil, err
			}
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient changes nothing.
func (v *validator) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler changes nothing: the worker's stream checks what it reads by hand, since it is the hot path.
func (v *validator) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// check returns the first violation as an error that names its field. prefix is the path of the message in the request.
func (v *validator) check(m proto.Message, prefix string) error {
	if err := decoded(m); err != nil {
		return err
	}
	if plainRequest(m) {
		return nil
	}
	return v.slow(m, prefix)
}

func (v *validator) slow(m proto.Message, prefix string) error {
	err := v.rules.Validate(m)
	var violations *protovalidate.ValidationError
	switch {
	case errors.As(err, &violations) && len(violations.Violations) > 0:
		first := violations.Violations[0]
		return invalid(prefix+protovalidate.FieldPathString(first.Proto.GetField()), first.Proto.GetMessage())
	case err != nil:
		return err
	}
	if path := findNUL(m.ProtoReflect()); path != "" {
		return invalid(prefix+path, "a text must not contain NUL bytes")
	}
	return nil
}

// findNUL returns the path of the first text with a NUL byte, which PostgreSQL and CockroachDB cannot store. Bytes fields
// may hold anything.
func findNUL(m protoreflect.Message) (path string) {
	m.Range(func(fd protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := string(fd.Name())
		switch {
		case fd.IsMap():
			value.Map().Range(func(k protoreflect.MapKey, item protoreflect.Value) bool {
				if strings.IndexByte(k.String(), 0) >= 0 || textWithNUL(fd.MapValue(), item) {
					path = name
				}
				return path == ""
			})
		case fd.IsList():
			for i := range value.List().Len() {
				if sub, bad := nulInside(fd, value.List().Get(i)); bad {
					path = join(name+"["+strconv.Itoa(i)+"]", sub)
					break
				}
			}
		default:
			if sub, bad := nulInside(fd, value); bad {
				path = join(name, sub)
			}
		}
		return path == ""
	})
	return path
}

func nulInside(fd protoreflect.FieldDescriptor, value protoreflect.Value) (sub string, bad bool) {
	if fd.Message() != nil {
		sub = findNUL(value.Message())
		return sub, sub != ""
	}
	return "", textWithNUL(fd, value)
}

func textWithNUL(fd protoreflect.FieldDescriptor, value protoreflect.Value) bool {
	return fd.Kind() == protoreflect.StringKind && strings.IndexByte(value.String(), 0) >= 0
}

func join(name, sub string) string {
	if sub == "" {
		return name
	}
	return name + "." + sub
}
