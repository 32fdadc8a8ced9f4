// Package catalogue names the families of execution modules and states that
// every machine has, whether a minion runs there or a master that calls them in
// its templates and orchestrations. Modules that need the daemon are added by
// the daemons.
package catalogue

import (
	"net"

	"brine/internal/call/fn"
	modaccounts "brine/internal/catalogue/modules/accounts"
	modarchives "brine/internal/catalogue/modules/archives"
	modcore "brine/internal/catalogue/modules/core"
	moddatabases "brine/internal/catalogue/modules/databases"
	modfiles "brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/network"
	modpackages "brine/internal/catalogue/modules/packages"
	modservices "brine/internal/catalogue/modules/services"
	modshell "brine/internal/catalogue/modules/shell"
	modsystem "brine/internal/catalogue/modules/system"
	modvcs "brine/internal/catalogue/modules/vcs"
	"brine/internal/catalogue/states/accounts"
	"brine/internal/catalogue/states/archives"
	"brine/internal/catalogue/states/control"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/databases"
	"brine/internal/catalogue/states/files"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/catalogue/states/packages"
	"brine/internal/catalogue/states/services"
	"brine/internal/catalogue/states/shell"
	"brine/internal/catalogue/states/system"
	"brine/internal/catalogue/states/vcs"
	"brine/internal/host"
	"brine/internal/host/netif"
	"brine/internal/sls/state"
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
