// Package catalogue names the families of execution modules and states that
// every machine has, whether a minion runs there or a master that calls them in
// its templates and orchestrations. Modules that need the daemon are added by
// the daemons.
package catalogue

import (
	"net"

	"brine/internal/fn"
	"brine/internal/host"
	"brine/internal/host/netif"
	modaccounts "brine/internal/modules/accounts"
	modarchives "brine/internal/modules/archives"
	modcore "brine/internal/modules/core"
	moddatabases "brine/internal/modules/databases"
	modfiles "brine/internal/modules/files"
	"brine/internal/modules/network"
	modpackages "brine/internal/modules/packages"
	modservices "brine/internal/modules/services"
	modshell "brine/internal/modules/shell"
	modsystem "brine/internal/modules/system"
	modvcs "brine/internal/modules/vcs"
	"brine/internal/state"
	"brine/internal/states/accounts"
	"brine/internal/states/archives"
	"brine/internal/states/control"
	"brine/internal/states/core"
	"brine/internal/states/databases"
	"brine/internal/states/files"
	"brine/internal/states/orchestration"
	"brine/internal/states/packages"
	"brine/internal/states/services"
	"brine/internal/states/shell"
	"brine/internal/states/system"
	"brine/internal/states/vcs"
)

// Modules returns the execution modules.
func Modules() []fn.Module {
	machine := &host.Machine{}
	var all []fn.Module
	for _, family := range [][]fn.Module{
		modcore.Modules(), modshell.Modules(), modaccounts.Modules(machine), modservices.Modules(machine), modpackages.Modules(machine),
		modsystem.Modules(machine), modvcs.Modules(machine), modarchives.Modules(machine),
		network.Modules(network.Sources{Machine: machine, Interfaces: netif.Interfaces, DNS: &net.Resolver{PreferGo: true}}),
		modfiles.Modules(machine), moddatabases.Modules(machine),
	} {
		all = append(all, family...)
	}
	return all
}

// States returns the state modules.
func States(d orchestration.Deps) []state.Module {
	var all []state.Module
	for _, family := range [][]state.Module{
		core.Modules(), files.Modules(&host.Machine{}), accounts.Modules(), packages.Modules(), services.Modules(), system.Modules(),
		vcs.Modules(&host.Machine{}), archives.Modules(&host.Machine{}), shell.Modules(), databases.Modules(), control.Modules(), orchestration.Modules(d),
	} {
		all = append(all, family...)
	}
	return all
}
