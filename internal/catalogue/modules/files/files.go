// Package files holds the execution modules that bring files to the minion, tell
// of them and change them.
// A module is one file of this package.
package files

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units are the modules, which their files register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }
