// Package packages holds the execution modules for software: pkg, lowpkg, pip
// and alternatives. They are skins over host/packages for Debian, Red Hat and
// Alpine Linux and systems made from them.
package packages

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units are the modules, which their files register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }
