// Package services holds the execution module service, a skin over
// host/systemd and, where systemd does not run, host/initd; and apache, for
// what a web server of Debian serves; and supervisord, for the daemon of that name.
package services

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units are the modules, which their files register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }

// none is the argument of functions without any.
type none struct{}
