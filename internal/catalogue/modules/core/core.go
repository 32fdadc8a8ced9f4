// Package core holds the execution modules that work on the minion itself
// and on what it knows: test, sys, config, grains, pillar, match, data, key,
// log and environ, and random, which needs nothing. They need nothing of the
// machine. A module is one file, which adds itself to the list that
// Modules returns; grains can also change what the daemon holds and is
// therefore built by Grains.
package core

import "brine/internal/call/fn"

var modules []fn.Module

func add(m fn.Module) { modules = append(modules, m) }

// Modules returns the modules of this family that need no daemon.
func Modules() []fn.Module { return modules }
