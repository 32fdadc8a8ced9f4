// Package core holds the states that do not use the machine: test, module, http and others. Each
// state module is one file, which registers itself.
package core

import (
	"brine/internal/catalogue/states"
	"brine/internal/sls/state"
)

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }
