package cron

import (
	"errors"
	"fmt"
)

// ErrNever is inside the error of Parse for an expression that is well-formed and never fires, such as 31 February.
var ErrNever = errors.New("there is no next time")

// ParseError says what Parse did not understand, and in which field.
type ParseError struct {
	// Field is expression, time_zone, second, minute, hour, day of month, month or day of week.
	Field string
	// Value is what stands there.
	Value string
	// Reason says what is wrong, and what would be right.
	Reason string
	never  bool
}

// Error names the field, its value and the reason.
func (e *ParseError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason)
}

// Is makes an impossible expression an ErrNever.
func (e *ParseError) Is(target error) bool {
	return e.never && target == ErrNever
}
