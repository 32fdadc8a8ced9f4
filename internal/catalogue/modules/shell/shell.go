// Package shell holds the execution modules that run programs: cmd. They are
// skins over host/proc with Salt's arguments, defaults and texts.
package shell

import "brine/internal/call/fn"

var modules []fn.Module

func add(m fn.Module) { modules = append(modules, m) }

// Modules returns the modules of this family.
func Modules() []fn.Module { return modules }
