// Package databases holds the execution modules that manage the servers of
// databases: mysql, a skin over remote, and postgres, one over psql(1), which can
// come in by the account that it runs as.
package databases

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
)

// units are the modules, which their files register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }
