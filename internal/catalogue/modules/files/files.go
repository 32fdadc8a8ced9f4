// Package files holds the execution modules that bring files to the minion, tell
// of them and change them.
// A module is one file of this package.
package files

import (
	"brine/internal/call/fn"
	"brine/internal/host"
)

// Modules returns the modules of this family. They need no daemon.
func Modules(m *host.Machine) []fn.Module {
	return []fn.Module{cpModule(), fileModule(m), hashutilModule(), iniModule(), aclModule(m), openstackModule(m)}
}
