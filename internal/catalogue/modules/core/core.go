// Package core holds the execution modules that work on the minion itself
// and on what it knows: test, sys, config, grains, pillar, match, data, key,
// log and environ, and random, which needs nothing. They need nothing of the
// machine. A module is one file, which adds itself to the list that
// Modules returns; grains can also change what the daemon holds and is
// therefore built by Grains.
package core

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
)

// units are the modules, which their files register.
var units = modules.Family()

// Modules returns the modules of this family that need no daemon.
func Modules() []fn.Module { return units.Modules(nil) }
