package system

import (
	"slices"
	"testing"

	"brine/internal/host"
	modcore "brine/internal/modules/core"
	"brine/internal/modules/files"
	"brine/internal/modules/network"
	"brine/internal/modules/system"
	"brine/internal/states/core"
	"brine/internal/states/statetest"
)

func table(name string) statetest.Table {
	m := &host.Machine{}
	return statetest.Table{Name: "testdata/" + name, States: append(slices.Clone(Modules()), core.Modules()...),
		Functions: slices.Concat(system.Modules(m), files.Modules(m), network.Modules(network.Sources{Machine: m}), modcore.Modules())}
}

// TestCron changes crontabs by way of a crontab(1) that is a script.
func TestCron(t *testing.T) { statetest.Run(t, table("cron")) }

func TestCronRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/cron") }
