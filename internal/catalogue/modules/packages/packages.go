// Package packages holds the execution modules for software: pkg, lowpkg, pip
// and alternatives. They are skins over host/packages for Debian, Red Hat and
// Alpine Linux and systems made from them.
package packages

import (
	"brine/internal/call/fn"
	"brine/internal/host"
)

// Modules returns the modules of this family, working on one machine.
func Modules(m *host.Machine) []fn.Module {
	return []fn.Module{pkgModule(m), lowpkgModule(m), alternativesModule(m), pipModule(m), virtualenvModule(m), gemModule(m), npmModule(m), debconfModule(m)}
}
