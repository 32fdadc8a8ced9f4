// Package vcs holds the execution modules for version control: git, which uses
// host/git, and hg.
package vcs

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }
