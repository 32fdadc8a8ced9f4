// Package states registers the state modules of every machine. A family is a package
// below this one, whose files each register their modules.
package states

import (
	"brine/internal/catalogue/family"
	"brine/internal/host"
	"brine/internal/sls/state"
)

var kind = family.NewKind("state module", func(m state.Module) string { return m.Name })

// Family returns a family without modules.
func Family() family.Family[state.Module] { return kind.Family() }

// All returns the modules of all families that the program imports.
func All(m *host.Machine) []state.Module { return kind.Modules(m) }
