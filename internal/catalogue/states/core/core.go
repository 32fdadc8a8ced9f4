// Package core holds the states that need nothing of the machine: test, module, http and others. A
// state module is one file, which adds itself to the list that Modules
// returns.
package core

import (
	"brine/internal/catalogue/states"
	"brine/internal/sls/state"
)

// units are the modules, which their files register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }
