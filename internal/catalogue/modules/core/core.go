// Package core holds the execution modules that work on the minion itself and
// its data: test, sys, config, grains, pillar, match, data, key, log, environ
// and random. They do not use the machine. Each module is one file, which
// registers itself for Modules. Grains builds the module grains, which also
// changes data that the daemon holds.
package core

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family that need no daemon.
func Modules() []fn.Module { return units.Modules(nil) }
