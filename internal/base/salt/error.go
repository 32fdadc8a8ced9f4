package salt

import (
	"errors"
	"fmt"
)

// Kind classifies an Error. The programs map it to an exit code and the API to
// an HTTP status.
type Kind uint8

// The kinds of error.
const (
	Internal    Kind = iota // a failure of Brine or of the machine
	Invalid                 // the caller's input is wrong
	NotFound                // the named thing does not exist
	Exists                  // the thing to create exists already
	Denied                  // the caller lacks permission
	Timeout                 // no answer in time
	Unavailable             // a peer or resource is unreachable now
)

var kindNames = [...]string{"internal error", "invalid", "not found", "exists", "denied", "timeout", "unavailable"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown kind"
}

// Error is an error of a known kind. Its message is that of Err.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error of the given kind; format and args are those of
// fmt.Errorf, %w included.
func Errorf(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// KindOf returns the kind of the outermost Error in err's chain, or Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
