// Package packages holds the execution modules for software: pkg, lowpkg, pip,
// alternatives and others. They use host/packages for Debian, Red Hat, Alpine
// Linux and their derivatives.
package packages

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }
