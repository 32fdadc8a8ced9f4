// Package shell holds the execution module cmd, which runs programs. It uses
// host/proc with Salt's arguments, defaults and messages.
package shell

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules() []fn.Module { return units.Modules(nil) }
