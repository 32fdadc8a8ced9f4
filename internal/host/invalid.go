package host

import "fmt"

// InvalidError means that an argument is invalid on every machine, so nothing
// was tried.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }

// Invalidf returns an InvalidError; format and args are those of fmt.Errorf.
func Invalidf(format string, args ...any) error {
	return &InvalidError{fmt.Errorf(format, args...)}
}
