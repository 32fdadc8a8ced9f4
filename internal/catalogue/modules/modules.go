// Package modules registers the execution modules of every machine. A family is a package
// below this one, whose files each register their module.
package modules

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/family"
	"brine/internal/host"
)

var kind = family.NewKind("execution module", func(m fn.Module) string { return m.Name })

// Family returns a family without modules.
func Family() family.Family[fn.Module] { return kind.Family() }

// All returns the modules of all families that the program imports.
func All(m *host.Machine) []fn.Module { return kind.Modules(m) }
