// Package core holds the states that need nothing of the machine: test, module, http and others. A
// state module is one file, which adds itself to the list that Modules
// returns.
package core

import "brine/internal/sls/state"

var modules []state.Module

func add(m state.Module) { modules = append(modules, m) }

// Modules returns the state modules of this family.
func Modules() []state.Module { return modules }
