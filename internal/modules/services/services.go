// Package services holds the execution module service, for machines with
// systemd. It is a skin over host/systemd.
package services

import (
	"brine/internal/fn"
	"brine/internal/host"
)

// Modules returns the modules of this family, working on one machine.
func Modules(m *host.Machine) []fn.Module { return []fn.Module{serviceModule(m)} }

// none is the argument of functions without any.
type none struct{}
