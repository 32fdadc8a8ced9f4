package fn

import (
	"errors"

	"brine/internal/host"
)

// FromHost returns an error of a package below host as functions return it: an
// InvocationError if it is a host.InvalidError, else a CommandError.
func FromHost(err error) error {
	var invalid *host.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return &InvocationError{Err: err}
	}
	return &CommandError{Err: err}
}
