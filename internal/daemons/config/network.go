package config

import (
	"slices"

	"brine/internal/base/field"
	"brine/internal/net/transport/named"
)

// checkTransport rejects unknown transports. Salt uses detect for zeromq.
func (t *Tree) checkTransport(name string) []error {
	if slices.Contains(named.Names, name) {
		return nil
	}
	return []error{t.faultf("transport", "expected zeromq, tcp or ws, got %s", field.Describe(name))}
}
