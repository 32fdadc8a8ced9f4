// Package services holds the execution modules service, which uses host/systemd or,
// where systemd does not run, host/initd; apache, for Debian's web server;
// supervisord, for the daemon of that name; and others.
package services

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }

// none is the argument type of functions without arguments.
type none struct{}
