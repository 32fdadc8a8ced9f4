package fn

import (
	"errors"

	"brine/internal/host"
)

// FromHost converts an error of a package below host into a function's error:
// an InvocationError for a host.InvalidError, otherwise a CommandError.
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
