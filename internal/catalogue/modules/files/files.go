// Package files holds the execution modules that fetch, describe and change
// files. Each module is one file of this package.
package files

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }
