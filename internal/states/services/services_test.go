package services

import (
	"testing"

	"brine/internal/fn"
	"brine/internal/host"
	"brine/internal/modules/services"
	"brine/internal/states/core"
	"brine/internal/states/statetest"
	"brine/test/tools"
)

func table(name string) statetest.Table {
	return statetest.Table{Name: "testdata/" + name, States: append(Modules(), core.Modules()...), Functions: []fn.Module(services.Modules(&host.Machine{}))}
}

// TestSystemd runs the states on a machine whose systemctl is a script with
// units that can fail.
func TestSystemd(t *testing.T) { statetest.Run(t, table("systemd")) }

func TestSystemdRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/systemd") }

// TestScripts runs the states on a machine with System V init.
func TestScripts(t *testing.T) {
	statetest.Needs(t, "service")
	statetest.Run(t, table("sysv"))
}

func TestScriptsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/sysv") }

// TestApache enables and disables what Debian's Apache serves.
func TestApache(t *testing.T) {
	tools.Need(t, "apache2", "a2ensite")
	statetest.Run(t, table("apache"))
}

func TestApacheRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/apache") }
