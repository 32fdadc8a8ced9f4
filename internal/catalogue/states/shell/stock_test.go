package shell

import (
	"slices"
	"testing"

	modcore "brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
)

func table(name string) statetest.Table {
	return statetest.Table{Name: "testdata/" + name, States: append(Modules(), core.Modules()...),
		Functions: slices.Concat(shell.Modules(), files.Modules(&host.Machine{}), modcore.Modules())}
}

// TestCommands runs real commands.
func TestCommands(t *testing.T) {
	statetest.Needs(t, "/bin/bash")
	statetest.Run(t, table("cmd"))
}

func TestCommandsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/cmd") }

// TestParity covers rare arguments and errors.
func TestParity(t *testing.T) {
	statetest.Needs(t, "/bin/bash")
	statetest.Run(t, table("parity"))
}

func TestParityRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/parity") }
