// Package vcs holds the execution modules for version control: git. It is a
// skin over host/git.
package vcs

import (
	"brine/internal/call/fn"
	"brine/internal/host"
)

// Modules returns the modules of this family, working on one machine.
func Modules(m *host.Machine) []fn.Module { return []fn.Module{gitModule(m), hgModule(m)} }
