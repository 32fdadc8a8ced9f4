// Package catalogue imports the families of execution modules and states that
// every machine has. Minions run them, and masters call them in templates and
// orchestrations. Modules that need the daemon are added by the daemons.
package catalogue

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	_ "brine/internal/catalogue/modules/accounts"
	_ "brine/internal/catalogue/modules/archives"
	_ "brine/internal/catalogue/modules/core"
	_ "brine/internal/catalogue/modules/databases"
	_ "brine/internal/catalogue/modules/files"
	_ "brine/internal/catalogue/modules/network"
	_ "brine/internal/catalogue/modules/packages"
	_ "brine/internal/catalogue/modules/pki"
	_ "brine/internal/catalogue/modules/services"
	_ "brine/internal/catalogue/modules/shell"
	_ "brine/internal/catalogue/modules/system"
	_ "brine/internal/catalogue/modules/vcs"
	"brine/internal/catalogue/states"
	_ "brine/internal/catalogue/states/accounts"
	_ "brine/internal/catalogue/states/archives"
	_ "brine/internal/catalogue/states/control"
	_ "brine/internal/catalogue/states/core"
	_ "brine/internal/catalogue/states/databases"
	_ "brine/internal/catalogue/states/files"
	"brine/internal/catalogue/states/orchestration"
	_ "brine/internal/catalogue/states/packages"
	_ "brine/internal/catalogue/states/pki"
	_ "brine/internal/catalogue/states/services"
	_ "brine/internal/catalogue/states/shell"
	_ "brine/internal/catalogue/states/system"
	_ "brine/internal/catalogue/states/vcs"
	"brine/internal/host"
	"brine/internal/sls/state"
)

// Modules returns the execution modules.
func Modules() []fn.Module { return modules.All(&host.Machine{}) }

// States returns the state modules.
func States(d orchestration.Deps) []state.Module {
	return append(states.All(&host.Machine{}), orchestration.Modules(d)...)
}
