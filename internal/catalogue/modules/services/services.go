// Package services holds the execution module service, a skin over
// host/systemd and, where systemd does not run, host/initd; and apache, for
// what a web server of Debian serves; and supervisord, for the daemon of that name.
package services

import (
	"brine/internal/call/fn"
	"brine/internal/host"
)

// Modules returns the modules of this family, working on one machine.
func Modules(m *host.Machine) []fn.Module {
	return []fn.Module{serviceModule(m), apacheModule(m), supervisordModule(m), rabbitmqModule(m), webutilModule(m)}
}

// none is the argument of functions without any.
type none struct{}
