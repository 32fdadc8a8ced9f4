// Package databases holds the execution modules that manage database servers:
// mysql uses package remote, and postgres runs psql(1), which can authenticate by
// the account that it runs as.
package databases

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }
