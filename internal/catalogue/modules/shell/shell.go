// Package shell holds the execution modules that run programs: cmd. They are
// skins over host/proc with Salt's arguments, defaults and texts.
package shell

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
)

// units are the modules, which their files register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules() []fn.Module { return units.Modules(nil) }
