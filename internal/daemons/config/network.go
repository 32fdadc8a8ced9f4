package config

import (
	"slices"

	"brine/internal/base/field"
)

// checkTransport refuses a word that names no transport. The word detect is
// Salt's for zeromq.
func (t *Tree) checkTransport(name string) []error {
	if slices.Contains([]string{"zeromq", "tcp", "ws", "detect"}, name) {
		return nil
	}
	return []error{t.faultf("transport", "expected zeromq, tcp or ws, got %s", field.Describe(name))}
}
